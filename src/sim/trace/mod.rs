//! Traces: recorded or generated requests that a replay sends again.
//!
//! The format is told by the first line, not by the name of the file. Every row is used or refused
//! with its line; times count from the first arrival; what was done to the rows on the way (sorted,
//! spread, kept although empty) is said in notes.
//!
//! Worked number: Azure's conversation trace of 2023 is 19 366 requests over 3 501.7 s, 5.5 a
//! second, with 22.4 million prompt tokens and 4.1 million generated ones.

mod azure;
mod error;
mod fields;
mod generate;
mod lines;
mod mooncake;
mod plain;
mod scale;
#[cfg(test)]
mod tests;

pub use error::{Problem, TraceError};
pub use generate::{Arrivals, Burst, Lengths, Traffic};
pub use plain::to_csv;
pub use scale::scaled;

use crate::sim::request::Request;
use error::PROBLEMS_TOLD;
use lines::Lines;
use spillgate_core::units::Picos;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Most requests of a trace, copies of `--scale` included: 800 MB of them.
pub const MAX_ROWS: u64 = 50_000_000;

/// Longest span of a trace: picoseconds in 64 bits end at 213 days, and a run needs some after it.
const MAX_DAYS: u64 = 100;
const MAX_SPAN: i128 = MAX_DAYS as i128 * 86_400 * fields::PICOS_PER_SECOND;

/// Requests in the order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// File name, for reports.
    pub name: String,
    /// The requests, sorted by arrival; the first is at 0 (or inside the first tick of a coarse
    /// clock).
    pub requests: Vec<Request>,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: String,
    /// What was done to the rows.
    pub notes: Vec<String>,
}

/// What is printed before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// From the first arrival to the last.
    pub span: Picos,
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Tokens to generate.
    pub output_tokens: u64,
    /// Requests that generate nothing.
    pub zero_output: u64,
}

impl Trace {
    /// Counts of the trace.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let last = self.requests.last().map_or(Picos::ZERO, |request| request.at);
        let first = self.requests.first().map_or(Picos::ZERO, |request| request.at);
        let sum = |tokens: fn(&Request) -> u32| {
            self.requests.iter().map(|request| u64::from(tokens(request))).sum()
        };
        Summary {
            span: last.less(first),
            requests: self.requests.len() as u64,
            input_tokens: sum(|request| request.input),
            output_tokens: sum(|request| request.output),
            zero_output: self.requests.iter().filter(|request| request.output == 0).count() as u64,
        }
    }
}

impl Summary {
    /// Mean arrivals a second; `None` where all arrive at once.
    #[must_use]
    pub fn mean_rate(&self) -> Option<f64> {
        (self.span > Picos::ZERO).then(|| self.requests as f64 / self.span.as_secs())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, input_tokens, output_tokens, zero_output, .. } = self;
        write!(f, "span {:.3} s, {requests} requests", self.span.as_secs())?;
        if let Some(rate) = self.mean_rate() {
            write!(f, " ({rate:.3} a second)")?;
        }
        write!(f, ", {input_tokens} input tokens, {output_tokens} output tokens, ")?;
        write!(f, "{zero_output} with 0 output tokens (kept)")
    }
}

/// Reads the trace at `path`. The seed only matters where times must be spread.
pub fn read(path: &Path, seed: u64) -> Result<Trace, TraceError> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let file = File::open(path)
        .map_err(|source| TraceError::Io { trace: path.display().to_string(), source })?;
    parse(&name, BufReader::with_capacity(1 << 16, file), seed)
}

/// Reads a trace from bytes; `name` stands in reports and errors.
pub fn parse(name: &str, input: impl BufRead, seed: u64) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(name, input);
    let mut reader =
        Reader { name, first: None, rows: Vec::new(), problems: Vec::new(), hashes: 0 };
    let Some(format) = format_of(name, &mut lines, &mut reader)? else {
        return Err(TraceError::Empty { trace: name.to_owned() });
    };
    let mut blank = None;
    while let Some((line, text)) = lines.next_line()? {
        if text.trim_ascii().is_empty() {
            blank = blank.or(Some(line));
            continue;
        }
        if let Some(line) = blank.take() {
            let expected = "a row (blank lines may only stand at the end)";
            reader.problems.push(Problem::new(line, "whole line", "", expected));
        }
        reader.line(format, line, text)?;
        if reader.problems.len() >= PROBLEMS_TOLD {
            return Err(reader.refuse(true));
        }
    }
    let sha256 = lines.sha256();
    reader.finish(format, sha256, seed)
}

/// One row as a format reads it: time in picoseconds from an origin of the format's own.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: i128,
    input: u32,
    output: u32,
}

/// A row placed relative to the first row of the file.
#[derive(Clone, Copy, Debug)]
struct Placed {
    offset: i64,
    input: u32,
    output: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Azure,
    Mooncake,
    Plain,
}

