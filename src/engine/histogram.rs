//! Histograms: put together from their lines, added over engines, and read as quantiles.
//!
//! A bucket quantile is an interval, not a number: inside a finite bucket it is interpolated on a
//! straight line, beyond the last finite bound it is "at least that bound", and without
//! observations there is none. No infinity and no NaN leaves this file.
//!
//! Worked number: bounds 0.1 s and 0.5 s with cumulative counts 3, 7, 9: the median is the 4.5th
//! observation, 1.5 of 4 into the second bucket, 0.25 s; the 95th percentile is "at least 0.5 s".

use super::number::{number, whole};
use spillgate_core::observation::Histogram;
use std::sync::Arc;

/// The most buckets of one histogram; further ones are refused.
const MAX_BUCKETS: usize = 512;
/// Room for the buckets of the usual histogram, the total included.
const USUAL: usize = 24;

/// Why lines do not make a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A bound is no number.
    #[error("a bucket has no `le` bound or one that is no number of zero or more")]
    Bound,
    /// A count or sum is negative, NaN or infinite.
    #[error("a bucket, count or sum is negative or not finite")]
    Value,
    /// More buckets than are read.
    #[error("more than {MAX_BUCKETS} buckets")]
    TooMany,
    /// Counts fall from one bound to the next.
    #[error("counts fall from one bound to the next")]
    NotCumulative,
    /// `+Inf`, `_count` and the last finite bucket contradict one another.
    #[error("the +Inf bucket, `_count` and the finite buckets contradict one another")]
    Total,
    /// Neither `+Inf` nor `_count`.
    #[error("neither a +Inf bucket nor a count")]
    NoTotal,
    /// No `_sum`.
    #[error("no sum")]
    NoSum,
    /// A bound stands twice with different counts.
    #[error("a bound stands twice with different counts")]
    Twice,
}

/// Lines of one histogram as they come, in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets {
    /// Units of the result in one unit of the text: 1e6 for seconds, 1 for tokens.
    scale: f64,
    bounds: Vec<u64>,
    counts: Vec<u64>,
    infinite: Option<u64>,
    count: Option<u64>,
    sum: Option<u64>,
}

impl Buckets {
    pub(crate) fn new(scale: f64) -> Self {
        let (bounds, counts) = (Vec::with_capacity(USUAL), Vec::with_capacity(USUAL));
        Self { scale, bounds, counts, ..Self::default() }
    }

    pub(crate) fn bucket(&mut self, bound: Option<&str>, value: f64) -> Result<(), Flaw> {
        self.place(bound.and_then(number).ok_or(Flaw::Bound)?, value)
    }

    /// The same for a bound that is a number already.
    #[inline]
    pub(crate) fn place(&mut self, bound: f64, value: f64) -> Result<(), Flaw> {
        let count = whole(value, 1.0).ok_or(Flaw::Value)?;
        if bound == f64::INFINITY {
            return once(&mut self.infinite, count);
        }
        if self.bounds.len() == MAX_BUCKETS {
            return Err(Flaw::TooMany);
        }
        self.bounds.push(whole(bound, self.scale).ok_or(Flaw::Bound)?);
        self.counts.push(count);
        Ok(())
    }

    pub(crate) fn sum(&mut self, value: f64) -> Result<(), Flaw> {
        once(&mut self.sum, whole(value, self.scale).ok_or(Flaw::Value)?)
    }

    pub(crate) fn count(&mut self, value: f64) -> Result<(), Flaw> {
        once(&mut self.count, whole(value, 1.0).ok_or(Flaw::Value)?)
    }

