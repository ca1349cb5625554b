//! Gathers the samples of a page into engines.
//!
//! Lines come in the order of the page, which differs between one API server and several; so each
//! is put where it belongs by its labels, and only the end makes sense of the whole. Consecutive
//! lines nearly always share their name and engine, so both are looked up only when they change.
//! Bounds: 1 024 engines a page, 256 unknown families and 32 complaints by name.
//!
//! Worked number: the 430 samples of a 0.32 page have about 130 different names; 300 lookups are
//! saved.

mod place;

use super::dialect::{DIALECTS, Dialect, Family, Meaning, Part};
use super::exposition::{Malformed, RawValue, Sample, Scan};
use super::histogram::{Buckets, Flaw};
use super::number::whole;
use super::page::{Complaint, Page};
use super::sample::{Engine, HISTOGRAMS, Held, Slot};
use place::{Key, MAX_ENGINES};

/// A full KV cache is 1; more than rounding above it is another unit.
const KV_MOST: f64 = 1.001;
const MAX_UNKNOWN: usize = 256;
const MAX_FOREIGN: usize = 32;
const MAX_COMPLAINTS: usize = 32;
const OTHERS: &str = "(others)";

/// Why a readable line was refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "the value is negative, not finite or too large to be counted; it is taken as not said"
    )]
    NotACount,
    #[error("a share above 1 is none; it is taken as not said")]
    NotAShare,
    #[error("the same thing said twice for one engine; the first one stands")]
    Twice,
    #[error("the rank label is no whole number")]
    Rank,
    #[error("more than {MAX_ENGINES} engines on one page")]
    TooManyEngines,
    #[error("{0}; the histogram is left out")]
    Flaw(#[from] Flaw),
}

#[derive(Clone, Copy)]
enum Found {
    Family(&'static Family, Part),
    Unknown,
    Foreign,
}

/// Where a used line ended.
enum Use {
    Used,
    Unused,
    /// Today's name took the place of an older one that had been used.
    Replaced,
}

pub(crate) struct Reader<'t> {
    dialect: Option<&'static Dialect>,
    page: Page,
    name: &'t str,
    found: Found,
    engines: Vec<Engine<'t>>,
    last: (Option<&'t str>, &'t str, usize),
    key: Key<'t>,
    /// The engine and histogram that the line before was a bucket of.
    run: Option<(usize, usize)>,
    /// What is said for the whole server: refusals and HTTP answers carry no rank.
    server: Engine<'t>,
    start: u64,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(dialect: Option<&'static Dialect>) -> Self {
        Self {
            dialect,
            page: Page { dialect, ..Page::default() },
            name: "",
            found: Found::Foreign,
            engines: Vec::new(),
            last: (None, "", usize::MAX),
            key: Key::default(),
            run: None,
            server: Engine::default(),
            start: 0,
        }
    }

    pub(crate) fn malformed(&mut self, malformed: &Malformed) {
        self.page.lines.malformed += 1;
        complain(&mut self.page, malformed.line, || malformed.problem.to_string());
    }

    #[inline]
    pub(crate) fn take(&mut self, sample: &Sample<'t, '_>) {
        self.run = None;
        if !sample.repeats && sample.name != self.name {
            self.name = sample.name;
            self.found = self.recognise(sample.name);
        }
        match self.found {
            Found::Foreign => self.page.lines.foreign += 1,
            Found::Unknown => self.unknown(sample.name),
            Found::Family(family, part) => match self.read(family, part, sample) {
                Ok(Use::Used) => self.page.lines.used += 1,
                Ok(Use::Unused | Use::Replaced) => self.page.lines.unused += 1,
                Err(refusal) => {
                    self.page.lines.refused += 1;
                    complain(&mut self.page, sample.line, || format!("{}: {refusal}", sample.name));
                }
            },
        }
    }

    /// Reads on in the histogram of the line before, as long as lines differ in bound and count
    /// only: such a line goes where the one before went.
    pub(crate) fn take_buckets(&mut self, scan: &mut Scan<'t>) {
        let Some((engine, index)) = self.run else { return };
        let Some(held) = &mut self.engines[engine].histograms[index] else { return };
        while let Some(bucket) = scan.next_bucket() {
            match held.value.place(bucket.bound, bucket.value) {
                Ok(()) => self.page.lines.used += 1,
                Err(flaw) => {
                    held.flawed = true;
                    self.page.lines.refused += 1;
                    let text = || format!("{}: {}", self.name, Refusal::from(flaw));
                    complain(&mut self.page, bucket.line, text);
                }
            }
        }
    }

