//! What a dialect is: one engine's metric names, as data.
//!
//! A dialect is a table of families; each says what it means to us, since and until which version
//! the engine writes it, and where that was read. Several names may share a meaning: the one with
//! the lower preference number is today's and wins over the older ones, engine by engine, so that
//! a page with both is not counted twice. A family that we know and do not use is in the table
//! too: that is how an unknown one is noticed.
//!
//! Worked number: `vllm:kv_cache_usage_perc` (preference 0, since 0.9) and
//! `vllm:gpu_cache_usage_perc` (preference 1, until 0.12) both mean `KvUsed`; a page of 0.10 has
//! both and says 0.77 once.

use super::page::Page;
use std::fmt;

/// A version of an engine: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// How a family is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value of now.
    Gauge,
    /// A count since the start; the name ends in `_total`.
    Counter,
    /// `_bucket`, `_sum` and `_count` lines; the table has the name without them.
    Histogram,
    /// Value 1 (or a time); the labels say it.
    Info,
}

/// What a family means to Spillgate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// Requests waiting.
    Waiting,
    /// Requests waiting, split by what they wait for.
    WaitingByReason,
    /// Requests pushed out to host memory, which wait to come back (a V0 notion).
    Swapped,
    /// Requests in the batch.
    Running,
    /// KV cache in use, 0 to 1.
    KvUsed,
    /// Awake or asleep, one series a state.
    SleepState,
    /// Prompt tokens.
    PromptTokens,
    /// Prompt tokens, split by where their KV came from.
    PromptBySource,
    /// Generated tokens.
    GenerationTokens,
    /// Finished requests, split by reason.
    Finished,
    /// Preemptions.
    Preempted,
    /// Refusals at admission, split by reason.
    Rejected,
    /// Prompt tokens found in the prefix cache.
    PrefixHits,
    /// Prompt tokens looked up in the prefix cache.
    PrefixQueries,
    /// Time to first token.
    Ttft,
    /// Time between tokens.
    Itl,
    /// Time in the queue.
    Queue,
    /// Prompt lengths.
    PromptLengths,
    /// Output lengths.
    OutputLengths,
    /// Cache configuration in labels.
    CacheConfig,
    /// Answers of the HTTP front end.
    HttpRequests,
    /// Start of the process, seconds since the epoch.
    ProcessStart,
    /// Known, and not used.
    Unused,
}

/// One family of a dialect.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Exposed name; without `_bucket`, `_sum`, `_count` for histograms.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// What it means.
    pub meaning: Meaning,
    /// 0: today's name; higher: older names of the same thing.
    pub preference: u8,
    /// The label that splits it into parts of one count.
    pub split: Option<&'static str>,
    /// First version that writes it, as far as was read.
    pub since: Version,
    /// First version that no longer does.
    pub until: Option<Version>,
    /// Where name and meaning were read.
    pub source: &'static str,
}

impl Family {
    /// The part that a sample name is of this histogram; `None` if it is none of it.
    #[must_use]
    pub fn histogram_part(&self, name: &str) -> Option<Part> {
        match name.strip_prefix(self.name)? {
            _ if self.kind != Kind::Histogram => None,
            "_bucket" => Some(Part::Bucket),
            "_sum" => Some(Part::Sum),
            "_count" => Some(Part::Count),
            _ => None,
        }
    }
}

/// A remark for people about what a page cannot show.
#[derive(Clone, Copy)]
pub struct Note {
    /// When it applies.
    pub when: fn(&Page) -> bool,
    /// What to know, in a sentence.
    pub text: &'static str,
}

/// One engine's names.
pub struct Dialect {
    /// Its name in reports.
    pub name: &'static str,
    /// What its family names start with.
    pub prefix: &'static str,
    /// The label that carries the data-parallel rank.
    pub rank_label: &'static str,
    /// The label that carries the model's name.
    pub model_label: &'static str,
    /// Its families, and the shared ones that stand beside them.
    pub families: &'static [Family],
    /// HTTP handlers that take inference requests.
    pub handlers: &'static [&'static str],
    /// Remarks.
    pub notes: &'static [Note],
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Every dialect that is understood.
pub const DIALECTS: &[&Dialect] = &[&super::vllm::VLLM];

/// Which line of a family a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A gauge, a counter or an info line.
    Value,
    /// A histogram bucket.
    Bucket,
    /// A histogram's sum.
    Sum,
    /// A histogram's count.
    Count,
    /// When the series was created: a time, never a count.
    Created,
}

impl Dialect {
    /// The family and the part of it that a sample name stands for.
    #[must_use]
    pub fn find(&'static self, name: &str) -> Option<(&'static Family, Part)> {
        let plain = |family: &&Family| family.kind != Kind::Histogram && family.name == name;
        if let Some(family) = self.families.iter().find(plain) {
            return Some((family, Part::Value));
        }
        if let Some(base) = name.strip_suffix("_created") {
            return self.created(base).map(|family| (family, Part::Created));
        }
        let part = |family: &'static Family| Some((family, family.histogram_part(name)?));
        self.families.iter().find_map(part)
    }

    /// `x_created` belongs to the histogram `x`, or to the counter `x_total`.
    fn created(&'static self, base: &str) -> Option<&'static Family> {
        self.families.iter().find(|family| match family.kind {
            Kind::Counter => family.name.strip_suffix("_total") == Some(base),
            _ => family.name == base,
        })
    }

    /// Today's name of a meaning.
    #[must_use]
    pub fn current(&'static self, meaning: Meaning) -> Option<&'static Family> {
        self.families.iter().find(|family| family.meaning == meaning && family.preference == 0)
    }
}

/// The dialect of a page: the first one with a sample line that starts with its prefix.
#[must_use]
pub fn detect(text: &str) -> Option<&'static Dialect> {
    let starts_a_line = |at: usize| {
        // What the scanner trims: a stray carriage return does not hide an engine.
        let before = text[..at].trim_end_matches([' ', '\t', '\r']);
        before.is_empty() || before.ends_with('\n')
    };
    DIALECTS.iter().copied().find(|dialect| {
        memchr::memmem::find_iter(text.as_bytes(), dialect.prefix).any(starts_a_line)
    })
}
