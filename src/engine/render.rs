//! Writes a vLLM page from samples: what a simulated engine would say over HTTP.
//!
//! `read_page(render(samples))` gives the samples back, as long as ranks ascend and numbers stay
//! below 2^50 (a page holds doubles). What a sample does not say is not written. Families come in
//! today's names from the dialect's table.
//!
//! Worked number: `waiting: Some(60), deferred: Some(58)` is written as
//! `vllm:num_requests_waiting 60.0` and by reason as `capacity 2.0` and `deferred 58.0`.

use super::dialect::{Family, Kind, Meaning};
use super::vllm::VLLM;
use spillgate_core::observation::{EngineSample, Histogram};
use std::fmt::{self, Display, Write};

/// A page with these samples, all of one model.
#[must_use]
pub fn render(samples: &[EngineSample], model: &str) -> String {
    let mut page = Writer { out: String::new(), samples, model: escape(model) };
    // Writing to a String cannot fail.
    let _ = page.write();
    page.out
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Millionths as a decimal of whole units: 1 500 000 is `1.500000`.
struct Millionths(u64);

impl Display for Millionths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Milliseconds as decimal seconds.
struct Millis(u64);

impl Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

struct Writer<'s> {
    out: String,
    samples: &'s [EngineSample],
    model: String,
}

type Field = fn(&EngineSample) -> Option<u64>;
type Lengths = fn(&EngineSample) -> Option<&Histogram>;

/// A split count: its field, the label value of that field, and the rest of the whole with the
/// label value that the rest goes under.
type Part = (Meaning, Field, &'static str, Option<(&'static str, Field)>);

const COUNTS: &[(Meaning, Field)] = &[
    (Meaning::Running, |sample| sample.running),
    (Meaning::Waiting, |sample| sample.waiting),
    (Meaning::PromptTokens, |sample| sample.prompt_tokens),
    (Meaning::GenerationTokens, |sample| sample.generation_tokens),
    (Meaning::Preempted, |sample| sample.preempted),
];

const PARTS: &[Part] = &[
    (
        Meaning::WaitingByReason,
        |sample| sample.deferred,
        "deferred",
        Some(("capacity", |sample| sample.waiting)),
    ),
    (
        Meaning::PromptBySource,
        |sample| sample.computed_tokens,
        "local_compute",
        Some(("local_cache_hit", |sample| sample.prompt_tokens)),
    ),
    (Meaning::Finished, |sample| sample.finished, "stop", None),
];

const SERVER: &[Part] = &[
    (Meaning::Rejected, |sample| sample.rejected, "max_num_queued_reqs", None),
    (Meaning::HttpRequests, |sample| sample.http_requests, "/v1/chat/completions", None),
];

const SECONDS: &[(Meaning, Lengths)] = &[
    (Meaning::Ttft, |sample| sample.ttft.as_ref()),
    (Meaning::Itl, |sample| sample.itl.as_ref()),
    (Meaning::Queue, |sample| sample.queue.as_ref()),
];

const TOKENS: &[(Meaning, Lengths)] = &[
    (Meaning::PromptLengths, |sample| sample.prompt_lengths.as_ref()),
    (Meaning::OutputLengths, |sample| sample.output_lengths.as_ref()),
];

