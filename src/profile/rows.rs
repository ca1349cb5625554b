//! Reads steady-state measurements: a CSV with one row a measurement, picked by model, system,
//! precision and tensor parallelism.
//!
//! Columns are found by name (`model_path`, `system`, `precision`, `mode`, `isl`, `osl`,
//! `batch_size` as the number of clients, `tp_size`, `silicon_ttft_ms`, `silicon_tpot_ms`;
//! `backend_version` where there is one). A row of the group that cannot be used is refused in words
//! with its line; rows of other groups are counted.
//!
//! Worked number: line 12 with a TTFT of `nan` is refused as
//! `line 12: TTFT is NaN ms, not a positive number`.

use super::steady::{Latency, Measured, Point};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A file of measurements larger than this is refused unread.
pub const MAX_BYTES: usize = 64 << 20;
/// More lines than this are refused.
const MAX_ROWS: usize = 1_000_000;
/// A longer field than this is no name and no number.
const MAX_FIELD: usize = 4_096;

/// Which rows of a source belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `model_path`, such as `Qwen/Qwen3-32B`.
    pub model: String,
    /// `system`, such as `h100_sxm`.
    pub system: String,
    /// `precision`; empty where the source leaves it empty.
    pub precision: String,
    /// `tp_size`.
    pub tensor_parallel: u32,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, system, precision, tensor_parallel } = self;
        write!(f, "model {model}, system {system}, precision '{precision}', tp {tensor_parallel}")
    }
}

/// Why measurements cannot be read at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RowsError {
    /// The file is too large.
    #[error("the file has more than {MAX_BYTES} bytes; cut it down to the rows of one model")]
    TooLarge,
    /// It has too many rows.
    #[error("line {0}: more than {MAX_ROWS} rows; cut the file down to the rows of one model")]
    TooMany(u64),
    /// It has no rows.
    #[error("the file has no header line; a CSV with a header and one row a measurement is needed")]
    Empty,
    /// A column that is needed is not there.
    #[error("no column `{0}`; needed are {needed}", needed = NEEDED.join(", "))]
    NoColumn(&'static str),
    /// No row of the group.
    #[error("no usable row of {group}; {hint}")]
    NoRow {
        /// What was asked for.
        group: String,
        /// What there is instead.
        hint: String,
    },
}

/// So many other groups are named where none is of the model asked for.
const MOST_HINTED: usize = 20;

const NEEDED: [&str; 10] = [
    "model_path",
    "system",
    "precision",
    "mode",
    "isl",
    "osl",
    "batch_size",
    "tp_size",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
];

/// One usable row and its line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) line: u64,
    pub(crate) measured: Measured,
}

/// One row of the group that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its line in the file, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// The rows of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub(crate) used: Vec<Row>,
    /// Rows that were refused, by line.
    pub refused: Vec<Refusal>,
    /// Rows of other groups.
    pub other_groups: u64,
    /// Engine versions that the used rows name.
    pub versions: BTreeSet<String>,
}

/// Where each needed column stands, and the version's if there is one.
struct Columns {
    needed: [usize; NEEDED.len()],
    version: Option<usize>,
}

impl Columns {
    fn find(header: &csv::ByteRecord) -> Result<Self, RowsError> {
        let position =
            |name: &str| header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let mut needed = [0; NEEDED.len()];
        for (at, name) in needed.iter_mut().zip(NEEDED) {
            *at = position(name).ok_or(RowsError::NoColumn(name))?;
        }
        Ok(Self { needed, version: position("backend_version") })
    }
}

/// Counts lines by the bytes: csv's own count is one too low where lines end in CRLF.
struct Place {
    at: usize,
    line: u64,
}

impl Place {
    /// The line, from 1, on which a record starts. Records come in order.
    fn line_of(&mut self, bytes: &[u8], record: &csv::ByteRecord) -> u64 {
        let mut start = record.position().map_or(self.at, |at| at.byte() as usize).max(self.at);
        while matches!(bytes.get(start), Some(b'\r' | b'\n')) {
            start += 1;
        }
        let passed = bytes.get(self.at..start).unwrap_or_default();
        self.line += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.at = start;
        self.line
    }
}

