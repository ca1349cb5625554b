//! What `check` finds: every problem with its file, document, path, line, value and a mend.
//!
//! A code names the rule for machines, the message says what is wrong, the mend what to do next.
//! Only errors stop a file from being used; a warning deserves a look, a note is good to know.
//!
//! Worked number: ten faults in one file are ten problems of one run, not ten runs.

use serde::Serialize;
use std::fmt;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can be used, and probably does not do what was meant.
    Warning,
    /// Good to know.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The rule, one word for machines, such as `UnknownField`.
    pub code: &'static str,
    /// The file as it was named.
    pub file: String,
    /// The document in the file, counted from 1; 0 where the whole file is meant.
    pub document: usize,
    /// Line in the file, counted from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Path in the document, such as `spec.pools[decode-h100].minReplicas`.
    pub path: String,
    /// What stands there, shortened.
    pub value: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub mend: Option<String>,
}

impl Problem {
    fn new(severity: Severity, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            file: String::new(),
            document: 0,
            line: 0,
            path: String::new(),
            value: None,
            message: message.into(),
            mend: None,
        }
    }

    /// A fault that stops the file from being used.
    pub(super) fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// Something that is probably not what was meant.
    pub(super) fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    /// Something that is good to know.
    pub(super) fn note(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message)
    }

    /// Where it is.
    pub(super) fn at(mut self, path: impl Into<String>, line: usize) -> Self {
        self.path = path.into();
        self.line = line;
        self
    }

    /// What stands there.
    pub(super) fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// What to do next.
    pub(super) fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {} {}", self.severity, self.code)?;
        if self.document > 0 {
            write!(f, " (document {})", self.document)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(mend) = &self.mend {
            write!(f, "; {mend}")?;
        }
        Ok(())
    }
}

/// The problems of one document, stamped with where they are.
pub(super) struct Report {
    file: String,
    document: usize,
    problems: Vec<Problem>,
    full: bool,
}

/// More than this from one document helps nobody, and bounds what a hostile file costs.
const MOST_PROBLEMS: usize = 500;

impl Report {
    pub(super) fn new(file: &str, document: usize) -> Self {
        Self { file: file.to_owned(), document, problems: Vec::new(), full: false }
    }

    pub(super) fn push(&mut self, mut problem: Problem) {
        if self.problems.len() >= MOST_PROBLEMS {
            self.full = true;
            return;
        }
        problem.file.clone_from(&self.file);
        problem.document = self.document;
        self.problems.push(problem);
    }

    /// Whether looking for more problems is of no use.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    pub(super) const fn len(&self) -> usize {
        self.problems.len()
    }

    pub(super) fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        if self.full {
            let message =
                format!("this document has more than the {MOST_PROBLEMS} problems listed");
            let mut last = Problem::error("TooManyProblems", message).mend("mend the first ones");
            last.file.clone_from(&self.file);
            last.document = self.document;
            self.problems.push(last);
        }
        self.problems
    }
}
