//! One engine's values while a page is read, and the canonical sample they become.
//!
//! Worked number: `waiting 60`, `reason="deferred" 58` and `kv_cache_usage_perc 0.985` become
//! `waiting: 60, deferred: 58, kv_used: 985_000 ppm`.

use super::dialect::{Family, Meaning};
use super::histogram::{self, Buckets};
use super::number::whole;
use spillgate_core::observation::{EngineSample, Histogram};
use spillgate_core::units::{Ppm, Tokens};
use std::sync::Arc;

/// The histograms that are read, and units of the sample in one unit of the page.
pub(crate) const HISTOGRAMS: [(Meaning, f64); 5] = [
    (Meaning::Ttft, 1e6),
    (Meaning::Itl, 1e6),
    (Meaning::Queue, 1e6),
    (Meaning::PromptLengths, 1.0),
    (Meaning::OutputLengths, 1.0),
];

/// A plain number of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Waiting,
    Deferred,
    Swapped,
    Running,
    KvUsed,
    Awake,
    Prompt,
    Computed,
    Generated,
    Finished,
    Preempted,
    Rejected,
    Http,
    PrefixHits,
    PrefixQueries,
}

const SLOTS: usize = 15;

impl Slot {
    /// Where a sample goes and with which value; `None` if its part is only told to people.
    pub(crate) fn of(
        meaning: Meaning,
        split: Option<&str>,
        value: f64,
        handlers: &[&str],
    ) -> Option<(Self, f64)> {
        let part = |wanted: &str, slot| (split == Some(wanted)).then_some((slot, value));
        match meaning {
            Meaning::Waiting => Some((Self::Waiting, value)),
            Meaning::WaitingByReason => part("deferred", Self::Deferred),
            Meaning::Swapped => Some((Self::Swapped, value)),
            Meaning::Running => Some((Self::Running, value)),
            Meaning::KvUsed => Some((Self::KvUsed, value)),
            Meaning::SleepState => part("awake", Self::Awake),
            Meaning::PromptTokens => Some((Self::Prompt, value)),
            Meaning::PromptBySource => part("local_compute", Self::Computed),
            Meaning::GenerationTokens => Some((Self::Generated, value)),
            // Aborts are not finished work; the family is there all the same.
            Meaning::Finished => {
                Some((Self::Finished, if split == Some("abort") { 0.0 } else { value }))
            }
            Meaning::Preempted => Some((Self::Preempted, value)),
            Meaning::Rejected => Some((Self::Rejected, value)),
            // Probes and scrapes are no demand.
            Meaning::HttpRequests => {
                let demand = split.is_none_or(|handler| handlers.contains(&handler));
                Some((Self::Http, if demand { value } else { 0.0 }))
            }
            Meaning::PrefixHits => Some((Self::PrefixHits, value)),
            Meaning::PrefixQueries => Some((Self::PrefixQueries, value)),
            _ => None,
        }
    }

    /// Several series make one number: reasons, handlers, states.
    pub(crate) const fn adds(self) -> bool {
        matches!(self, Self::Finished | Self::Rejected | Self::Http)
    }
}

/// A value and the family it came from.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) family: &'static Family,
    pub(crate) value: T,
    pub(crate) flawed: bool,
}

impl<T> Held<T> {
    pub(crate) const fn new(family: &'static Family, value: T) -> Self {
        Self { family, value, flawed: false }
    }
}

/// What was read of one engine and model so far.
#[derive(Debug, Default)]
pub(crate) struct Engine<'t> {
    pub(crate) rank: u32,
    pub(crate) model: &'t str,
    pub(crate) slots: [Option<Held<f64>>; SLOTS],
    pub(crate) histograms: [Option<Held<Buckets>>; 5],
    pub(crate) kv_capacity: Option<u64>,
    pub(crate) created: Option<u64>,
}

