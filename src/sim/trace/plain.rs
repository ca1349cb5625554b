//! Spillgate's own trace: `arrival_s,input_tokens,output_tokens`, what the generator writes and the
//! easiest to make by hand.
//!
//! Worked number: `2.400,1155,211` is a prompt of 1 155 tokens that arrives after 2.4 s and is
//! answered with 211.

use super::Row;
use super::error::Problem;
use super::fields::{self, Least};
use crate::sim::request::Request;
use std::fmt::Write;

/// First line of the format.
pub(super) const HEADER: &str = "arrival_s,input_tokens,output_tokens";

/// Reads one row.
pub(super) fn row(line: u64, text: &str) -> Result<Row, Problem> {
    let [time, input, output] = fields::three(line, text)?;
    Ok(Row {
        at: fields::seconds(time).ok_or_else(|| {
            Problem::new(line, "arrival_s", time, "seconds such as 12.345, not negative")
        })?,
        input: fields::tokens(line, "input_tokens", input, Least::One)?,
        output: fields::tokens(line, "output_tokens", output, Least::Zero)?,
    })
}

/// Writes requests, times cut to milliseconds.
#[must_use]
pub fn to_csv(requests: &[Request]) -> String {
    let mut text = format!("{HEADER}\n");
    for Request { at, input, output } in requests {
        let ms = at.0 / 1_000_000_000;
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}.{:03},{input},{output}", ms / 1_000, ms % 1_000);
    }
    text
}
