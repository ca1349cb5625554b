//! `--expect`: the decisions of an earlier run, from its JSON report or its flight record.
//!
//! Worked number: a report with `"decisions_sha256": "ab12..."` expects that hash; a flight expects
//! the hash of the decisions in its ticks.

use crate::cli::Failure;
use crate::driver::flight::Line;
use crate::sim::replay::Ledger;
use anyhow::{Context, anyhow};
use serde_json::Value;
use spillgate_core::policy::Policy;
use spillgate_core::units::Stamp;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// A report larger than this is none.
const REPORT_MOST: u64 = 64 << 20;

/// The hash that a file expects.
pub(super) fn decisions_sha256(file: &Path, policy: &Policy) -> Result<String, Failure> {
    let label = file.display();
    let open = || File::open(file).with_context(|| format!("cannot read {label}"));
    let mut first = Vec::new();
    let mut reader = BufReader::new(open()?);
    Read::take(&mut reader, REPORT_MOST)
        .read_until(b'\n', &mut first)
        .with_context(|| format!("{label}"))?;
    if serde_json::from_slice::<Line>(&first).is_ok() {
        return of_flight(reader, policy)
            .with_context(|| format!("{label}"))
            .map_err(Failure::invalid);
    }
    let report: Value = serde_json::from_reader(Read::take(open()?, REPORT_MOST))
        .with_context(|| format!("{label} is neither a JSON report nor a flight"))
        .map_err(Failure::invalid)?;
    let hash = report.get("decisions_sha256").and_then(Value::as_str);
    hash.map(str::to_owned)
        .ok_or_else(|| Failure::invalid(anyhow!("{label} has no decisions_sha256")))
}

fn of_flight(reader: impl BufRead, policy: &Policy) -> anyhow::Result<String> {
    let mut ledger = Ledger::new(policy, Stamp(u64::MAX));
    for line in reader.lines() {
        if let Line::Tick(tick) = serde_json::from_str(&line?)? {
            for policy in tick.policies {
                ledger.note(&policy.decision, &[]);
            }
        }
    }
    Ok(ledger.sha256())
}
