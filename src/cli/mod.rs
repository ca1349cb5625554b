//! The command line: one short function a verb, a file each.
//!
//! Standard output carries the result only; standard error carries progress and complaints.
//! Exit codes are part of the contract and stand in [`Exit`].

mod check;
mod files;
mod fit;
mod inspect;
mod replay;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Autoscaler for LLM inference on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "spillgate", version, max_term_width = 98)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a policy on a traffic trace, offline, or a recorded flight again
    Replay(replay::Args),
    /// Show what Spillgate understands of an engine's /metrics
    Inspect(inspect::Args),
    /// Fit step-time coefficients to measurements
    Fit(Box<fit::Args>),
    /// Find every problem of policies and profiles at once
    Check(check::Args),
}

/// How a run ended, as the shell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Failed at run time: I/O, network.
    Failed = 1,
    /// Invalid policy, profile or trace.
    Invalid = 3,
    /// A `--require` gate was not met.
    GateMissed = 4,
    /// Decisions differ from the expected ones.
    Differs = 5,
}

/// An error and the exit code it deserves.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// An input (policy, profile, trace, page) that is wrong.
    pub(crate) fn invalid(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Invalid, error: error.into() }
    }
    /// Ends with `exit` and this message.
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: Exit::Failed, error }
    }
}

/// Parses the command line, runs the verb, and turns what happened into an exit code.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Replay(args) => replay::run(&args),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Fit(args) => fit::run(&args),
        Verb::Check(args) => check::run(&args),
    };
    match outcome {
        Ok(()) if LOST.load(Ordering::Relaxed) => ExitCode::from(Exit::Failed as u8),
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit, error }) => {
            complain(&format!("error: {error:#}"));
            ExitCode::from(exit as u8)
        }
    }
}

/// Part of the result could not be written to standard output.
static LOST: AtomicBool = AtomicBool::new(false);

/// One line on standard output. A reader that went away hears no more, and the exit code stands;
/// a full disk under a redirection is a failed run.
pub(crate) fn say(text: &str) {
    let written = writeln!(std::io::stdout().lock(), "{text}");
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        complain(&format!("error: the result could not be written to standard output: {error}"));
    }
}

/// One line on standard error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
