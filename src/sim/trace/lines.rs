//! Reads a trace line by line, in bounded memory, and hashes its bytes on the way.
//!
//! Lines may end with LF or CR LF and the last one with nothing. Blank lines may only stand at the
//! end: one between rows may be a row that was lost.
//!
//! Worked number: the buffer never holds more than one line of 1 MiB and one byte, whatever the
//! file.

use super::MAX_ROWS;
use super::error::TraceError;
use sha2::{Digest, Sha256};
use std::io::{BufRead, Read};

/// Longest line that is read, its end included.
pub(super) const MAX_LINE: usize = 1 << 20;

/// The lines of one trace.
pub(super) struct Lines<'a, R> {
    trace: &'a str,
    input: R,
    hash: Sha256,
    buffer: Vec<u8>,
    number: u64,
}

impl<'a, R: BufRead> Lines<'a, R> {
    /// Starts at the first line of `input`; `trace` names it in errors.
    pub(super) fn new(trace: &'a str, input: R) -> Self {
        Self { trace, input, hash: Sha256::new(), buffer: Vec::new(), number: 0 }
    }

    /// The next line's number and bytes, without its end (and without a byte order mark).
    pub(super) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, TraceError> {
        let trace = || self.trace.to_owned();
        self.buffer.clear();
        let read = (&mut self.input)
            .take(MAX_LINE as u64 + 1)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|source| TraceError::Io { trace: trace(), source })?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read > MAX_LINE {
            return Err(TraceError::LineTooLong {
                trace: trace(),
                line: self.number,
                limit: MAX_LINE,
            });
        }
        // One more than the rows, for a header; blank lines count, so that they too are bounded.
        if self.number > MAX_ROWS + 1 {
            return Err(TraceError::TooManyRows {
                trace: trace(),
                rows: self.number,
                limit: MAX_ROWS,
            });
        }
        self.hash.update(&self.buffer);
        let mut line = self.buffer.as_slice();
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.number == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        Ok(Some((self.number, line)))
    }

    /// SHA-256 of all bytes read, in lower-case hexadecimal.
    pub(super) fn sha256(self) -> String {
        self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
