//! What is wrong with a trace: where, what stands there, and what should.
//!
//! A bad row is never skipped: a replay of half a trace looks like a replay. The first twenty bad
//! lines are told at once, so that a file is mended in one go.
//!
//! Worked number: a file whose every row is bad gives 20 problems and reading stops at line 21.

use std::fmt;

/// Bad lines told at once; reading stops after them.
pub(super) const PROBLEMS_TOLD: usize = 20;

/// One bad line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the file, from 1.
    pub line: u64,
    /// Column or key, or "whole line".
    pub column: &'static str,
    /// What stands there, shortened and escaped.
    pub value: String,
    /// What should stand there.
    pub expected: String,
}

impl Problem {
    /// A problem with one value of a line.
    pub(super) fn new(
        line: u64,
        column: &'static str,
        value: &str,
        expected: impl Into<String>,
    ) -> Self {
        const SHOWN: usize = 60;
        let mut shown: String = value.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        if value.chars().nth(SHOWN).is_some() {
            shown.push_str("...");
        }
        Self { line, column, value: shown, expected: expected.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, value, expected } = self;
        write!(f, "line {line}, {column}: found \"{value}\", expected {expected}")
    }
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("cannot read trace {trace}; check the path and its permissions")]
    Io {
        /// The trace.
        trace: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nothing in it.
    #[error("trace {trace} holds no request; give a file with at least one row")]
    Empty {
        /// The trace.
        trace: String,
    },
    /// The first line is not one of a known format.
    #[error(
        "trace {trace}, line 1: \"{found}\" starts no format that is known; expected the header \
         `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure), the header \
         `arrival_s,input_tokens,output_tokens`, or JSON lines with `timestamp`, `input_length` \
         and `output_length` (Mooncake){hint}"
    )]
    UnknownFormat {
        /// The trace.
        trace: String,
        /// Start of its first line.
        found: String,
        /// What to do about a format that was recognised but is not read.
        hint: &'static str,
    },
    /// Rows that cannot be used.
    #[error("trace {trace} has {}:{}", count(problems, *stopped), list(problems))]
    Rows {
        /// The trace.
        trace: String,
        /// The first bad lines.
        problems: Vec<Problem>,
        /// Reading stopped here: there may be more.
        stopped: bool,
    },
    /// A line longer than any row can be.
    #[error(
        "trace {trace}, line {line}: longer than {limit} bytes; a trace is a text file with one \
         request a line"
    )]
    LineTooLong {
        /// The trace.
        trace: String,
        /// The line.
        line: u64,
        /// The limit.
        limit: usize,
    },
    /// More requests than are held in memory.
    #[error(
        "trace {trace} gives {rows} requests or more, the limit is {limit}; replay a part of it"
    )]
    TooManyRows {
        /// The trace.
        trace: String,
        /// Requests counted or asked for.
        rows: u64,
        /// The limit.
        limit: u64,
    },
    /// Longer than virtual time can tell.
    #[error("trace {trace} spans more than {days} days; replay a part of it")]
    TooLong {
        /// The trace.
        trace: String,
        /// The limit.
        days: u64,
    },
}

fn count(problems: &[Problem], stopped: bool) -> String {
    match problems.len() {
        1 => "1 bad line".to_owned(),
        n if stopped => format!("at least {n} bad lines (reading stopped after these)"),
        n => format!("{n} bad lines"),
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
