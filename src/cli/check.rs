//! `spillgate check`: every problem of the given files at once.
//!
//! Standard output carries the problems, one a line or as JSON, and nothing else when there are
//! none. Worked number: a file with ten faults prints ten lines and exits 3; warnings and notes
//! alone exit 0.

use super::{Exit, Failure, complain, files, say};
use crate::policy::Severity;
use anyhow::{Context, anyhow};
use std::path::PathBuf;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Policies, GPU pools and profiles; they are checked together
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How problems are printed
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// One line a problem
    Table,
    /// One array of objects
    Json,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let checked = files::check(&args.files)?;
    let count = |severity| checked.problems.iter().filter(|p| p.severity == severity).count();
    match args.output {
        Output::Table => checked.problems.iter().for_each(|problem| say(&problem.to_string())),
        Output::Json => {
            say(&serde_json::to_string_pretty(&checked.problems).context("writing JSON")?);
        }
    }
    let errors = count(Severity::Error);
    complain(&format!(
        "{} checked: {errors} errors, {} warnings, {} notes",
        args.files.len(),
        count(Severity::Warning),
        count(Severity::Note)
    ));
    if errors > 0 {
        return Err(Failure::new(
            Exit::Invalid,
            anyhow!("{errors} errors; mend them and check again"),
        ));
    }
    Ok(())
}