    /// The histogram, with bounds ascending whatever the order of the lines. Engines mostly share
    /// their layout: `layout` is the one before, which is used again if it is the same.
    pub(crate) fn finish_like(mut self, layout: &mut Arc<[u64]>) -> Result<Histogram, Flaw> {
        let total = self.infinite.or(self.count).ok_or(Flaw::NoTotal)?;
        let sum = self.sum.ok_or(Flaw::NoSum)?;
        if !ascending(&self.bounds) {
            self.sort();
        }
        if !self.counts.is_sorted() {
            return Err(Flaw::NotCumulative);
        }
        // One bound cannot have two counts. (Bounds less than a microsecond apart are one bound.)
        if !ascending(&self.bounds) {
            return Err(Flaw::Twice);
        }
        let above = self.counts.last().is_some_and(|count| *count > total);
        if above || self.count.is_some_and(|count| count != total) {
            return Err(Flaw::Total);
        }
        if **layout != *self.bounds {
            *layout = self.bounds.into();
        }
        self.counts.push(total);
        Ok(Histogram { bounds: Arc::clone(layout), cumulative: self.counts, sum })
    }

    /// Brings the buckets in order, each once.
    fn sort(&mut self) {
        let mut buckets: Vec<_> =
            self.bounds.iter().copied().zip(self.counts.iter().copied()).collect();
        buckets.sort_unstable();
        buckets.dedup();
        (self.bounds, self.counts) = buckets.into_iter().unzip();
    }
}

fn ascending(bounds: &[u64]) -> bool {
    bounds.is_sorted_by(|left, right| left < right)
}

