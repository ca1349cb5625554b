//! Reads the label set of a line into offsets.
//!
//! Worked number: `{engine="0",le="0.5"}` at offset 0 is two spans: names at 1 to 7 and 12 to 14,
//! values at 9 to 10 and 16 to 19.

use super::{MAX_LABELS, Problem, skip_blanks};
use memchr::memchr2;

/// Where one label's name and value lie in the line.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) name: u16,
    pub(super) name_end: u16,
    pub(super) value: u16,
    pub(super) value_end: u16,
}

impl Span {
    pub(super) fn name_of(self, line: &str) -> &str {
        &line[usize::from(self.name)..usize::from(self.name_end)]
    }

    pub(super) fn value_of(self, line: &str) -> &str {
        &line[usize::from(self.value)..usize::from(self.value_end)]
    }
}

/// `[a-zA-Z0-9_]`, looked up: each label of a page is walked byte by byte.
const LABEL_BYTES: [bool; 256] = {
    let mut fine = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        fine[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    fine
};

/// Reads labels up to the closing brace, into `spans`; returns the offset after the brace.
pub(super) fn read_labels(
    bytes: &[u8],
    mut at: usize,
    spans: &mut [Span; MAX_LABELS],
    used: &mut usize,
) -> Result<usize, Problem> {
    loop {
        at = skip_blanks(bytes, at);
        match bytes.get(at) {
            None => return Err(Problem::Open),
            Some(b'}') => return Ok(at + 1),
            Some(_) => {}
        }
        let name = at;
        while bytes.get(at).is_some_and(|byte| LABEL_BYTES[usize::from(*byte)]) {
            at += 1;
        }
        let name_end = at;
        if name == name_end || bytes[name].is_ascii_digit() {
            return Err(Problem::LabelName);
        }
        at = expect(bytes, skip_blanks(bytes, at), b'=')?;
        at = expect(bytes, skip_blanks(bytes, at), b'"')?;
        let value = at;
        at = closing_quote(bytes, at)?;
        let span = spans.get_mut(*used).ok_or(Problem::TooManyLabels)?;
        // Offsets fit: the line is at most MAX_LINE = u16::MAX bytes long.
        *span = Span {
            name: name as u16,
            name_end: name_end as u16,
            value: value as u16,
            value_end: at as u16,
        };
        *used += 1;
        at = skip_blanks(bytes, at + 1);
        match bytes.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return Ok(at + 1),
            Some(_) => return Err(Problem::LabelName),
            None => return Err(Problem::Open),
        }
    }
}

fn expect(bytes: &[u8], at: usize, wanted: u8) -> Result<usize, Problem> {
    match bytes.get(at) {
        Some(byte) if *byte == wanted => Ok(at + 1),
        Some(_) => Err(Problem::LabelValue),
        None => Err(Problem::Open),
    }
}

/// Offset of the quote that closes a value; a backslash hides the byte after it.
fn closing_quote(bytes: &[u8], mut at: usize) -> Result<usize, Problem> {
    loop {
        let rest = bytes.get(at..).ok_or(Problem::Open)?;
        at += memchr2(b'"', b'\\', rest).ok_or(Problem::Open)?;
        if bytes[at] == b'"' {
            return Ok(at);
        }
        at += 2;
    }
}

pub(super) fn label_twice(line: &str, spans: &[Span]) -> bool {
    let length = |span: &Span| span.name_end - span.name;
    spans.iter().enumerate().any(|(index, span)| {
        let same = |earlier: &&Span| length(earlier) == length(span);
        spans[..index]
            .iter()
            .filter(same)
            .any(|earlier| earlier.name_of(line) == span.name_of(line))
    })
}
