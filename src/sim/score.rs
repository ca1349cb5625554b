//! Scores a run: which requests met their targets, and how long they took.
//!
//! Shares are of all requests, failed ones counted as misses, so that dropping slow requests helps
//! nobody. Targets are compared in integers; quantiles are exact (nearest rank), found by selection
//! rather than by sorting.
//!
//! Worked number: 100 requests, 97 within both targets, 2 slow and 1 failed: attainment 0.97. If 10
//! of the 97 were spilled, `attainment_local` is 87 / 90 = 0.967.

use super::request::{Outcome, Request};
use serde::Serialize;
use spillgate_core::policy::{Objectives, TtftTarget};
use spillgate_core::units::{Micros, Picos, Tokens};

/// What a request is held to. A target that is not there is met by every request that was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Time to first token.
    pub ttft: Option<TtftTarget>,
    /// Mean time between tokens.
    pub itl: Option<Micros>,
}

impl From<&Objectives> for Targets {
    fn from(objectives: &Objectives) -> Self {
        Self { ttft: objectives.ttft, itl: objectives.itl }
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Requests of the trace.
    pub requests: u64,
    /// Served, here or outside.
    pub completed: u64,
    /// Not served, for whatever reason.
    pub failed: u64,
    /// Of the completed ones, served outside.
    pub overflowed: u64,
    /// Shares within target.
    pub slo: Slo,
    /// Time to first token of served requests.
    pub ttft_ms: Spread,
    /// Mean time between tokens of served requests with two tokens or more.
    pub itl_ms: Spread,
}

/// Shares of requests within target, 0 to 1; `None` where there was no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slo {
    /// Of all requests, within both targets.
    pub attainment: Option<f64>,
    /// Of all requests, within the TTFT target.
    pub ttft: Option<f64>,
    /// Of all requests, within the ITL target; answers of one token or none pass.
    pub itl: Option<f64>,
    /// Of those that were not spilled, within both targets.
    pub attainment_local: Option<f64>,
}

/// Mean and quantiles in milliseconds; `None` where there is no sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Half of the samples are at or below.
    pub p50: Option<f64>,
    /// 90 % are at or below.
    pub p90: Option<f64>,
    /// 95 % are at or below.
    pub p95: Option<f64>,
    /// 99 % are at or below.
    pub p99: Option<f64>,
}

/// Scores the outcomes of requests, by position; a request without an outcome has failed.
#[must_use]
pub fn score(requests: &[Request], outcomes: &[Outcome], targets: Targets) -> Score {
    let mut tally = Tally::default();
    let mut first_tokens = Vec::with_capacity(requests.len());
    let mut between_tokens = Vec::with_capacity(requests.len());
    let open = std::iter::repeat(&Outcome::Open);
    for (request, outcome) in requests.iter().zip(outcomes.iter().chain(open)) {
        let (first, last, external) = match *outcome {
            Outcome::Local { first, last } => (first, last, false),
            Outcome::External { first, last } => (first, last, true),
            Outcome::Open | Outcome::Failed(_) => continue,
        };
        let to_first = first.less(request.at);
        let generating = last.less(first);
        tally.served(targets.judge(request, to_first, generating), external);
        first_tokens.push(to_first.0);
        if let Some(gaps @ 1..) = request.output.checked_sub(1) {
            between_tokens.push(generating.0 / u64::from(gaps));
        }
    }
    tally.score(requests.len() as u64, Spread::of(first_tokens), Spread::of(between_tokens))
}

impl Targets {
    /// Whether TTFT and ITL are within target.
    fn judge(self, request: &Request, to_first: Picos, generating: Picos) -> (bool, bool) {
        let in_time = self.ttft.is_none_or(|target| {
            to_first <= target.for_input(Tokens(u64::from(request.input))).picos()
        });
        let gaps = u128::from(request.output.saturating_sub(1));
        let fluent = gaps == 0
            || self.itl.is_none_or(|target| {
                u128::from(generating.0) <= u128::from(target.picos().0) * gaps
            });
        (in_time, fluent)
    }
}

/// Counts of served requests.
#[derive(Default)]
struct Tally {
    completed: u64,
    overflowed: u64,
    in_time: u64,
    fluent: u64,
    both: u64,
    both_local: u64,
}

impl Tally {
    fn served(&mut self, (in_time, fluent): (bool, bool), external: bool) {
        self.completed += 1;
        self.overflowed += u64::from(external);
        self.in_time += u64::from(in_time);
        self.fluent += u64::from(fluent);
        self.both += u64::from(in_time && fluent);
        self.both_local += u64::from(in_time && fluent && !external);
    }

    fn score(&self, requests: u64, ttft_ms: Spread, itl_ms: Spread) -> Score {
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        Score {
            requests,
            completed: self.completed,
            failed: requests - self.completed,
            overflowed: self.overflowed,
            slo: Slo {
                attainment: share(self.both, requests),
                ttft: share(self.in_time, requests),
                itl: share(self.fluent, requests),
                attainment_local: share(self.both_local, requests - self.overflowed),
            },
            ttft_ms,
            itl_ms,
        }
    }
}