/// Tells the format by the first line. A Mooncake file has no header: its first line is a row.
fn format_of<R: BufRead>(
    name: &str,
    lines: &mut Lines<'_, R>,
    reader: &mut Reader<'_>,
) -> Result<Option<Format>, TraceError> {
    let Some((line, text)) = lines.next_line()? else { return Ok(None) };
    let text = text.trim_ascii();
    if text == azure::HEADER.as_bytes() {
        return Ok(Some(Format::Azure));
    }
    if text == plain::HEADER.as_bytes() {
        return Ok(Some(Format::Plain));
    }
    if text.starts_with(b"{") {
        reader.line(Format::Mooncake, line, text)?;
        return Ok(Some(Format::Mooncake));
    }
    let found = String::from_utf8_lossy(text);
    Err(TraceError::UnknownFormat {
        trace: name.to_owned(),
        found: found.chars().take(80).flat_map(char::escape_debug).collect(),
        hint: hint(text),
    })
}

/// What to do about files that are known and not read.
fn hint(first_line: &[u8]) -> &'static str {
    match first_line {
        [0x1f, 0x8b, ..] => "; this is gzip: unpack it first",
        [] => "; the first line is empty: remove it",
        text if text.ends_with(b",NumImages") => "; this counts images, whose tokens are not known",
        _ => "",
    }
}

/// Rows and problems so far.
struct Reader<'a> {
    name: &'a str,
    /// Time of the first good row: offsets count from it.
    first: Option<i128>,
    rows: Vec<Placed>,
    problems: Vec<Problem>,
    /// Rows with prefix hash ids.
    hashes: u64,
}

impl Reader<'_> {
    /// Uses a line or notes its problem.
    fn line(&mut self, format: Format, line: u64, text: &[u8]) -> Result<(), TraceError> {
        let row = std::str::from_utf8(text)
            .map_err(|_| {
                Problem::new(line, "whole line", &String::from_utf8_lossy(text), "UTF-8 text")
            })
            .and_then(|text| self.row(format, line, text));
        match row {
            Ok(row) => self.place(row),
            Err(problem) => {
                self.problems.push(problem);
                Ok(())
            }
        }
    }

    fn row(&mut self, format: Format, line: u64, text: &str) -> Result<Row, Problem> {
        match format {
            Format::Azure => azure::row(line, text),
            Format::Plain => plain::row(line, text),
            Format::Mooncake => {
                let (row, hashed) = mooncake::row(line, text)?;
                self.hashes += u64::from(hashed);
                Ok(row)
            }
        }
    }

    fn place(&mut self, row: Row) -> Result<(), TraceError> {
        let offset = row.at - *self.first.get_or_insert(row.at);
        let in_span = (-MAX_SPAN..=MAX_SPAN).contains(&offset);
        let Some(offset) = i64::try_from(offset).ok().filter(|_| in_span) else {
            return Err(TraceError::TooLong { trace: self.name.to_owned(), days: MAX_DAYS });
        };
        self.rows.push(Placed { offset, input: row.input, output: row.output });
        Ok(())
    }

    fn refuse(self, stopped: bool) -> TraceError {
        TraceError::Rows { trace: self.name.to_owned(), problems: self.problems, stopped }
    }

    /// Sorts, counts from the first arrival, spreads, and writes the notes.
    fn finish(self, format: Format, sha256: String, seed: u64) -> Result<Trace, TraceError> {
        if !self.problems.is_empty() {
            return Err(self.refuse(false));
        }
        let (name, hashes, mut rows) = (self.name.to_owned(), self.hashes, self.rows);
        let mut notes = sort(&mut rows).into_iter().collect::<Vec<_>>();
        let (Some(first), Some(last)) = (rows.first().copied(), rows.last().copied()) else {
            return Err(TraceError::Empty { trace: name });
        };
        if i128::from(last.offset) - i128::from(first.offset) > MAX_SPAN {
            return Err(TraceError::TooLong { trace: name, days: MAX_DAYS });
        }
        for row in &mut rows {
            row.offset -= first.offset;
        }
        if format == Format::Mooncake {
            notes.extend(mooncake::spread(&mut rows, seed));
        }
        if hashes > 0 {
            notes.push(format!(
                "hash ids of {hashes} rows are ignored: no prefix cache is modelled"
            ));
        }
        let requests: Vec<Request> = rows.into_iter().map(Placed::request).collect();
        let mut trace = Trace { name, requests, sha256, notes };
        let remarks = remarks(&trace.summary());
        trace.notes.extend(remarks);
        Ok(trace)
    }
}

impl Placed {
    /// The offset counts from the first arrival by now and is not negative.
    const fn request(self) -> Request {
        Request { at: Picos(self.offset.unsigned_abs()), input: self.input, output: self.output }
    }
}

/// Sorts by time, rows of one instant in the order of the file.
fn sort(rows: &mut [Placed]) -> Option<String> {
    let unsorted = rows.windows(2).filter(|pair| pair[1].offset < pair[0].offset).count();
    if unsorted == 0 {
        return None;
    }
    rows.sort_by_key(|row| row.offset);
    Some(format!("{unsorted} rows arrived before the row above them: sorted by time"))
}

/// What a reader should know about the counts.
fn remarks(summary: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    if summary.zero_output > 0 {
        let rows = summary.zero_output;
        notes.push(format!("requests with 0 output tokens, kept: {rows}"));
    }
    let plausible = 1.0 / 3_600.0..=10_000.0;
    if let Some(rate) = summary.mean_rate().filter(|rate| !plausible.contains(rate)) {
        notes.push(format!("{rate:.6} requests a second: are the timestamps in the right unit?"));
    }
    notes
}
