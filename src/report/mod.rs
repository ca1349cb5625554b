//! What a replay has to say, as data, as JSON and as a page for people.
//!
//! The replay fills a [`Report`]; nothing here knows the simulator. The names and the nesting of its
//! fields are those of `replay -o json` and part of the command line's contract: a field may be
//! added, none may move. What is not known is null, never zero.
//!
//! Worked number: 12.3 GPU-hours over a floor of 8.2 print as `1.50 x`: half as much again as the
//! trace's work at the best throughput.

mod number;
mod table;

use crate::sim::score::{Score, Spread};
use serde::Serialize;
use spillgate_core::policy::{Objectives, Role};
use std::collections::BTreeMap;

/// Number of the shape of [`Report`]; it grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// A replay, scored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the policy.
    pub policy: String,
    /// What requests are promised, in words: see [`promise`].
    pub promise: String,
    /// What was replayed.
    pub trace: TraceReport,
    /// Seed of every draw.
    pub seed: u64,
    /// Copies of each request.
    pub scale: u32,
    /// What it was made from.
    pub hashes: Hashes,
    /// Counts, shares within target and latencies.
    #[serde(flatten)]
    pub score: Score,
    /// Device-hours billed.
    pub gpu_hours: f64,
    /// The fluid lower bound of `gpu_hours`, where profiles say enough.
    pub gpu_hours_floor: Option<f64>,
    /// What went outside.
    pub overflow: OverflowReport,
    /// Cost of devices and overflow together, where both have a price.
    pub usd: Option<f64>,
    /// The gate.
    pub gate: Gate,
    /// The pools by name.
    pub pools: BTreeMap<String, PoolReport>,
    /// What was decided and why, in order of time.
    pub decisions: Vec<Row>,
    /// SHA-256 over the canonical decisions.
    pub decisions_sha256: String,
    /// Time that the run took.
    pub wall_s: f64,
    /// Requests a second of processor time.
    pub requests_per_cpu_s: f64,
    /// What a reader should know: rows sorted or spread, assumptions made.
    pub notes: Vec<String>,
    /// The command that gives this report again.
    pub reproduce: String,
}

/// The trace, as replayed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// File name.
    pub name: String,
    /// From the first arrival to the last.
    pub span_s: f64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Tokens to generate.
    pub output_tokens: u64,
    /// Requests that generate nothing.
    pub zero_output: u64,
}

/// SHA-256 of what a run was made from, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hashes {
    /// The policy.
    pub policy: String,
    /// Profiles by name.
    pub profiles: BTreeMap<String, String>,
    /// The trace file.
    pub trace: String,
}

/// What went outside.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OverflowReport {
    /// Share of all requests, 0 to 1.
    pub share: Option<f64>,
    /// What it cost, where it has a price.
    pub usd: Option<f64>,
}

/// How often the gate moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// From nothing spilled to something.
    pub opens: u64,
    /// From something spilled to nothing.
    pub closes: u64,
}

/// One pool over the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolReport {
    /// What it does.
    pub role: Role,
    /// Mean replicas over the run.
    pub mean: f64,
    /// Most replicas at a time.
    pub max: u32,
    /// Writes that grew it.
    pub ups: u64,
    /// Writes that shrank it.
    pub downs: u64,
    /// Changes of direction.
    pub reversals: u64,
    /// Device-hours billed.
    pub gpu_hours: f64,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Since the start of the trace.
    pub at_s: f64,
    /// What changes.
    pub what: String,
    /// For which reason.
    pub why: String,
}

impl Report {
    /// Indented JSON; keys always in the order of the fields, and a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and maps with string keys: nothing here can fail to serialise.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// A page for people, without colour: the score, the pools, then every decision with its reason.
    #[must_use]
    pub fn to_table(&self) -> String {
        table::render(self)
    }
}

/// The objectives of a policy in words, such as `99 % of requests: TTFT <= 1000 ms + 200 ms per
/// 1,000 input tokens, ITL <= 50 ms`.
#[must_use]
pub fn promise(objectives: &Objectives) -> String {
    let ms = |micros: u64| {
        let decimals = if micros.is_multiple_of(1_000) { 0 } else { 3 };
        number::fixed(micros as f64 / 1e3, decimals)
    };
    let mut targets = Vec::new();
    if let Some(ttft) = objectives.ttft {
        let more = match ttft.per_kilotoken.0 {
            0 => String::new(),
            micros => format!(" + {} ms per 1,000 input tokens", ms(micros)),
        };
        targets.push(format!("TTFT <= {} ms{more}", ms(ttft.base.0)));
    }
    targets.extend(objectives.itl.map(|itl| format!("ITL <= {} ms", ms(itl.0))));
    targets.extend(objectives.e2e.map(|e2e| format!("whole request <= {} ms", ms(e2e.0))));
    if targets.is_empty() {
        targets.push("served".to_owned());
    }
    let percent = f64::from(objectives.attainment.0) / 1e4;
    format!("{percent} % of requests: {}", targets.join(", "))
}

#[cfg(test)]
mod tests;