impl Engine<'_> {
    pub(crate) fn value(&self, slot: Slot) -> Option<f64> {
        self.slots[slot as usize].as_ref().map(|held| held.value)
    }

    fn count(&self, slot: Slot) -> Option<u64> {
        self.value(slot).and_then(|value| whole(value, 1.0))
    }

    /// Adds what was said for the whole server to its first engine.
    pub(crate) fn give(&self, sample: &mut EngineSample) {
        sample.rejected = plus(sample.rejected, self.count(Slot::Rejected));
        sample.http_requests = plus(sample.http_requests, self.count(Slot::Http));
    }

    /// Turns it into the sample of its rank, adding to the one at the end of `samples` if that is
    /// the same rank with another model. `layouts` are the bounds of the engine before.
    pub(crate) fn into_samples(
        mut self,
        start: u64,
        layouts: &mut [Arc<[u64]>; 5],
        samples: &mut Vec<EngineSample>,
        flaws: &mut Vec<String>,
    ) {
        let held = std::mem::take(&mut self.histograms).into_iter().zip(layouts);
        let mut histograms = held.map(|(held, layout)| {
            let held = held?;
            if held.flawed {
                return None; // the line was named when it was read
            }
            match held.value.finish_like(layout) {
                Ok(histogram) => Some(histogram),
                Err(flaw) => {
                    let (name, rank) = (held.family.name, self.rank);
                    flaws.push(format!(
                        "{name} of engine {rank}: {flaw}; the histogram is left out"
                    ));
                    None
                }
            }
        });
        let mut next = || histograms.next().flatten();
        let (ttft, itl, queue, prompt_lengths, output_lengths) =
            (next(), next(), next(), next(), next());
        let kv_used = self.value(Slot::KvUsed).and_then(|share| whole(share, 1e6));
        let sample = EngineSample {
            rank: self.rank,
            epoch: if start > 0 { start } else { self.created.unwrap_or(0) },
            awake: self.value(Slot::Awake).map(|state| state > 0.5),
            waiting: plus(self.count(Slot::Waiting), self.count(Slot::Swapped)),
            deferred: self.count(Slot::Deferred),
            running: self.count(Slot::Running),
            kv_used: kv_used.map(|ppm| Ppm(u32::try_from(ppm).unwrap_or(u32::MAX))),
            kv_capacity: self.kv_capacity.map(Tokens),
            prompt_tokens: self.count(Slot::Prompt),
            computed_tokens: self.count(Slot::Computed),
            generation_tokens: self.count(Slot::Generated),
            finished: self.count(Slot::Finished),
            preempted: self.count(Slot::Preempted),
            rejected: self.count(Slot::Rejected),
            http_requests: self.count(Slot::Http),
            ttft,
            itl,
            queue,
            prompt_lengths,
            output_lengths,
        };
        match samples.last_mut() {
            Some(last) if last.rank == sample.rank => merge(last, sample),
            _ => samples.push(sample),
        }
    }
}

/// Two models on one rank: counts add, pressure is the larger, the older start counts.
fn merge(into: &mut EngineSample, other: EngineSample) {
    let both = |left: Option<Histogram>, right: Option<Histogram>| match (left, right) {
        (Some(left), Some(right)) => Some(histogram::add(&left, &right)),
        (left, right) => left.or(right),
    };
    let left = std::mem::take(into);
    let epochs = [left.epoch, other.epoch].into_iter().filter(|epoch| *epoch > 0);
    *into = EngineSample {
        rank: left.rank,
        epoch: epochs.min().unwrap_or(0),
        awake: left.awake.max(other.awake),
        waiting: plus(left.waiting, other.waiting),
        deferred: plus(left.deferred, other.deferred),
        running: plus(left.running, other.running),
        kv_used: left.kv_used.max(other.kv_used),
        kv_capacity: left.kv_capacity.max(other.kv_capacity),
        prompt_tokens: plus(left.prompt_tokens, other.prompt_tokens),
        computed_tokens: plus(left.computed_tokens, other.computed_tokens),
        generation_tokens: plus(left.generation_tokens, other.generation_tokens),
        finished: plus(left.finished, other.finished),
        preempted: plus(left.preempted, other.preempted),
        rejected: plus(left.rejected, other.rejected),
        http_requests: plus(left.http_requests, other.http_requests),
        ttft: both(left.ttft, other.ttft),
        itl: both(left.itl, other.itl),
        queue: both(left.queue, other.queue),
        prompt_lengths: both(left.prompt_lengths, other.prompt_lengths),
        output_lengths: both(left.output_lengths, other.output_lengths),
    };
}

fn plus(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.saturating_add(right)),
        (left, right) => left.or(right),
    }
}