    /// Called once a run of equal names.
    fn recognise(&mut self, name: &str) -> Found {
        if let Found::Family(family, _) = self.found
            && let Some(part) = family.histogram_part(name)
        {
            return Found::Family(family, part);
        }
        let Some(dialect) = self.dialect else {
            self.foreign(name);
            return Found::Foreign;
        };
        if let Some((family, part)) = dialect.find(name) {
            if part != Part::Created {
                self.page.seen.insert(family.meaning);
            }
            if family.until.is_none() {
                self.page.version_from = self.page.version_from.max(Some(family.since));
            }
            return Found::Family(family, part);
        }
        if name.starts_with(dialect.prefix) { Found::Unknown } else { Found::Foreign }
    }

    /// Remembers some names of a page that is no engine's, so that a person sees what it is.
    fn foreign(&mut self, name: &str) {
        debug_assert!(DIALECTS.iter().all(|dialect| !name.starts_with(dialect.prefix)));
        if self.page.foreign.len() < MAX_FOREIGN {
            self.page.foreign.insert(base(name).to_owned());
        }
    }

    fn unknown(&mut self, name: &str) {
        self.page.lines.unknown += 1;
        let families = &mut self.page.unknown;
        let room = families.len() < MAX_UNKNOWN;
        let name = base(name);
        match families.get_mut(name) {
            Some(count) => *count += 1,
            None => *families.entry(if room { name } else { OTHERS }.to_owned()).or_default() += 1,
        }
    }

    fn read(
        &mut self,
        family: &'static Family,
        part: Part,
        sample: &Sample<'t, '_>,
    ) -> Result<Use, Refusal> {
        if part == Part::Created {
            return self.created(sample);
        }
        match family.meaning {
            Meaning::Unused => Ok(Use::Unused),
            Meaning::ProcessStart => {
                self.start = whole(sample.value, 1e3).ok_or(Refusal::NotACount)?;
                Ok(Use::Used)
            }
            Meaning::CacheConfig => self.cache_config(sample),
            meaning => match HISTOGRAMS.iter().position(|(kind, _)| *kind == meaning) {
                Some(index) => self.histogram(family, part, index, sample),
                None => self.scalar(family, sample),
            },
        }
    }

    /// Creation times date an engine's start where the process does not say its own.
    fn created(&mut self, sample: &Sample<'t, '_>) -> Result<Use, Refusal> {
        let key = self.key(None, sample);
        if key.rank.is_none() {
            return Ok(Use::Unused);
        }
        let at = whole(sample.value, 1e3).filter(|at| *at > 0).ok_or(Refusal::NotACount)?;
        let engine = self.engine(&key, false)?;
        engine.created = Some(engine.created.map_or(at, |earlier| earlier.min(at)));
        Ok(Use::Used)
    }

    fn cache_config(&mut self, sample: &Sample<'t, '_>) -> Result<Use, Refusal> {
        let count = |name| sample.labels.get(name).and_then(|text| text.parse::<u64>().ok());
        let blocks = || Some(count("num_gpu_blocks")?.saturating_mul(count("block_size")?));
        let capacity = count("kv_cache_size_tokens").or_else(blocks);
        let key = self.key(None, sample);
        let engine = self.engine(&key, false)?;
        if engine.kv_capacity.is_some() {
            return Err(Refusal::Twice);
        }
        engine.kv_capacity = capacity;
        Ok(Use::Used)
    }

