//! Differences of counters: what engines did between two ticks.
//!
//! Absence adds nothing: an engine that does not count finished requests contributes no finished
//! requests, and a mean over nothing is unknown, never zero.
//!
//! Worked number: a prompt-length histogram with 10 prompts in (500, 1 000] has second moment
//! 10 * (500^2 + 500*1000 + 1000^2) / 3 = 5.8 million, scaled so that the first moment agrees with
//! the exact sum.

use crate::observation::{EngineSample, Histogram};
use serde::{Deserialize, Serialize};

/// One engine's counters as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    first_tokens: Option<u64>,
    gaps: Option<u64>,
    gap_sum: u64,
    prompt: Option<u64>,
    computed: Option<u64>,
    generated: Option<u64>,
    finished: Option<u64>,
    rejected: Option<u64>,
    prompts: Option<u64>,
    prompt_sum: u64,
    /// First and second moment by buckets; linear in the counts, so differences are exact in them.
    prompt_moments: (f64, f64),
}

/// What happened in an interval, summed over engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// First tokens: requests whose prefill ended.
    pub first_tokens: u64,
    /// Gaps between tokens.
    pub gaps: u64,
    /// Their sum, microseconds.
    pub gap_sum: u64,
    /// Prompt tokens of prefills that ended.
    pub prompt: u64,
    /// Of those, computed here.
    pub computed: u64,
    /// Prompt tokens on engines that also say how many they computed.
    pub prompt_where_computed: u64,
    /// Tokens generated.
    pub generated: u64,
    /// Requests finished.
    pub finished: u64,
    /// Requests refused by engines.
    pub rejected: u64,
    /// Prompts of finished requests.
    pub prompts: u64,
    /// Sum of their lengths.
    pub prompt_sum: u64,
    /// Sum of their squared lengths, estimated from buckets.
    pub prompt_squares: f64,
}

impl Totals {
    /// Reads an engine's cumulative sample.
    pub(crate) fn of(engine: &EngineSample) -> Self {
        let count = |h: &Option<Histogram>| h.as_ref().map(Histogram::count);
        let sum = |h: &Option<Histogram>| h.as_ref().map_or(0, |h| h.sum);
        Self {
            first_tokens: count(&engine.ttft),
            gaps: count(&engine.itl),
            gap_sum: sum(&engine.itl),
            prompt: engine.prompt_tokens,
            computed: engine.computed_tokens,
            generated: engine.generation_tokens,
            finished: engine.finished,
            rejected: engine.rejected,
            prompts: count(&engine.prompt_lengths),
            prompt_sum: sum(&engine.prompt_lengths),
            prompt_moments: engine.prompt_lengths.as_ref().map_or((0.0, 0.0), moments),
        }
    }
}

impl Flow {
    /// Adds what lies between `before` and `now`; after a restart all of `now` is new. Says whether
    /// there was one, known or told by a counter that fell.
    pub(crate) fn add(&mut self, now: &Totals, before: &Totals, restarted: bool) -> bool {
        let fell = |now: Option<u64>, then: Option<u64>| matches!((now, then), (Some(n), Some(t)) if n < t);
        let restarted = restarted
            || fell(now.generated, before.generated)
            || fell(now.finished, before.finished)
            || fell(now.first_tokens, before.first_tokens)
            || fell(now.prompt, before.prompt);
        let zero = Totals {
            first_tokens: Some(0),
            gaps: Some(0),
            prompt: Some(0),
            computed: Some(0),
            generated: Some(0),
            finished: Some(0),
            rejected: Some(0),
            prompts: Some(0),
            ..Totals::default()
        };
        let before = if restarted { &zero } else { before };
        let since = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => 0,
        };
        grow(&mut self.first_tokens, since(now.first_tokens, before.first_tokens));
        grow(&mut self.gaps, since(now.gaps, before.gaps));
        grow(&mut self.gap_sum, now.gap_sum.saturating_sub(before.gap_sum));
        let prompt = since(now.prompt, before.prompt);
        grow(&mut self.prompt, prompt);
        if now.computed.is_some() {
            grow(&mut self.computed, since(now.computed, before.computed).min(prompt));
            grow(&mut self.prompt_where_computed, prompt);
        }
        grow(&mut self.generated, since(now.generated, before.generated));
        grow(&mut self.finished, since(now.finished, before.finished));
        grow(&mut self.rejected, since(now.rejected, before.rejected));
        grow(&mut self.prompts, since(now.prompts, before.prompts));
        let prompt_sum = now.prompt_sum.saturating_sub(before.prompt_sum);
        grow(&mut self.prompt_sum, prompt_sum);
        self.prompt_squares += squares(now.prompt_moments, before.prompt_moments, prompt_sum);
        restarted
    }

    /// Adds another interval or pool.
    pub(crate) fn merge(&mut self, other: &Self) {
        grow(&mut self.first_tokens, other.first_tokens);
        grow(&mut self.gaps, other.gaps);
        grow(&mut self.gap_sum, other.gap_sum);
        grow(&mut self.prompt, other.prompt);
        grow(&mut self.computed, other.computed);
        grow(&mut self.prompt_where_computed, other.prompt_where_computed);
        grow(&mut self.generated, other.generated);
        grow(&mut self.finished, other.finished);
        grow(&mut self.rejected, other.rejected);
        grow(&mut self.prompts, other.prompts);
        grow(&mut self.prompt_sum, other.prompt_sum);
        self.prompt_squares += other.prompt_squares;
    }
}

