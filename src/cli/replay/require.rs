//! `--require`: a field of the JSON report against a number.
//!
//! Worked number: `slo.attainment>=0.95` holds for a report with `"slo":{"attainment":0.962}`; a
//! field that is null or not there does not hold.

use serde_json::Value;
use std::str::FromStr;

/// One requirement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gate {
    path: String,
    relation: Relation,
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
}

impl Relation {
    const fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::Below => "<",
            Self::Equal => "==",
        }
    }
}

const RELATIONS: [(&str, Relation); 5] = [
    (">=", Relation::AtLeast),
    ("<=", Relation::AtMost),
    ("==", Relation::Equal),
    (">", Relation::Above),
    ("<", Relation::Below),
];

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = RELATIONS.iter().find_map(|&(sign, relation)| {
            text.split_once(sign).map(|(path, bound)| (path.trim(), relation, bound.trim()))
        });
        let hint = "write FIELD>=NUMBER, such as slo.attainment>=0.95";
        let (path, relation, bound) = found.ok_or(hint)?;
        let bound: f64 = bound.parse().map_err(|_| format!("{bound:?} is no number; {hint}"))?;
        if path.is_empty() || path.contains('=') || !bound.is_finite() {
            return Err(hint.to_owned());
        }
        Ok(Self { path: path.to_owned(), relation, bound })
    }
}

impl Gate {
    /// Nothing if it holds, else what the report says instead.
    pub(crate) fn miss(&self, report: &Value) -> Option<String> {
        let pointer = format!("/{}", self.path.replace('.', "/"));
        let Some(value) = report.pointer(&pointer).and_then(Value::as_f64) else {
            let names = "its names are those of `replay -o json`";
            return Some(format!("{}: the report has no such number; {names}", self.path));
        };
        let holds = match self.relation {
            Relation::AtLeast => value >= self.bound,
            Relation::AtMost => value <= self.bound,
            Relation::Above => value > self.bound,
            Relation::Below => value < self.bound,
            Relation::Equal => value == self.bound,
        };
        (!holds).then(|| {
            format!("{} is {value}, required {} {}", self.path, self.relation.sign(), self.bound)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gate_compares_a_field_with_a_number() {
        let report = json!({"slo": {"attainment": 0.96}, "usd": null});
        let miss = |gate: &str| gate.parse::<Gate>().expect("a gate").miss(&report);
        assert_eq!(miss("slo.attainment>=0.95"), None);
        assert!(miss("slo.attainment >= 0.97").is_some());
        assert!(miss("slo.attainment<0.96").is_some());
        assert!(miss("usd<=1").is_some(), "unknown is not met");
        assert!(miss("typo<=1").is_some());
        assert_eq!(
            miss("slo.attainment<0.5").as_deref(),
            Some("slo.attainment is 0.96, required < 0.5")
        );
    }

    #[test]
    fn what_is_no_gate_is_refused_with_an_example() {
        for bad in ["", "slo", "slo>=x", ">=1", "a>=NaN", "slo.attainment=>0.9", "a=1"] {
            assert!(bad.parse::<Gate>().is_err(), "{bad}");
        }
    }
}