    fn histogram(
        &mut self,
        family: &'static Family,
        part: Part,
        index: usize,
        sample: &Sample<'t, '_>,
    ) -> Result<Use, Refusal> {
        let key = self.key(None, sample);
        let held = &mut self.engine(&key, sample.repeats)?.histograms[index];
        let mut outcome = Use::Used;
        match held {
            Some(held) if held.family.preference < family.preference => return Ok(Use::Unused),
            Some(held) if held.family.preference == family.preference => {}
            _ => {
                if held.is_some() {
                    outcome = Use::Replaced;
                }
                *held = Some(Held::new(family, Buckets::new(HISTOGRAMS[index].1)));
            }
        }
        let Some(held) = held else { return Ok(Use::Unused) };
        let read = match part {
            Part::Bucket => held.value.bucket(sample.bound, sample.value),
            Part::Sum => held.value.sum(sample.value),
            _ => held.value.count(sample.value),
        };
        held.flawed |= read.is_err();
        read?;
        self.run = (part == Part::Bucket).then_some((self.last.2, index));
        Ok(outcome)
    }

    fn scalar(&mut self, family: &'static Family, sample: &Sample<'t, '_>) -> Result<Use, Refusal> {
        let key = self.key(family.split, sample);
        whole(sample.value, 1.0).ok_or(Refusal::NotACount)?;
        if family.meaning == Meaning::KvUsed && sample.value > KV_MOST {
            return Err(Refusal::NotAShare);
        }
        let split = key.split.map(RawValue::unescape);
        if family.split.is_some() && family.meaning != Meaning::HttpRequests {
            self.split(family.meaning, split.as_deref().unwrap_or_default(), sample.value);
        }
        let handlers = self.dialect.map_or(&[][..], |dialect| dialect.handlers);
        let Some((slot, value)) =
            Slot::of(family.meaning, split.as_deref(), sample.value, handlers)
        else {
            return Ok(Use::Used);
        };
        let server = matches!(slot, Slot::Rejected | Slot::Http) && key.rank.is_none();
        if server && !key.model.is_empty() {
            self.model(key.model);
        }
        let engine = if server { &mut self.server } else { self.engine(&key, false)? };
        let held = &mut engine.slots[slot as usize];
        match held {
            Some(held) if held.family.preference < family.preference => Ok(Use::Unused),
            Some(held) if held.family.preference == family.preference => {
                if !slot.adds() {
                    return Err(Refusal::Twice);
                }
                held.value += value;
                Ok(Use::Used)
            }
            _ => {
                let outcome = if held.is_some() { Use::Replaced } else { Use::Used };
                *held = Some(Held::new(family, value));
                Ok(outcome)
            }
        }
    }

    fn split(&mut self, meaning: Meaning, part: &str, value: f64) {
        let parts = self.page.splits.entry(meaning).or_default();
        let room = parts.len() < MAX_UNKNOWN;
        match parts.get_mut(part) {
            Some(sum) => *sum += value,
            None => *parts.entry(if room { part } else { OTHERS }.to_owned()).or_default() += value,
        }
    }

    pub(crate) fn finish(mut self) -> Page {
        let used = |engine: &Engine<'_>, slot| engine.value(slot);
        self.page.kv_usage_max =
            self.engines.iter().filter_map(|engine| used(engine, Slot::KvUsed)).reduce(f64::max);
        let total = |slot| {
            let values = self.engines.iter().filter_map(|engine| used(engine, slot));
            values.reduce(|sum, value| sum + value).and_then(|sum| whole(sum, 1.0))
        };
        self.page.prefix_hits = total(Slot::PrefixHits);
        self.page.prefix_queries = total(Slot::PrefixQueries);
        self.engines.sort_by_key(|engine| engine.rank);
        let (mut flaws, mut layouts) = (Vec::new(), Default::default());
        let mut samples = Vec::with_capacity(self.engines.len());
        for engine in std::mem::take(&mut self.engines) {
            engine.into_samples(self.start, &mut layouts, &mut samples, &mut flaws);
        }
        if let Some(first) = samples.first_mut() {
            self.server.give(first);
        }
        self.page.engines = samples;
        for text in flaws {
            complain(&mut self.page, 0, || text);
        }
        self.page
    }
}

fn complain(page: &mut Page, line: u32, text: impl FnOnce() -> String) {
    if page.complaints.len() < MAX_COMPLAINTS {
        page.complaints.push(Complaint { line, text: text() });
    } else {
        page.complaints_left += 1;
    }
}

/// A family's name from a sample's.
fn base(name: &str) -> &str {
    ["_bucket", "_sum", "_count", "_created"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}
