//! What an engine counts, and the scrape that shows it.
//!
//! Buckets are vLLM 0.32's defaults. Gauges are published at the end of a step, as vLLM does, so
//! they stand still while no step runs. Requests that the client gave up vanish from everything
//! but `http_requests`, as they do there.
//!
//! Worked number: a step of 20 ms with 64 decoding sequences adds 64 observations to the bucket
//! `le = 25 ms` of the inter-token latency, with one search.

use spillgate_core::observation::{EngineSample, Histogram};
use spillgate_core::units::{Picos, Ppm, Tokens};
use std::sync::{Arc, LazyLock};

const PICOS_PER_MICRO: u64 = 1_000_000;

/// Bucket bounds, shared by all engines.
struct Bounds {
    ttft: Arc<[u64]>,
    itl: Arc<[u64]>,
    queue: Arc<[u64]>,
    lengths: Arc<[u64]>,
}

static BOUNDS: LazyLock<Bounds> = LazyLock::new(|| {
    let millis = |list: &[u64]| list.iter().map(|ms| ms * 1_000).collect();
    Bounds {
        ttft: millis(&[
            1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000,
            20_000, 40_000, 80_000, 160_000, 640_000, 2_560_000,
        ]),
        itl: millis(&[
            10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000,
            20_000, 40_000, 80_000,
        ]),
        queue: millis(&[
            300, 500, 800, 1_000, 1_500, 2_000, 2_500, 5_000, 10_000, 15_000, 20_000, 30_000,
            40_000, 50_000, 60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 7_680_000,
        ]),
        lengths: (0..6)
            .flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)))
            .filter(|bound| *bound <= 200_000)
            .collect(),
    }
});

/// A histogram while it is being filled: counts by bucket, cumulated only when shown.
#[derive(Clone, Debug)]
struct Filling {
    bounds: Arc<[u64]>,
    counts: Vec<u64>,
    sum: u128,
    /// Observed units in one unit of the bounds.
    scale: u64,
}

impl Filling {
    fn new(bounds: &Arc<[u64]>, scale: u64) -> Self {
        Self { bounds: Arc::clone(bounds), counts: vec![0; bounds.len() + 1], sum: 0, scale }
    }

    fn observe(&mut self, value: u64, times: u64) {
        // Rounded up, so that 10 ms and a picosecond does not count as at or below 10 ms.
        let value_up = value.div_ceil(self.scale);
        self.counts[self.bounds.partition_point(|bound| *bound < value_up)] += times;
        self.sum += u128::from(value) * u128::from(times);
    }

    fn show(&self) -> Histogram {
        let running = self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        });
        Histogram {
            bounds: Arc::clone(&self.bounds),
            cumulative: running.collect(),
            sum: u64::try_from(self.sum / u128::from(self.scale)).unwrap_or(u64::MAX),
        }
    }
}

/// Gauges as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gauges {
    pub(super) waiting: u64,
    pub(super) deferred: u64,
    pub(super) running: u64,
    pub(super) kv_used: u64,
}

/// Everything that one engine counts.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    pub(super) gauges: Gauges,
    pub(super) prompt_tokens: u64,
    pub(super) computed_tokens: u64,
    pub(super) generation_tokens: u64,
    pub(super) finished: u64,
    pub(super) aborted: u64,
    pub(super) preempted: u64,
    ttft: Filling,
    itl: Filling,
    queue: Filling,
    prompt_lengths: Filling,
    output_lengths: Filling,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            gauges: Gauges::default(),
            prompt_tokens: 0,
            computed_tokens: 0,
            generation_tokens: 0,
            finished: 0,
            aborted: 0,
            preempted: 0,
            ttft: Filling::new(&BOUNDS.ttft, PICOS_PER_MICRO),
            itl: Filling::new(&BOUNDS.itl, PICOS_PER_MICRO),
            queue: Filling::new(&BOUNDS.queue, PICOS_PER_MICRO),
            prompt_lengths: Filling::new(&BOUNDS.lengths, 1),
            output_lengths: Filling::new(&BOUNDS.lengths, 1),
        }
    }
}

impl Metrics {
    /// A first token, `waited` after the request came to this engine.
    pub(super) fn first_token(&mut self, waited: Picos) {
        self.ttft.observe(waited.0, 1);
    }

    /// `times` tokens that came `gap` after their predecessors.
    pub(super) fn next_tokens(&mut self, gap: Picos, times: u64) {
        if times > 0 {
            self.itl.observe(gap.0, times);
        }
    }

    /// A request that ended here and was not aborted.
    pub(super) fn finish(&mut self, queued: Picos, input: u32, output: u32) {
        self.finished += 1;
        self.queue.observe(queued.0, 1);
        self.prompt_lengths.observe(u64::from(input), 1);
        self.output_lengths.observe(u64::from(output), 1);
    }

    /// The scrape.
    pub(super) fn sample(&self, epoch: u64, kv_capacity: u64) -> EngineSample {
        let used = u128::from(self.gauges.kv_used) * 1_000_000;
        let ppm = used / u128::from(kv_capacity.max(1));
        EngineSample {
            rank: 0,
            epoch,
            awake: Some(true),
            waiting: Some(self.gauges.waiting),
            deferred: Some(self.gauges.deferred),
            running: Some(self.gauges.running),
            kv_used: Some(Ppm(u32::try_from(ppm).unwrap_or(u32::MAX))),
            kv_capacity: Some(Tokens(kv_capacity)),
            prompt_tokens: Some(self.prompt_tokens),
            computed_tokens: Some(self.computed_tokens),
            generation_tokens: Some(self.generation_tokens),
            finished: Some(self.finished),
            preempted: Some(self.preempted),
            // Counts queue limits, and none is set: what cannot ever fit is a client's error.
            rejected: Some(0),
            http_requests: Some(self.finished + self.aborted),
            ttft: Some(self.ttft.show()),
            itl: Some(self.itl.show()),
            queue: Some(self.queue.show()),
            prompt_lengths: Some(self.prompt_lengths.show()),
            output_lengths: Some(self.output_lengths.show()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_vllm() {
        assert_eq!(BOUNDS.ttft.len(), 22);
        assert_eq!(BOUNDS.itl.len(), 19);
        assert_eq!(BOUNDS.queue.len(), 21);
        assert_eq!(BOUNDS.lengths.first(), Some(&1));
        assert_eq!(BOUNDS.lengths.last(), Some(&200_000));
        assert!(BOUNDS.lengths.is_sorted() && BOUNDS.ttft.is_sorted());
    }

    #[test]
    fn a_value_on_a_bound_belongs_to_it_and_a_picosecond_more_does_not() {
        let mut itl = Filling::new(&BOUNDS.itl, PICOS_PER_MICRO);
        itl.observe(10_000_000_000, 3);
        itl.observe(10_000_000_001, 2);
        itl.observe(u64::MAX, 1);
        let shown = itl.show();
        assert_eq!(shown.cumulative[..2], [3, 5]);
        assert_eq!(shown.count(), 6);
    }

    #[test]
    fn the_sum_is_exact_in_microseconds() {
        let mut ttft = Filling::new(&BOUNDS.ttft, PICOS_PER_MICRO);
        ttft.observe(1_500_000, 3);
        assert_eq!(ttft.show().sum, 4);
    }
}
