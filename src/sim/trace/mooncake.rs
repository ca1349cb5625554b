//! Mooncake's public traces: JSON lines with `timestamp` (milliseconds), `input_length`,
//! `output_length` and `hash_ids`.
//!
//! The published conversation trace has a clock of 3 s, give or take 3 ms: ten requests share each
//! instant. Replayed as it stands, that is a burst every three seconds that nobody sent, so rows
//! that share the instants of a coarse clock are spread evenly until the next one. The clock is
//! found, not assumed.
//!
//! Worked number: 8 rows on the 4 instants 0, 3000, 5999 and 12000 ms have gaps of 3000, 2999 and
//! 6001 ms: all within 1 % of whole multiples of the middle one, so the clock ticks every 3 s.

use super::error::Problem;
use super::fields::Least;
use super::{Placed, Row};
use crate::sim::rng::Rng;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A clock coarser than this is none: batches on purpose, and they stay as they are.
const COARSEST: i64 = 10_000_000_000_000;

const PICOS_PER_MS: i128 = 1_000_000_000;

#[derive(Deserialize)]
struct Line {
    timestamp: Option<Value>,
    input_length: Option<Value>,
    output_length: Option<Value>,
    hash_ids: Option<IgnoredAny>,
    chat_id: Option<IgnoredAny>,
}

/// Reads one row, and whether it has hash ids; times are picoseconds.
pub(super) fn row(line: u64, text: &str) -> Result<(Row, bool), Problem> {
    // A derived reader would also take an array in the order of the keys.
    if !text.trim_start().starts_with('{') {
        return Err(Problem::new(line, "whole line", text, "one JSON object a line"));
    }
    let parsed: Line = serde_json::from_str(text)
        .map_err(|error| Problem::new(line, "whole line", text, expected_json(&error)))?;
    if parsed.chat_id.is_some() {
        return Err(Problem::new(
            line,
            "chat_id",
            "",
            "no such key: it marks traces whose timestamps are seconds; convert them to \
             milliseconds and remove the key",
        ));
    }
    let row = Row {
        at: timestamp(line, parsed.timestamp)?,
        input: tokens(line, "input_length", parsed.input_length, Least::One)?,
        output: tokens(line, "output_length", parsed.output_length, Least::Zero)?,
    };
    Ok((row, parsed.hash_ids.is_some()))
}

/// What a line that is no JSON object of this shape should be.
fn expected_json(error: &serde_json::Error) -> String {
    format!("one JSON object a line ({error})")
}

fn timestamp(line: u64, value: Option<Value>) -> Result<i128, Problem> {
    let value = value.unwrap_or(Value::Null);
    let whole = value.as_u64().map(|ms| i128::from(ms) * PICOS_PER_MS);
    let float = || value.as_f64().filter(|ms| (0.0..1e15).contains(ms) && ms.is_sign_positive());
    whole.or_else(|| float().map(|ms| libm::round(ms * 1e9) as i128)).ok_or_else(|| {
        Problem::new(line, "timestamp", &value.to_string(), "milliseconds, not negative")
    })
}

fn tokens(
    line: u64,
    key: &'static str,
    value: Option<Value>,
    least: Least,
) -> Result<u32, Problem> {
    let value = value.unwrap_or(Value::Null);
    value
        .as_u64()
        .and_then(|tokens| least.check(tokens))
        .ok_or_else(|| Problem::new(line, key, &value.to_string(), least.expected()))
}

/// The tick of a coarse clock, in picoseconds, for sorted offsets: rows share instants (two a piece
/// or more), and nearly all gaps between instants are whole multiples of the median gap. `None`
/// where times tell rows apart.
fn clock(offsets: impl Iterator<Item = i64>) -> Option<i64> {
    let mut rows = 0_usize;
    let mut instants: Vec<i64> = offsets.inspect(|_| rows += 1).collect();
    instants.dedup();
    if instants.len() < 3 || rows < 2 * instants.len() {
        return None;
    }
    let mut gaps: Vec<i64> = instants.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let middle = gaps.len() / 2;
    let tick = *gaps.select_nth_unstable(middle).1;
    let regular = gaps.iter().filter(|gap| {
        let beside = (**gap + tick / 2) % tick - tick / 2;
        **gap > tick / 2 && beside.abs() <= tick / 100
    });
    (regular.count() * 100 >= gaps.len() * 95).then_some(tick)
}

