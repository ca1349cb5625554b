//! A recorded flight, run again.

use super::Output;
use crate::cli::{Exit, Failure, complain, say};
use crate::driver::flight::{self, FlightError, Verdict};
use anyhow::{Context, anyhow};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Runs the flight; exit 5 if any decision or memory differs.
pub(super) fn run(record: &Path, output: Output) -> Result<(), Failure> {
    let label = record.display().to_string();
    let file =
        File::open(record).with_context(|| format!("cannot read {label}; is the path right?"))?;
    let verdict = flight::replay(&label, BufReader::new(file)).map_err(|error| match error {
        FlightError::Io { .. } => Failure::from(anyhow::Error::from(error)),
        FlightError::Line { .. } | FlightError::Empty { .. } => Failure::invalid(error),
    })?;
    if let Some(build) = &verdict.other_build {
        complain(&format!("recorded by {build}, run by {}", flight::build()));
    }
    print(&verdict, output);
    let differing = verdict.differing + verdict.memories_differing;
    if differing > 0 {
        let ticks = verdict.ticks;
        return Err(Failure::new(Exit::Differs, anyhow!("{differing} of {ticks} ticks differ")));
    }
    Ok(())
}

fn print(verdict: &Verdict, output: Output) {
    let Verdict { ticks, differing, memories_differing, differences, other_build } = verdict;
    if output == Output::Json {
        let listed: Vec<_> = differences
            .iter()
            .map(|d| json!({"at_s": d.at.0 as f64 / 1e3, "policy": d.policy, "what": d.what}))
            .collect();
        say(&json!({
            "ticks": ticks,
            "differing": differing,
            "memories_differing": memories_differing,
            "recorded_by": other_build,
            "differences": listed,
        })
        .to_string());
        return;
    }
    for difference in differences {
        let at = difference.at.0 as f64 / 1e3;
        say(&format!("{at:>10.1} s  {}  {}", difference.policy, difference.what));
    }
    say(&format!(
        "{ticks} ticks run, {differing} decisions and {memories_differing} memories differ"
    ));
}
