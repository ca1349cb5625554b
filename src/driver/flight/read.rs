//! Running a flight again: the same code on the recorded observations, compared tick by tick.
//!
//! A record of this build must give the same decisions and the same memory, byte for byte; one of
//! another build is run too, and its differences are listed. A line that cannot be read is an
//! error with its number; bytes of a line are bounded.
//!
//! Worked number: a flight of 3 600 ticks whose waiting counts were tampered with for 15 s differs
//! from the first tick whose decision depends on them.

use super::delta::{Layouts, apply};
use super::{Header, Keyframe, Line, PolicyTick, Tick, build, sha256_of};
use crate::driver::Driver;
use serde_json::Value;
use spillgate_core::decision::Decision;
use spillgate_core::observation::Observation;
use spillgate_core::units::Stamp;
use std::io::BufRead;

/// The longest line that is read: a keyframe of a large fleet is a few megabytes.
const LINE_MOST: usize = 32 << 20;
/// Differences that are listed in full.
const LISTED_MOST: usize = 20;

/// Why a flight could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// The file ends or breaks off.
    #[error("{label}: {source}")]
    Io {
        /// The file.
        label: String,
        /// What happened.
        source: std::io::Error,
    },
    /// A line makes no sense.
    #[error("{label}:{line}: {what}")]
    Line {
        /// The file.
        label: String,
        /// Its number, from 1.
        line: usize,
        /// What is wrong and what is expected.
        what: String,
    },
    /// There is nothing to run.
    #[error("{label}: {what}")]
    Empty {
        /// The file.
        label: String,
        /// What is missing.
        what: &'static str,
    },
}

/// A decision that came out otherwise.
#[derive(Clone, Debug)]
pub struct Difference {
    /// When.
    pub at: Stamp,
    /// The policy.
    pub policy: String,
    /// What differs.
    pub what: String,
}

/// How a re-run went.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Ticks run.
    pub ticks: u64,
    /// Decisions that differ.
    pub differing: u64,
    /// Memories that differ although the decision does not.
    pub memories_differing: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The build that wrote the flight, if it is another one.
    pub other_build: Option<String>,
}

/// Runs a flight from its first keyframe.
pub fn replay(label: &str, input: impl BufRead) -> Result<Verdict, FlightError> {
    let mut lines = Lines { label, input, number: 0 };
    let header = match lines.next()? {
        Some(Line::Header(header)) => header,
        Some(_) => return Err(lines.wrong("the first line must be a header")),
        None => return Err(lines.empty("the file is empty")),
    };
    if header.schema != super::SCHEMA {
        return Err(lines.wrong(&format!(
            "schema {} is not known; this build reads {}",
            header.schema,
            super::SCHEMA
        )));
    }
    let mut rerun = Rerun::new(header);
    while let Some(line) = lines.next()? {
        let done = match line {
            Line::Header(_) => Err("a second header".to_owned()),
            Line::Keyframe(keyframe) => rerun.keyframe(keyframe),
            Line::Tick(tick) => rerun.tick(tick),
        };
        done.map_err(|what| lines.wrong(&what))?;
    }
    if rerun.verdict.ticks == 0 {
        return Err(lines.empty("no tick follows a keyframe"));
    }
    Ok(rerun.verdict)
}

struct Rerun {
    driver: Driver,
    layouts: Layouts,
    names: Vec<String>,
    before: Vec<Value>,
    begun: bool,
    verdict: Verdict,
}

impl Rerun {
    fn new(header: Header) -> Self {
        let other_build = (header.build != build()).then(|| header.build.clone());
        let names: Vec<String> = header.policies.iter().map(|p| p.name.to_string()).collect();
        Self {
            before: vec![Value::Null; names.len()],
            driver: Driver::new(header.policies, header.gpu_pools, header.profiles, false),
            layouts: Layouts::new(header.layouts),
            names,
            begun: false,
            verdict: Verdict { other_build, ..Verdict::default() },
        }
    }