/// Reads the rows of `group` from the bytes of a CSV file.
///
/// # Errors
/// If it is no such file, or holds no usable row of the group.
pub fn read(bytes: &[u8], group: &Group) -> Result<Rows, RowsError> {
    if bytes.len() > MAX_BYTES {
        return Err(RowsError::TooLarge);
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let header = reader.byte_headers().map_err(|_| RowsError::Empty)?.clone();
    if header.is_empty() {
        return Err(RowsError::Empty);
    }
    let columns = Columns::find(&header)?;
    let mut rows =
        Rows { used: Vec::new(), refused: Vec::new(), other_groups: 0, versions: BTreeSet::new() };
    let mut seen = BTreeMap::new();
    let mut others = BTreeSet::new();
    let mut record = csv::ByteRecord::new();
    let mut count = 0;
    let mut place = Place { at: 0, line: 1 };
    loop {
        // The bytes are all here, so reading them can end but not fail.
        if !reader.read_byte_record(&mut record).unwrap_or(false) {
            break;
        }
        let line = place.line_of(bytes, &record);
        count += 1;
        if count > MAX_ROWS {
            return Err(RowsError::TooMany(line));
        }
        let ends =
            record.iter().map(|field| memchr::memchr_iter(b'\n', field).count()).sum::<usize>();
        if ends > 0 {
            let why = format!("{ends} line ends inside a quote; is one not closed?");
            rows.refused.push(Refusal { line, why });
            continue;
        }
        if record.len() != header.len() {
            let why = format!("{} fields where the header has {}", record.len(), header.len());
            rows.refused.push(Refusal { line, why });
            continue;
        }
        match read_row(&record, &columns, group) {
            Ok(None) => {
                rows.other_groups += 1;
                note_other(&mut others, &record, &columns);
            }
            Ok(Some(measured)) => rows.keep(line, measured, &mut seen, &record, &columns),
            Err(why) => rows.refused.push(Refusal { line, why }),
        }
    }
    if rows.used.is_empty() {
        return Err(RowsError::NoRow {
            group: group.to_string(),
            hint: hint(&rows, &others, group),
        });
    }
    Ok(rows)
}

impl Rows {
    /// Keeps a usable row, unless it repeats one word by word.
    fn keep(
        &mut self,
        line: u64,
        measured: Measured,
        seen: &mut BTreeMap<[u64; 5], u64>,
        record: &csv::ByteRecord,
        columns: &Columns,
    ) {
        let Measured { point, latency } = measured;
        let key = [point.concurrency, point.isl, point.osl, latency.ttft, latency.tpot];
        if let Some(first) = seen.get(&key.map(f64::to_bits)) {
            let why = format!("duplicate of line {first}");
            self.refused.push(Refusal { line, why });
            return;
        }
        seen.insert(key.map(f64::to_bits), line);
        let version = columns.version.map(|at| text(record, at)).unwrap_or_default();
        let version = if version.is_empty() { "unstated".to_owned() } else { version };
        self.versions.insert(version);
        self.used.push(Row { line, measured });
    }
}

/// A row of the group as a measurement; `None` for another group; or what is wrong with it.
fn read_row(
    record: &csv::ByteRecord,
    columns: &Columns,
    group: &Group,
) -> Result<Option<Measured>, String> {
    let [model, system, precision, mode, isl, osl, clients, tp, ttft, tpot] =
        columns.needed.map(|at| text(record, at));
    if model != group.model || system != group.system || precision != group.precision {
        return Ok(None);
    }
    if mode != "agg" {
        let why = "prefill and decode ran apart, and a step that does both is fitted";
        return Err(format!("mode is `{mode}`, not `agg`: {why}"));
    }
    if positive("tp_size", "", &tp)? != f64::from(group.tensor_parallel) {
        return Ok(None);
    }
    let point = Point {
        concurrency: whole("concurrency (batch_size)", &clients)?,
        isl: whole("isl", &isl)?,
        osl: whole("osl", &osl)?,
    };
    if point.osl < 2.0 {
        return Err("osl is 1: one output token has no time between tokens".to_owned());
    }
    let latency =
        Latency { ttft: positive("TTFT", " ms", &ttft)?, tpot: positive("TPOT", " ms", &tpot)? };
    const HOUR_MS: f64 = 3_600_000.0;
    if latency.ttft > HOUR_MS || latency.tpot > HOUR_MS {
        return Err("a latency of more than an hour; are these milliseconds?".to_owned());
    }
    Ok(Some(Measured { point, latency }))
}

/// A field as text, without the blanks around it; cut where it is absurdly long.
fn text(record: &csv::ByteRecord, at: usize) -> String {
    let field = record.get(at).unwrap_or_default().trim_ascii();
    String::from_utf8_lossy(field.get(..MAX_FIELD).unwrap_or(field)).into_owned()
}

fn positive(name: &str, unit: &str, text: &str) -> Result<f64, String> {
    if text.is_empty() {
        return Err(format!("{name} is missing"));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(value) => Err(format!("{name} is {value}{unit}, not a positive number")),
        Err(_) => {
            let start: String = text.chars().take(40).collect();
            Err(format!("{name} is `{start}`, not a number"))
        }
    }
}

fn whole(name: &str, text: &str) -> Result<f64, String> {
    let value = positive(name, "", text)?;
    if value.fract() == 0.0 && value <= 10_000_000.0 {
        Ok(value)
    } else {
        Err(format!("{name} is {value}, not a whole number up to ten million"))
    }
}

/// Remembers a few other groups, so that a typing error can be seen.
fn note_other(others: &mut BTreeSet<String>, record: &csv::ByteRecord, columns: &Columns) {
    let [model, system, precision, _, _, _, _, tp, _, _] =
        columns.needed.map(|at| text(record, at));
    if others.len() < 200 {
        others.insert(format!("{model} {system} '{precision}' tp {tp}"));
    }
}

fn hint(rows: &Rows, others: &BTreeSet<String>, group: &Group) -> String {
    if let Some(first) = rows.refused.first() {
        return format!("{} were refused, the first: {first}", rows.refused.len());
    }
    if others.is_empty() {
        return "the file has a header and no row".to_owned();
    }
    // Groups of the same model first: what was mistyped is then the system, precision or tp.
    let wanted = group.model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let near = |other: &&str| !wanted.is_empty() && other.to_ascii_lowercase().contains(&wanted);
    let all = || others.iter().map(String::as_str);
    let (same, rest): (Vec<&str>, Vec<&str>) = all().partition(near);
    let some: Vec<&str> = if same.is_empty() { rest } else { same };
    let left = some.len().saturating_sub(MOST_HINTED);
    let more = if left > 0 { format!(" and {left} more") } else { String::new() };
    let some = &some[..some.len() - left];
    format!("the file has {}{more}", some.join("; "))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
