//! A page, understood: one canonical sample an engine, and what the page did not say.
//!
//! [`read_page`] is the way in. Every sample line ends in exactly one of six counts: used, known but
//! not used, unknown family of the dialect (listed), foreign, refused (named) and malformed (named);
//! so nothing of a known engine is lost silently. What a page does not say is `None`.
//!
//! Worked number: a page with `vllm:` counters and no waiting gauge has one engine with
//! `waiting: None` and the signal `Partial`; a page with Python metrics only has no engine and the
//! signal `None`.

use super::dialect::{Dialect, Meaning, Version, detect};
use super::exposition::{Malformed, PageError, Problem, Scan};
use super::histogram;
use super::reader::Reader;
use spillgate_core::observation::{EngineSample, Histogram};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// More tokens than this are not drafted at once.
const MOST_SPECULATED: f64 = 32.0;

/// How much an engine page may be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Every engine says how many requests wait and run, and how full its KV cache is.
    Full,
    /// It is an engine, but a required gauge or an expected engine is missing: good for scaling
    /// up, not for scaling down.
    Partial,
    /// The endpoint answers, but is no known engine. Not a load of zero.
    None,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "Full",
            Self::Partial => "Partial",
            Self::None => "None",
        })
    }
}

/// A line, or a family, that could not be used, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Line number from 1; 0 for what concerns the whole page.
    pub line: u32,
    /// What is wrong.
    pub text: String,
}

/// Where the sample lines of a page went. They add up to all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Read into the engines' samples.
    pub used: u64,
    /// Of a known family that is not used, or of an older name where today's is there too.
    pub unused: u64,
    /// Of the dialect, but of a family that the table does not know.
    pub unknown: u64,
    /// Of anything else.
    pub foreign: u64,
    /// Readable, but refused: not a count, said twice, too many engines.
    pub refused: u64,
    /// Not readable.
    pub malformed: u64,
}

impl Lines {
    /// Sample lines that could be read.
    #[must_use]
    pub const fn samples(self) -> u64 {
        self.used + self.unused + self.unknown + self.foreign + self.refused
    }
}

/// What one page says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Whose page it is; `None` if no known engine's.
    pub dialect: Option<&'static Dialect>,
    /// One sample an engine, by rank.
    pub engines: Vec<EngineSample>,
    /// Names of the models, as the engine says them (the first served name, never an alias).
    pub model_names: BTreeSet<String>,
    /// Where the lines went.
    pub lines: Lines,
    /// What was found of each meaning.
    pub seen: BTreeSet<Meaning>,
    /// Counts split by a label, over all engines: by meaning, then by label value.
    pub splits: BTreeMap<Meaning, BTreeMap<String, f64>>,
    /// Prompt tokens found in the prefix cache, over all engines.
    pub prefix_hits: Option<u64>,
    /// Prompt tokens looked up in the prefix cache, over all engines.
    pub prefix_queries: Option<u64>,
    /// The fullest KV cache, 0 to 1, unrounded.
    pub kv_usage_max: Option<f64>,
    /// Families of the dialect that the table does not know, with their lines.
    pub unknown: BTreeMap<String, u64>,
    /// Some families of nobody's, by name: what the endpoint is instead.
    pub foreign: BTreeSet<String>,
    /// The newest `since` of the families seen: the engine is at least this old.
    pub version_from: Option<Version>,
    /// The first complaints; `complaints_left` more were left out.
    pub complaints: Vec<Complaint>,
    /// Complaints beyond the first.
    pub complaints_left: u64,
    /// The page does not end in a line break: it may be cut short.
    pub unterminated: bool,
}

/// Reads a page. The only error is a page that is too large; bad lines are complaints.
pub fn read_page(text: &str) -> Result<Page, PageError> {
    Scan::new(text)?; // Not larger than a page may be.
    let (whole, cut) = text.split_at(text.rfind('\n').map_or(0, |at| at + 1));
    let mut scan = Scan::new(whole)?;
    let mut reader = Reader::new(detect(text));
    while let Some(next) = scan.next_sample() {
        match next {
            Ok(sample) => {
                reader.take(&sample);
                reader.take_buckets(&mut scan);
            }
            Err(malformed) => reader.malformed(&malformed),
        }
    }
    let cut = cut.trim_matches([' ', '\t', '\r']);
    if !cut.is_empty() && !cut.starts_with('#') {
        let line = u32::try_from(whole.lines().count() + 1).unwrap_or(u32::MAX);
        reader.malformed(&Malformed { line, problem: Problem::Unended });
    }
    let mut page = reader.finish();
    page.unterminated = !text.is_empty() && !text.ends_with('\n');
    Ok(page)
}

impl Page {
    /// How much of an engine this page is, where `expected` engines should be on it.
    #[must_use]
    pub fn signal(&self, expected: Option<u32>) -> Signal {
        if self.dialect.is_none() {
            return Signal::None;
        }
        let whole = |engine: &EngineSample| {
            engine.waiting.is_some() && engine.running.is_some() && engine.kv_used.is_some()
        };
        let enough = self.engines.len() >= expected.map_or(1, |count| count.max(1) as usize);
        if enough && self.engines.iter().all(whole) { Signal::Full } else { Signal::Partial }
    }

    /// A family of this meaning was read.
    #[must_use]
    pub fn has(&self, meaning: Meaning) -> bool {
        self.seen.contains(&meaning)
    }

    /// How many engines say what they do; `None` if none does.
    #[must_use]
    pub fn reporting(&self) -> Option<usize> {
        let says = |engine: &&EngineSample| engine.waiting.is_some() || engine.running.is_some();
        Some(self.engines.iter().filter(says).count()).filter(|count| *count > 0)
    }

    /// The sum of a count over the engines that say it; `None` if none does.
    #[must_use]
    pub fn sum(&self, field: impl Fn(&EngineSample) -> Option<u64>) -> Option<u64> {
        self.engines.iter().filter_map(field).reduce(u64::saturating_add)
    }

    /// The sum of a histogram over the engines that have it; `None` if none does.
    #[must_use]
    pub fn histogram(
        &self,
        field: impl Fn(&EngineSample) -> Option<&Histogram>,
    ) -> Option<Histogram> {
        let mut all = self.engines.iter().filter_map(field);
        let first = all.next()?.clone();
        Some(all.fold(first, |sum, next| histogram::add(&sum, next)))
    }

    /// The total of a split count; `None` if the page does not say it.
    #[must_use]
    pub fn split_total(&self, meaning: Meaning) -> Option<f64> {
        self.splits.get(&meaning).map(|parts| parts.values().sum())
    }

    /// Tokens that one observation of inter-token latency stands for: 1 without speculative
    /// decoding. The first token of a request has no such latency. `None` where the counters say
    /// too little or do not fit together (nothing drafts more than 32 tokens).
    #[must_use]
    pub fn tokens_per_itl(&self) -> Option<f64> {
        let observations = self.histogram(|engine| engine.itl.as_ref())?.count();
        let first = self.histogram(|engine| engine.ttft.as_ref())?.count();
        let generated = self.sum(|engine| engine.generation_tokens)?.checked_sub(first)?;
        let tokens = (observations > 0).then(|| generated as f64 / observations as f64);
        tokens.filter(|tokens| (0.9..=MOST_SPECULATED).contains(tokens))
    }

    /// No sample line, but lines that are none: this is something else (HTML, say).
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.lines.samples() == 0 && self.lines.malformed > 0
    }
}