impl Spread {
    /// The spread of samples in picoseconds.
    fn of(mut samples: Vec<u64>) -> Self {
        if samples.is_empty() {
            return Self::default();
        }
        let count = samples.len();
        let sum: u128 = samples.iter().map(|sample| u128::from(*sample)).sum();
        // The largest first: each quantile leaves everything below it on its left.
        let mut unsorted = samples.as_mut_slice();
        let mut quantile = |percent: usize| {
            let rank = (count * percent).div_ceil(100).max(1);
            let rest = std::mem::take(&mut unsorted);
            // Ranks that fall together: the slice already ends at its largest.
            let (_, value, _) = rest.select_nth_unstable(rank - 1);
            let value = *value;
            unsorted = &mut rest[..rank];
            Some(value as f64 / 1e9)
        };
        let (p99, p95, p90, p50) = (quantile(99), quantile(95), quantile(90), quantile(50));
        Self { mean: Some(sum as f64 / count as f64 / 1e9), p50, p90, p95, p99 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::request::Failure;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000_000;

    fn request(at_ms: u64, input: u32, output: u32) -> Request {
        Request { at: Picos(at_ms * MS), input, output }
    }

    fn local(first_ms: u64, last_ms: u64) -> Outcome {
        Outcome::Local { first: Picos(first_ms * MS), last: Picos(last_ms * MS) }
    }

    fn external(first_ms: u64, last_ms: u64) -> Outcome {
        Outcome::External { first: Picos(first_ms * MS), last: Picos(last_ms * MS) }
    }

    /// TTFT 1 s and 200 ms more per thousand input tokens; ITL 50 ms.
    const TARGETS: Targets = Targets {
        ttft: Some(TtftTarget { base: Micros(1_000_000), per_kilotoken: Micros(200_000) }),
        itl: Some(Micros(50_000)),
    };

    #[test]
    fn shares_are_of_all_requests_and_failures_are_misses() {
        let requests = vec![request(0, 1_000, 11); 5];
        let outcomes = [
            local(1_200, 1_700),  // both exactly on target
            local(1_201, 1_300),  // first token late
            external(600, 1_101), // ITL 50.1 ms
            external(600, 1_000), // both met
            Outcome::Failed(Failure::TimedOut),
        ];
        let score = score(&requests, &outcomes, TARGETS);
        assert_eq!((score.requests, score.completed, score.failed, score.overflowed), (5, 4, 1, 2));
        assert_eq!(score.slo.attainment, Some(0.4));
        assert_eq!(score.slo.ttft, Some(0.6));
        assert_eq!(score.slo.itl, Some(0.6));
        assert_eq!(score.slo.attainment_local, Some(1.0 / 3.0));
    }

    #[test]
    fn short_answers_pass_the_itl_target_and_give_no_sample() {
        let requests = [request(0, 1, 0), request(0, 1, 1)];
        let score = score(&requests, &[local(1, 9_000), local(1, 9_000)], TARGETS);
        assert_eq!(score.slo.itl, Some(1.0));
        assert_eq!(score.itl_ms, Spread::default());
        assert_eq!(score.ttft_ms.p50, Some(1.0));
    }

    #[test]
    fn a_request_without_an_outcome_has_failed() {
        let requests = [request(0, 1, 2), request(0, 1, 2)];
        let one = score(&requests, &[local(1, 2)], Targets::default());
        assert_eq!((one.completed, one.failed, one.slo.attainment), (1, 1, Some(0.5)));
        let none = score(&[], &[], Targets::default());
        assert_eq!((none.requests, none.slo.attainment, none.ttft_ms.mean), (0, None, None));
    }

    #[test]
    fn everything_spilled_leaves_no_local_attainment() {
        let all = score(&[request(0, 1, 2)], &[external(1, 2)], TARGETS);
        assert_eq!((all.slo.attainment, all.slo.attainment_local), (Some(1.0), None));
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let spread = Spread::of((1..=200).rev().map(|ms| ms * MS).collect());
        assert_eq!(spread.mean, Some(100.5));
        let quantiles = [spread.p50, spread.p90, spread.p95, spread.p99];
        assert_eq!(quantiles, [Some(100.0), Some(180.0), Some(190.0), Some(198.0)]);
        let one = Spread::of(vec![7 * MS]);
        assert_eq!([one.mean, one.p50, one.p99], [Some(7.0); 3]);
    }

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(samples in proptest::collection::vec(0_u64..1 << 50, 1..300)) {
            let spread = Spread::of(samples.clone());
            let mut sorted = samples;
            sorted.sort_unstable();
            for (percent, got) in [(50, spread.p50), (90, spread.p90), (95, spread.p95), (99, spread.p99)] {
                let rank = (sorted.len() * percent).div_ceil(100);
                prop_assert_eq!(got, Some(sorted[rank - 1] as f64 / 1e9));
            }
        }
    }
}