/// Adds without wrapping: a hostile counter must not turn a flood into a trickle.
const fn grow(into: &mut u64, by: u64) {
    *into = into.saturating_add(by);
}

/// First and second moment of a histogram, each bucket taken as uniform.
fn moments(histogram: &Histogram) -> (f64, f64) {
    let (mut first, mut second, mut below, mut low) = (0.0, 0.0, 0_u64, 0.0_f64);
    for (&bound, &upto) in histogram.bounds.iter().zip(&histogram.cumulative) {
        let high = bound as f64;
        let inside = upto.saturating_sub(below) as f64;
        first += inside * (low + high) / 2.0;
        second += inside * (low * low + low * high + high * high) / 3.0;
        below = upto;
        low = high;
    }
    let beyond = histogram.count().saturating_sub(below) as f64;
    (first + beyond * low, second + beyond * low * low)
}

/// Second moment of the difference, scaled so that its first moment is the exact sum.
fn squares(now: (f64, f64), before: (f64, f64), exact_sum: u64) -> f64 {
    let (first, second) = (now.0 - before.0, now.1 - before.1);
    if first > 0.0 && second > 0.0 {
        let scale = exact_sum as f64 / first;
        second * scale * scale
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    fn engine(generated: u64) -> Totals {
        Totals::of(&EngineSample { generation_tokens: Some(generated), ..EngineSample::default() })
    }

    #[test]
    fn a_restart_counts_what_the_new_process_did() {
        let mut flow = Flow::default();
        flow.add(&engine(126_000), &engine(120_000), false);
        assert_eq!(flow.generated, 6_000);
        assert!(flow.add(&engine(350), &engine(126_000), false));
        assert_eq!(flow.generated, 6_350);
        assert!(!flow.add(&engine(4_350), &engine(350), false));
        assert_eq!(flow.generated, 10_350);
    }

    #[test]
    fn a_counter_that_appears_is_not_a_jump() {
        let mut flow = Flow::default();
        flow.add(&engine(5_000), &Totals::default(), false);
        assert_eq!(flow.generated, 0);
    }

    #[test]
    fn squares_follow_the_exact_sum() {
        let bounds: Arc<[u64]> = Arc::from([500_u64, 1_000]);
        let lengths = Histogram { bounds, cumulative: alloc::vec![0, 10, 10], sum: 7_500 };
        let now = Totals::of(&EngineSample {
            prompt_lengths: Some(lengths.clone()),
            ..EngineSample::default()
        });
        let before = Totals::of(&EngineSample {
            prompt_lengths: Some(Histogram::empty(lengths.bounds)),
            ..EngineSample::default()
        });
        let mut flow = Flow::default();
        flow.add(&now, &before, false);
        assert!((flow.prompt_squares - 5_833_333.3).abs() < 1.0);
    }
}
