//! Small windows over time: the only memory of the past that stages keep.
//!
//! Worked number: a [`Peak`] over 5 minutes fed with needs 4, 6, 3 at minutes 0, 1 and 2 says 6
//! until minute 6, then 3.

use crate::units::{Span, Stamp};
use alloc::collections::VecDeque;
use serde::{Deserialize, Serialize};

/// The largest value seen within a trailing window. Amortised O(1) a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peak {
    /// Falling values in time order: the first is the peak.
    falling: VecDeque<(Stamp, u64)>,
}

impl Peak {
    /// Adds a sample and forgets what is older than `window`, and what a clock that went back has
    /// left in the future.
    pub(crate) fn push(&mut self, now: Stamp, value: u64, window: Span) {
        self.falling.retain(|&(at, _)| at <= now);
        while self.falling.back().is_some_and(|&(_, v)| v <= value) {
            self.falling.pop_back();
        }
        self.falling.push_back((now, value));
        while self.falling.front().is_some_and(|&(at, _)| now.since(at) > window) {
            self.falling.pop_front();
        }
    }

    /// The largest value in the window as of the last push.
    pub(crate) fn max(&self) -> u64 {
        self.falling.front().map_or(0, |&(_, v)| v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_clock_that_goes_back_leaves_no_peak_standing() {
        let mut peak = Peak::default();
        peak.push(Stamp(86_400_000), 900, Span::secs(15));
        peak.push(Stamp(0), 3, Span::secs(15));
        assert_eq!(peak.max(), 3);
    }

    proptest! {
        #[test]
        fn peak_is_the_maximum_of_the_window(values in prop::collection::vec(0_u64..50, 1..60), window in 0_u64..20) {
            let mut peak = Peak::default();
            let mut all: Vec<(u64, u64)> = Vec::new();
            for (t, v) in values.into_iter().enumerate() {
                let now = t as u64;
                all.push((now, v));
                peak.push(Stamp(now), v, Span(window));
                let expected = all.iter().filter(|(at, _)| now - at <= window).map(|&(_, v)| v).max();
                prop_assert_eq!(Some(peak.max()), expected);
            }
        }
    }
}