impl Writer<'_> {
    fn write(&mut self) -> fmt::Result {
        self.start()?;
        for (meaning, field) in COUNTS {
            self.family(*meaning, |page, family, sample| match field(sample) {
                Some(count) => page.line(family.name, sample, "", format_args!("{count}.0")),
                None => Ok(()),
            })?;
        }
        self.family(Meaning::KvUsed, |page, family, sample| match sample.kv_used {
            Some(ppm) => page.line(family.name, sample, "", Millionths(u64::from(ppm.0))),
            None => Ok(()),
        })?;
        self.family(Meaning::SleepState, Self::sleep)?;
        self.family(Meaning::CacheConfig, |page, family, sample| {
            let name = family.name;
            let capacity = sample.kv_capacity.map_or("None".to_owned(), |size| size.0.to_string());
            let rank = sample.rank;
            writeln!(
                page.out,
                "{name}{{engine=\"{rank}\",kv_cache_size_tokens=\"{capacity}\"}} 1.0"
            )
        })?;
        for part in PARTS {
            self.family(part.0, |page, family, sample| page.part(part, family, sample))?;
        }
        for part in SERVER {
            self.server(part)?;
        }
        for (meaning, field) in SECONDS {
            self.family(*meaning, |page, family, sample| match field(sample) {
                Some(histogram) => page.histogram(family, sample, histogram, Millionths),
                None => Ok(()),
            })?;
        }
        for (meaning, field) in TOKENS {
            self.family(*meaning, |page, family, sample| match field(sample) {
                Some(histogram) => page.histogram(family, sample, histogram, |tokens| tokens),
                None => Ok(()),
            })?;
        }
        Ok(())
    }

    /// One process start for all engines; creation times where they started apart.
    fn start(&mut self) -> fmt::Result {
        let epochs = || self.samples.iter().map(|sample| sample.epoch);
        let Some(first) = epochs().next() else { return Ok(()) };
        if epochs().all(|epoch| epoch == first) {
            if first > 0 {
                self.out.push_str("# TYPE process_start_time_seconds gauge\n");
                writeln!(self.out, "process_start_time_seconds {}", Millis(first))?;
            }
            return Ok(());
        }
        self.out.push_str("# TYPE vllm:num_preemptions_created gauge\n");
        for sample in self.samples.iter().filter(|sample| sample.epoch > 0) {
            self.line("vllm:num_preemptions_created", sample, "", Millis(sample.epoch))?;
        }
        Ok(())
    }

    /// The head of a family and whatever `each` writes for each sample.
    fn family(
        &mut self,
        meaning: Meaning,
        each: impl Fn(&mut Self, &Family, &EngineSample) -> fmt::Result,
    ) -> fmt::Result {
        let Some(family) = VLLM.current(meaning) else { return Ok(()) };
        let kind = match family.kind {
            Kind::Gauge | Kind::Info => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        writeln!(self.out, "# TYPE {} {kind}", family.name)?;
        self.samples.iter().try_for_each(|sample| each(self, family, sample))
    }

    /// One line of one engine; `label` is empty or ends in a comma.
    fn line(
        &mut self,
        name: &str,
        sample: &EngineSample,
        label: impl Display,
        value: impl Display,
    ) -> fmt::Result {
        let (rank, model) = (sample.rank, &self.model);
        writeln!(self.out, "{name}{{engine=\"{rank}\",{label}model_name=\"{model}\"}} {value}")
    }

    fn sleep(&mut self, family: &Family, sample: &EngineSample) -> fmt::Result {
        let Some(awake) = sample.awake else { return Ok(()) };
        for (state, is) in [("awake", awake), ("weights_offloaded", !awake), ("discard_all", false)]
        {
            let label = format_args!("sleep_state=\"{state}\",").to_string();
            self.line(family.name, sample, label, format_args!("{}.0", u8::from(is)))?;
        }
        Ok(())
    }

    fn part(&mut self, part: &Part, family: &Family, sample: &EngineSample) -> fmt::Result {
        let (_, field, value, rest) = part;
        let (Some(count), Some(label)) = (field(sample), family.split) else { return Ok(()) };
        if let Some((other, whole)) = rest {
            let rest = whole(sample).unwrap_or(0).saturating_sub(count);
            let label = format!("{label}=\"{other}\",");
            self.line(family.name, sample, label, format_args!("{rest}.0"))?;
        }
        self.line(family.name, sample, format!("{label}=\"{value}\","), format_args!("{count}.0"))
    }

    /// Refusals and HTTP answers: without a rank, as an engine writes them, if only the first
    /// sample says them; with one, if several do.
    fn server(&mut self, part: &Part) -> fmt::Result {
        let (meaning, field, value, _) = part;
        let mut later = self.samples.iter().skip(1);
        if later.any(|sample| field(sample).is_some()) {
            return self.family(*meaning, |page, family, sample| page.part(part, family, sample));
        }
        let (Some(family), Some(first)) = (VLLM.current(*meaning), self.samples.first()) else {
            return Ok(());
        };
        let (Some(count), Some(label)) = (field(first), family.split) else { return Ok(()) };
        writeln!(self.out, "# TYPE {} counter", family.name)?;
        writeln!(self.out, "{}{{{label}=\"{value}\"}} {count}.0", family.name)
    }

    fn histogram<D: Display>(
        &mut self,
        family: &Family,
        sample: &EngineSample,
        histogram: &Histogram,
        unit: impl Fn(u64) -> D,
    ) -> fmt::Result {
        let name = family.name;
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.bounds.iter().zip(&histogram.cumulative) {
            let label = format!("le=\"{}\",", unit(*bound));
            self.line(&bucket, sample, label, format_args!("{count}.0"))?;
        }
        let count = histogram.count();
        self.line(&bucket, sample, "le=\"+Inf\",", format_args!("{count}.0"))?;
        self.line(&format!("{name}_count"), sample, "", format_args!("{count}.0"))?;
        self.line(&format!("{name}_sum"), sample, "", unit(histogram.sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::page::{Signal, read_page};
    use proptest::prelude::*;
    use spillgate_core::units::{Ppm, Tokens};

    /// A page holds doubles, and half a microsecond must stay visible: 2^50.
    const LARGEST: u64 = 1 << 50;

    fn histograms() -> impl Strategy<Value = Option<Histogram>> {
        let bounds = prop::collection::btree_set(0..LARGEST, 0..8);
        let lengths = bounds.prop_flat_map(|bounds| {
            let counts = prop::collection::vec(0..1_u64 << 40, bounds.len() + 1);
            (Just(bounds), counts, 0..LARGEST).prop_map(|(bounds, mut cumulative, sum)| {
                cumulative.sort_unstable();
                Histogram { bounds: bounds.into_iter().collect(), cumulative, sum }
            })
        });
        prop::option::of(lengths)
    }

    fn count() -> impl Strategy<Value = Option<u64>> {
        prop::option::of(0..LARGEST)
    }

    fn samples() -> impl Strategy<Value = EngineSample> {
        let state = (
            prop_oneof![Just(0), 1..LARGEST],
            prop::option::of(any::<bool>()),
            prop::option::of(0..=1_000_000_u32),
            count(),
        );
        let gauges = (count(), count(), count(), count(), count());
        let counters = (count(), count(), count(), count(), count());
        let lengths = (histograms(), histograms(), histograms(), histograms(), histograms());
        (any::<u32>(), state, gauges, counters, lengths).prop_map(|(rank, s, g, c, h)| {
            EngineSample {
                rank,
                epoch: s.0,
                awake: s.1,
                kv_used: s.2.map(Ppm),
                kv_capacity: s.3.map(Tokens),
                waiting: g.0,
                deferred: g.1,
                running: g.2,
                prompt_tokens: g.3,
                computed_tokens: g.4,
                generation_tokens: c.0,
                finished: c.1,
                preempted: c.2,
                rejected: c.3,
                http_requests: c.4,
                ttft: h.0,
                itl: h.1,
                queue: h.2,
                prompt_lengths: h.3,
                output_lengths: h.4,
            }
        })
    }

    fn fleets() -> impl Strategy<Value = Vec<EngineSample>> {
        (prop::collection::vec(samples(), 1..4), any::<bool>()).prop_map(|(mut fleet, together)| {
            fleet.sort_by_key(|sample| sample.rank);
            fleet.dedup_by_key(|sample| sample.rank);
            let epoch = fleet[0].epoch;
            fleet.iter_mut().filter(|_| together).for_each(|sample| sample.epoch = epoch);
            fleet
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(fleet in fleets(), model in any::<String>()) {
            let page = read_page(&render(&fleet, &model)).unwrap();
            prop_assert_eq!(&page.complaints, &vec![]);
            prop_assert_eq!(&page.engines, &fleet);
            prop_assert_eq!(page.lines.samples(), page.lines.used);
            let said = model.is_empty() || page.model_names.iter().all(|name| *name == model);
            prop_assert!(said);
        }
    }

    #[test]
    fn a_sample_that_says_nothing_is_still_an_engine() {
        let silent = [EngineSample { rank: 7, ..EngineSample::default() }];
        let page = read_page(&render(&silent, "m")).unwrap();
        assert_eq!(page.engines, silent);
        assert_eq!(page.signal(None), Signal::Partial);
    }

    #[test]
    fn no_samples_make_a_page_without_an_engine() {
        assert_eq!(read_page(&render(&[], "m")).unwrap().signal(None), Signal::None);
    }
}