    /// The first keyframe sets the state. Later ones are passed over: the hash of the memory in each
    /// tick before them has told whether they would agree.
    fn keyframe(&mut self, keyframe: Keyframe) -> Result<(), String> {
        let policies = self.names.len();
        if keyframe.memories.len() != policies || keyframe.observations.len() != policies {
            return Err(format!("the keyframe must have {policies} policies"));
        }
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        if !keyframe.layouts.is_empty() {
            self.layouts = Layouts::new(keyframe.layouts);
        }
        for (index, memory) in keyframe.memories.into_iter().enumerate() {
            let observation = &keyframe.observations[index];
            let previous = match observation {
                Value::Null => None,
                value => Some(self.layouts.decode(value)?),
            };
            self.driver.restore(index, memory, previous);
        }
        self.before = keyframe.observations;
        Ok(())
    }

    fn tick(&mut self, tick: Tick) -> Result<(), String> {
        if !self.begun {
            return Err("a tick before the first keyframe; cut flights at a keyframe".to_owned());
        }
        self.layouts.extend(tick.layouts);
        if tick.policies.len() != self.names.len() {
            return Err(format!("the tick must have {} policies", self.names.len()));
        }
        let mut seen: Vec<Observation> = Vec::with_capacity(tick.policies.len());
        for (before, policy) in self.before.iter_mut().zip(&tick.policies) {
            apply(before, &policy.observation)?;
            seen.push(self.layouts.decode(before)?);
        }
        let decided = self.driver.rerun(seen);
        self.verdict.ticks += 1;
        for (index, (now, then)) in decided.iter().zip(&tick.policies).enumerate() {
            self.compare(index, tick.at, now, then);
        }
        Ok(())
    }

    fn compare(&mut self, index: usize, at: Stamp, now: &Decision, then: &PolicyTick) {
        let memory = self.driver.memory(index).map(sha256_of);
        let what = if *now != then.decision {
            self.verdict.differing += 1;
            difference(&then.decision, now)
        } else if memory.as_ref() != Some(&then.memory) {
            self.verdict.memories_differing += 1;
            "same decision, but the memory after it differs".to_owned()
        } else {
            return;
        };
        if self.verdict.differences.len() < LISTED_MOST {
            let policy = self.names[index].clone();
            self.verdict.differences.push(Difference { at, policy, what });
        }
    }
}

/// The first part of a decision that differs, in words.
fn difference(then: &Decision, now: &Decision) -> String {
    for (a, b) in then.pools.iter().zip(&now.pools) {
        let to = |p: &spillgate_core::decision::PoolDecision| {
            p.write.as_ref().map_or("no write".to_owned(), |w| format!("{} -> {}", w.from, w.to))
        };
        if a.write != b.write {
            return format!("{}: recorded {}, now {}", a.pool, to(a), to(b));
        }
        if a != b {
            let said = |p: &spillgate_core::decision::PoolDecision| {
                p.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            };
            return format!("{}: recorded \"{}\", now \"{}\"", a.pool, said(a), said(b));
        }
    }
    format!(
        "gate: recorded share {:?} (excess {}), now {:?} (excess {})",
        then.route, then.excess, now.route, now.excess
    )
}

struct Lines<'a, R> {
    label: &'a str,
    input: R,
    number: usize,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Option<Line>, FlightError> {
        loop {
            let mut bytes = Vec::new();
            let limit = LINE_MOST as u64 + 1;
            let read = std::io::Read::take(&mut self.input, limit).read_until(b'\n', &mut bytes);
            let read =
                read.map_err(|source| FlightError::Io { label: self.label.to_owned(), source })?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.len() > LINE_MOST {
                return Err(self.wrong("the line is longer than 32 MiB"));
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            return serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| self.wrong(&format!("not a line of a flight: {e}")));
        }
    }

    fn wrong(&self, what: &str) -> FlightError {
        FlightError::Line { label: self.label.to_owned(), line: self.number, what: what.to_owned() }
    }

    fn empty(&self, what: &'static str) -> FlightError {
        FlightError::Empty { label: self.label.to_owned(), what }
    }
}
