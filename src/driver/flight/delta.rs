//! Observations as JSON, small: bucket layouts by number, histograms by bucket instead of
//! cumulative, and only what changed since the last one.
//!
//! A delta of objects names changed keys with their new value; keys that went are listed under
//! `~gone`. Arrays of equal length are deltas by index, others are given whole.
//!
//! Worked number: one more request in one bucket of 23 is `{"buckets":{"7":41},"sum":5300}`.

use serde_json::{Map, Value};
use spillgate_core::observation::Observation;

const GONE: &str = "~gone";

/// Bucket layouts seen so far, by number.
#[derive(Debug, Default)]
pub(super) struct Layouts(Vec<Vec<u64>>);

impl Layouts {
    pub(super) fn new(layouts: Vec<Vec<u64>>) -> Self {
        Self(layouts)
    }
    pub(super) fn extend(&mut self, more: Vec<Vec<u64>>) {
        self.0.extend(more);
    }
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    pub(super) fn all(&self) -> &[Vec<u64>] {
        &self.0
    }

    /// An observation as compact JSON.
    pub(super) fn encode(&mut self, seen: &Observation) -> Value {
        let mut value = serde_json::to_value(seen).unwrap_or(Value::Null);
        self.compact(&mut value);
        value
    }

    /// The observation of compact JSON.
    pub(super) fn decode(&self, value: &Value) -> Result<Observation, String> {
        let mut value = value.clone();
        self.expand(&mut value)?;
        serde_json::from_value(value).map_err(|e| e.to_string())
    }

    fn compact(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                if let Some((bounds, cumulative)) = histogram(map) {
                    let number = self.number_of(bounds);
                    let mut below = 0;
                    let buckets = cumulative.into_iter().map(|upto| {
                        // Counts fall only in a hostile page; wrapping keeps them as they are.
                        let inside = u64::wrapping_sub(upto, below);
                        below = upto;
                        Value::from(inside.cast_signed())
                    });
                    let buckets = buckets.collect();
                    map.remove("bounds");
                    map.remove("cumulative");
                    map.insert("layout".into(), number.into());
                    map.insert("buckets".into(), Value::Array(buckets));
                    return;
                }
                map.values_mut().for_each(|v| self.compact(v));
            }
            Value::Array(items) => items.iter_mut().for_each(|v| self.compact(v)),
            _ => {}
        }
    }

    fn number_of(&mut self, bounds: Vec<u64>) -> usize {
        self.0.iter().position(|known| *known == bounds).unwrap_or_else(|| {
            self.0.push(bounds);
            self.0.len() - 1
        })
    }

    fn expand(&self, value: &mut Value) -> Result<(), String> {
        match value {
            Value::Object(map) => {
                if let (Some(layout), Some(Value::Array(buckets))) =
                    (map.get("layout").and_then(Value::as_u64), map.get("buckets"))
                {
                    let bounds = usize::try_from(layout).ok().and_then(|n| self.0.get(n));
                    let bounds = bounds.ok_or(format!("bucket layout {layout} is not declared"))?;
                    if buckets.len() != bounds.len() + 1 {
                        return Err(format!("layout {layout} has {} buckets", bounds.len() + 1));
                    }
                    let mut below = 0_u64;
                    let cumulative: Option<Vec<Value>> = buckets
                        .iter()
                        .map(|inside| {
                            below = below.wrapping_add_signed(inside.as_i64()?);
                            Some(Value::from(below))
                        })
                        .collect();
                    let cumulative = cumulative
                        .ok_or(format!("a bucket of layout {layout} is no whole number"))?;
                    let bounds = bounds.iter().map(|&b| Value::from(b)).collect();
                    map.remove("layout");
                    map.remove("buckets");
                    map.insert("bounds".into(), Value::Array(bounds));
                    map.insert("cumulative".into(), Value::Array(cumulative));
                    return Ok(());
                }
                map.values_mut().try_for_each(|v| self.expand(v))
            }
            Value::Array(items) => items.iter_mut().try_for_each(|v| self.expand(v)),
            _ => Ok(()),
        }
    }
}