/// Spreads sorted offsets over the ticks of their clock, in the order of the file, and says so.
pub(super) fn spread(rows: &mut [Placed], seed: u64) -> Option<String> {
    let tick = clock(rows.iter().map(|row| row.offset))?;
    let seconds = tick as f64 / 1e12;
    if tick > COARSEST {
        return Some(format!(
            "requests share instants {seconds} s apart: taken as batches and left as they are"
        ));
    }
    let mut random = Rng::named(seed, "spread");
    let mut draws: Vec<u64> = Vec::new();
    let mut begin = 0;
    while let Some(instant) = rows.get(begin).map(|row| row.offset) {
        let end = begin + rows[begin..].partition_point(|row| row.offset == instant);
        // An early tick must not be overtaken by the one before it.
        let room = rows.get(end).map_or(tick, |next| tick.min(next.offset - instant));
        draws.clear();
        draws.extend((begin..end).map(|_| random.below(room.unsigned_abs())));
        draws.sort_unstable();
        for (row, draw) in rows[begin..end].iter_mut().zip(&draws) {
            row.offset += *draw as i64;
        }
        begin = end;
    }
    Some(format!(
        "timestamps have a clock of {seconds} s: spread uniformly inside each tick (seed {seed})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_of(milliseconds: &[i64]) -> Option<i64> {
        clock(milliseconds.iter().map(|ms| ms * 1_000_000_000))
    }

    #[test]
    fn a_coarse_clock_is_found_although_it_jitters_and_skips() {
        let found = clock_of(&[0, 0, 3_000, 3_000, 5_999, 5_999, 12_000, 12_000]);
        assert_eq!(found, Some(3_000_000_000_000));
    }

    #[test]
    fn times_that_tell_rows_apart_are_no_coarse_clock() {
        assert_eq!(clock_of(&[0, 3_000, 6_000, 9_000]), None);
        assert_eq!(clock_of(&[0, 12_000, 41_500]), None);
        assert_eq!(clock_of(&[0, 0, 0, 0]), None);
        assert_eq!(clock_of(&[0, 0, 1_700, 1_700, 3_000, 3_000, 9_100, 9_100]), None);
        assert_eq!(clock_of(&[]), None);
    }

    #[test]
    fn seconds_are_not_taken_for_milliseconds() {
        let line = r#"{"chat_id":1,"timestamp":61.1,"input_length":3,"output_length":1}"#;
        let problem = row(2, line).expect_err("refused");
        assert!(problem.to_string().contains("line 2, chat_id"), "{problem}");
    }

    #[test]
    fn hostile_lines_are_refused_with_the_key() {
        for (text, key) in [
            (r#"{"timestamp":-1,"input_length":3,"output_length":1}"#, "timestamp"),
            (r#"{"timestamp":-0.0,"input_length":3,"output_length":1}"#, "timestamp"),
            (r#"{"timestamp":"0","input_length":3,"output_length":1}"#, "timestamp"),
            (r#"{"input_length":3,"output_length":1}"#, "timestamp"),
            (r#"{"timestamp":0,"input_length":0,"output_length":1}"#, "input_length"),
            (r#"{"timestamp":0,"input_length":1.5,"output_length":1}"#, "input_length"),
            (r#"{"timestamp":0,"input_length":1,"output_length":1e12}"#, "output_length"),
            (r#"{"timestamp":0,"timestamp":1,"input_length":1,"output_length":1}"#, "whole line"),
            ("[0,1,1,null,null]", "whole line"),
            ("{", "whole line"),
        ] {
            assert_eq!(row(1, text).expect_err(text).column, key, "{text}");
        }
    }
}
