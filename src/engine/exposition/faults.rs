//! What can be wrong with a page, and with a line of it, in words.
//!
//! Worked number: a label set that is open at the end of line 7 is `line 7: the label set is not
//! closed; the page may be cut short`.

use super::{MAX_BODY, MAX_LABELS, MAX_LINE};

/// A page that is not read at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PageError {
    /// Larger than [`MAX_BODY`].
    #[error(
        "the page is larger than {MAX_BODY} bytes: this is no engine's /metrics; check the address"
    )]
    TooLarge,
    /// Not text.
    #[error("byte {at} of the page is not UTF-8: this is no metrics page; check the address")]
    NotText {
        /// Offset of the first bad byte.
        at: usize,
    },
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Malformed {
    /// Its number, from 1.
    pub line: u32,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Longer than [`MAX_LINE`].
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// More labels than [`MAX_LABELS`].
    #[error("more than {MAX_LABELS} labels")]
    TooManyLabels,
    /// Does not start with a metric name.
    #[error("does not start with a metric name")]
    Name,
    /// A label has no valid name.
    #[error("a label name is missing or invalid")]
    LabelName,
    /// `=` or the opening quote is missing.
    #[error("a label has no quoted value")]
    LabelValue,
    /// The label set does not end on this line.
    #[error("the label set is not closed; the page may be cut short")]
    Open,
    /// The last line does not end: of `waiting 120.0` a cut may leave `waiting 1`.
    #[error("the line does not end in a line break; the page may be cut short, so it is not read")]
    Unended,
    /// A label stands twice.
    #[error("a label stands twice")]
    LabelTwice,
    /// No number where the value should be.
    #[error("the value is missing or no number")]
    Value,
    /// Something after the value that is neither a time stamp nor an exemplar.
    #[error("something after the value is neither a time stamp nor an exemplar")]
    Trailing,
}