fn histogram(map: &Map<String, Value>) -> Option<(Vec<u64>, Vec<u64>)> {
    let numbers = |key: &str| -> Option<Vec<u64>> {
        map.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    Some((numbers("bounds")?, numbers("cumulative")?))
}

/// What turns `before` into `now`.
pub(super) fn between(before: &Value, now: &Value) -> Value {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            let mut changed = Map::new();
            for (key, value) in now {
                match before.get(key) {
                    Some(old) if old == value => {}
                    Some(old) => {
                        changed.insert(key.clone(), between(old, value));
                    }
                    None => {
                        changed.insert(key.clone(), value.clone());
                    }
                }
            }
            let gone: Vec<Value> =
                before.keys().filter(|k| !now.contains_key(*k)).map(|k| k.clone().into()).collect();
            if !gone.is_empty() {
                changed.insert(GONE.into(), Value::Array(gone));
            }
            Value::Object(changed)
        }
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => {
            let pairs = before.iter().zip(now).enumerate().filter(|(_, (old, new))| old != new);
            Value::Object(pairs.map(|(i, (old, new))| (i.to_string(), between(old, new))).collect())
        }
        (_, now) => now.clone(),
    }
}

/// Applies a delta to `base`; one that names an item which a list does not have is refused.
pub(super) fn apply(base: &mut Value, delta: &Value) -> Result<(), String> {
    match (base, delta) {
        (Value::Object(base), Value::Object(delta)) => {
            for (key, change) in delta {
                if key == GONE && change.is_array() {
                    for gone in change.as_array().into_iter().flatten() {
                        base.remove(gone.as_str().unwrap_or_default());
                    }
                } else {
                    apply(base.entry(key.clone()).or_insert(Value::Null), change)?;
                }
            }
        }
        (Value::Array(base), Value::Object(delta)) => {
            let length = base.len();
            for (index, change) in delta {
                let item = index.parse::<usize>().ok().and_then(|i| base.get_mut(i));
                let item = item.ok_or(format!("item {index} of a list of {length} is changed"))?;
                apply(item, change)?;
            }
        }
        (base, delta) => *base = delta.clone(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn one_request_more_is_a_small_delta() {
        let before = json!({"ttft": {"buckets": [1, 2, 3], "sum": 50}, "waiting": 2});
        let now = json!({"ttft": {"buckets": [1, 3, 3], "sum": 60}, "waiting": 2});
        let delta = between(&before, &now);
        assert_eq!(delta, json!({"ttft": {"buckets": {"1": 3}, "sum": 60}}));
    }

    #[test]
    fn a_bucket_that_is_no_whole_number_is_refused() {
        let layouts = Layouts::new(vec![vec![1, 2]]);
        let mut whole = json!({"ttft": {"layout": 0, "buckets": [1, 0, -1], "sum": 1}});
        assert_eq!(layouts.expand(&mut whole), Ok(()));
        let mut half = json!({"ttft": {"layout": 0, "buckets": [1, 0.5, 1], "sum": 1}});
        assert!(layouts.expand(&mut half).is_err_and(|e| e.contains("whole number")));
    }

    #[test]
    fn a_change_of_an_item_that_is_not_there_is_refused() {
        let mut engines = json!([{"waiting": 1}]);
        let refused = apply(&mut engines, &json!({"1": {"waiting": 2}}));
        assert!(refused.is_err_and(|e| e.contains("item 1 of a list of 1")));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<u32>().prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(Value::Array),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_counts_come_back_as_they_were(counts in prop::collection::vec(any::<u64>(), 3)) {
            let told = json!({"ttft": {"bounds": [1, 2], "cumulative": counts, "sum": 7}});
            let (mut layouts, mut value) = (Layouts::default(), told.clone());
            layouts.compact(&mut value);
            prop_assert_eq!(layouts.expand(&mut value), Ok(()));
            prop_assert_eq!(value, told);
        }

        #[test]
        fn a_delta_applied_gives_what_it_was_taken_from(before in tree(), now in tree()) {
            // An array never turns into an object at the same place of an observation.
            prop_assume!(!list_becomes_map(&before, &now));
            let mut base = before.clone();
            prop_assert_eq!(apply(&mut base, &between(&before, &now)), Ok(()));
            prop_assert_eq!(base, now);
        }
    }

    fn list_becomes_map(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Array(_), Value::Object(_)) => true,
            (Value::Array(a), Value::Array(b)) => {
                a.iter().zip(b).any(|(a, b)| list_becomes_map(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.iter().any(|(k, v)| b.get(k).is_some_and(|w| list_becomes_map(v, w)))
            }
            _ => false,
        }
    }
}