fn once(place: &mut Option<u64>, value: u64) -> Result<(), Flaw> {
    match place {
        Some(held) if *held != value => Err(Flaw::Twice),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

/// The sum of two histograms, on the bounds that both have (layouts may differ during a rollout).
#[must_use]
pub fn add(left: &Histogram, right: &Histogram) -> Histogram {
    let mut bounds = Vec::with_capacity(left.bounds.len());
    let mut cumulative = Vec::with_capacity(left.cumulative.len());
    for (bound, count) in left.bounds.iter().zip(&left.cumulative) {
        if let Ok(index) = right.bounds.binary_search(bound) {
            bounds.push(*bound);
            cumulative
                .push(count.saturating_add(right.cumulative.get(index).copied().unwrap_or(0)));
        }
    }
    cumulative.push(left.count().saturating_add(right.count()));
    Histogram { bounds: Arc::from(bounds), cumulative, sum: left.sum.saturating_add(right.sum) }
}

/// What a histogram says about a quantile, in the unit of its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantile {
    /// Nothing was observed.
    Unknown,
    /// Interpolated inside its bucket.
    At(f64),
    /// Saturated: beyond the last finite bound, which is given.
    AtLeast(f64),
}

/// The `q` quantile (0 to 1).
#[must_use]
pub fn quantile(histogram: &Histogram, q: f64) -> Quantile {
    let total = histogram.count();
    if total == 0 {
        return Quantile::Unknown;
    }
    let wanted = q.clamp(0.0, 1.0) * total as f64;
    let mut below = (0_u64, 0_u64);
    for (bound, count) in histogram.bounds.iter().zip(&histogram.cumulative) {
        if *count as f64 >= wanted && *count > below.1 {
            let share = (wanted - below.1 as f64) / (*count - below.1) as f64;
            let width = bound.saturating_sub(below.0) as f64;
            return Quantile::At(below.0 as f64 + width * share.max(0.0));
        }
        below = (*bound, *count);
    }
    Quantile::AtLeast(below.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Buckets {
        fn finish(self) -> Result<Histogram, Flaw> {
            self.finish_like(&mut Arc::default())
        }
    }

    fn small() -> Histogram {
        Histogram { bounds: [100_000, 500_000].into(), cumulative: vec![3, 7, 9], sum: 4_000_000 }
    }

    #[test]
    fn quantiles_are_inside_a_bucket_saturated_or_unknown() {
        assert_eq!(quantile(&small(), 0.5), Quantile::At(250_000.0));
        assert_eq!(quantile(&small(), 0.95), Quantile::AtLeast(500_000.0));
        assert_eq!(quantile(&Histogram::empty([1].into()), 0.5), Quantile::Unknown);
        assert_eq!(quantile(&Histogram::default(), 0.5), Quantile::Unknown);
    }

    #[test]
    fn a_slow_engine_is_at_least_the_last_bound_and_its_mean_is_known() {
        let slow = Histogram {
            bounds: [10_000_000].into(),
            cumulative: vec![60, 100],
            sum: 2_400_000_000,
        };
        assert_eq!(quantile(&slow, 0.95), Quantile::AtLeast(10_000_000.0));
        assert_eq!(slow.mean(), Some(24_000_000.0));
    }

    #[test]
    fn lines_may_come_in_any_order() {
        let mut buckets = Buckets::new(1e6);
        buckets.sum(4.0).unwrap();
        buckets.bucket(Some("+Inf"), 9.0).unwrap();
        buckets.bucket(Some("0.5"), 7.0).unwrap();
        buckets.count(9.0).unwrap();
        buckets.bucket(Some("1E-1"), 3.0).unwrap();
        assert_eq!(buckets.finish(), Ok(small()));
    }

    #[test]
    fn engines_of_one_layout_share_its_bounds() {
        let mut layout = Arc::default();
        let mut read = |bound| {
            let mut buckets = Buckets::new(1.0);
            buckets.bucket(Some(bound), 3.0).and(buckets.count(3.0)).and(buckets.sum(9.0)).unwrap();
            buckets.finish_like(&mut layout).unwrap().bounds
        };
        let (first, second, other) = (read("5"), read("5.0"), read("7"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((&*first, &*other), (&[5][..], &[7][..]));
    }

    #[test]
    fn contradictions_are_named() {
        let with = |lines: &[(&str, f64)], count: Option<f64>, sum: f64| {
            let mut buckets = Buckets::new(1.0);
            for (bound, value) in lines {
                buckets.bucket(Some(bound), *value)?;
            }
            count.map_or(Ok(()), |count| buckets.count(count))?;
            buckets.sum(sum)?;
            buckets.finish()
        };
        assert_eq!(with(&[("1", 5.0), ("2", 4.0)], Some(5.0), 1.0), Err(Flaw::NotCumulative));
        assert_eq!(with(&[("1", 5.0), ("+Inf", 5.0)], Some(6.0), 1.0), Err(Flaw::Total));
        assert_eq!(with(&[("1", 5.0)], Some(4.0), 1.0), Err(Flaw::Total));
        assert_eq!(with(&[("1", 5.0)], None, 1.0), Err(Flaw::NoTotal));
        assert_eq!(with(&[("1", f64::NAN)], None, 1.0), Err(Flaw::Value));
        assert_eq!(with(&[("-1", 1.0)], None, 1.0), Err(Flaw::Bound));
        assert_eq!(with(&[("1", 1.0), ("1", 2.0)], Some(2.0), 1.0), Err(Flaw::Twice));
        assert_eq!(with(&[("1", 1.0)], Some(1.0), f64::INFINITY), Err(Flaw::Value));
    }

    #[test]
    fn different_layouts_add_on_what_they_share() {
        let other =
            Histogram { bounds: [500_000, 900_000].into(), cumulative: vec![1, 2, 3], sum: 1 };
        let sum = add(&small(), &other);
        assert_eq!(
            (sum.bounds.as_ref(), sum.cumulative.as_slice()),
            (&[500_000][..], &[8, 12][..])
        );
        assert_eq!(sum.sum, 4_000_001);
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_stay_finite(counts in prop::collection::vec(0_u64..1_000, 1..20), q in 0.0..1.0_f64) {
            let cumulative: Vec<u64> = counts.iter().scan(0, |sum, n| { *sum += n; Some(*sum) }).collect();
            let bounds: Arc<[u64]> = (1..cumulative.len() as u64).map(|n| n * n).collect();
            let histogram = Histogram { bounds, cumulative, sum: 0 };
            let value = |quantile| match quantile {
                Quantile::Unknown => -1.0,
                Quantile::At(value) | Quantile::AtLeast(value) => value,
            };
            let (low, high) = (value(quantile(&histogram, q / 2.0)), value(quantile(&histogram, q)));
            prop_assert!(low <= high && high.is_finite());
        }
    }
}
