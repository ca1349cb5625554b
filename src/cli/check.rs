//! `spillgate check`: every problem of the given files at once.
//!
//! Standard output carries the problems, one a line or as JSON, and nothing else when there are
//! none. Worked number: a file with ten faults prints ten lines and exits 3; warnings and notes
//! alone exit 0.

use super::{Exit, Failure, complain, say};
use crate::policy::{self, Checked, Problem, Profiles, Severity, Source};
use anyhow::{Context, anyhow};
use std::io::Read;
use std::path::{Path, PathBuf};

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
    let checked = check_files(&args.files)?;
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

fn check_files(files: &[PathBuf]) -> Result<Checked, Failure> {
    let mut unreadable: Vec<Problem> = Vec::new();
    let mut texts = Vec::new();
    for file in files {
        let label = file.display().to_string();
        match policy::decode(&label, read_bounded(file)?) {
            Ok(text) => texts.push((label, text)),
            Err(problem) => unreadable.push(*problem),
        }
    }
    let sources: Vec<Source<'_>> =
        texts.iter().map(|(label, text)| Source { label, text }).collect();
    // Which profiles there are is the business of `profile`; here is where it is plugged in.
    let profiles = Profiles {
        find: &|_| None,
        names: Vec::new(),
        read: &|_| Err("documents of kind Profile are not read yet".to_owned()),
    };
    let mut checked = policy::check(&sources, &profiles);
    checked.problems.splice(0..0, unreadable);
    Ok(checked)
}

/// The file's bytes, one more than is allowed at most: an endless file ends here.
fn read_bounded(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(policy::MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}; is the path right?", file.display()))?;
    Ok(bytes)
}
