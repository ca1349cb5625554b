//! Azure's public LLM traces: `TIMESTAMP,ContextTokens,GeneratedTokens`, as published.
//!
//! Times have up to seven fractional digits (or none), a blank or a `T` before the clock, and no
//! zone, `Z` or `+00:00`: always UTC, never the zone of the machine that replays.
//!
//! Worked number: `2026-01-15 09:00:00.9999999` and `2026-01-15 09:00:01` are 0.1 us apart, that is
//! 100_000 ps.

use super::Row;
use super::error::Problem;
use super::fields::{self, Least, PICOS_PER_SECOND};

/// First line of the format.
pub(super) const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

const EXPECTED: &str = "a UTC time such as 2023-11-16 18:15:46.6805900";

/// Reads one row; times are picoseconds since the Unix epoch.
pub(super) fn row(line: u64, text: &str) -> Result<Row, Problem> {
    let [time, input, output] = fields::three(line, text)?;
    Ok(Row {
        at: timestamp(time).ok_or_else(|| Problem::new(line, "TIMESTAMP", time, EXPECTED))?,
        input: fields::tokens(line, "ContextTokens", input, Least::One)?,
        output: fields::tokens(line, "GeneratedTokens", output, Least::Zero)?,
    })
}

/// Picoseconds since the Unix epoch.
fn timestamp(text: &str) -> Option<i128> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let &[
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b' ' | b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
    ] = whole.as_bytes()
    else {
        return None;
    };
    let year = number(&[y1, y2, y3, y4], 0, 9_999)?;
    let month = number(&[m1, m2], 1, 12)?;
    let day = number(&[d1, d2], 1, days_of(year, month))?;
    let hour = number(&[h1, h2], 0, 23)?;
    let minute = number(&[n1, n2], 0, 59)?;
    let second = number(&[s1, s2], 0, 59)?;
    if fraction.len() > 12 {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(i128::from(seconds) * PICOS_PER_SECOND + fields::fraction_picos(fraction)?)
}

/// Digits as a number within bounds.
fn number(digits: &[u8], least: i64, most: i64) -> Option<i64> {
    let value = digits.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })?;
    (least..=most).contains(&value).then_some(value)
}

const fn days_of(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar (Hinnant's `days_from_civil`: years
/// begin in March, so that the leap day is the last).
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_count_from_the_epoch() {
        assert_eq!(days_since_epoch(1970, 1, 1), 0);
        assert_eq!(days_since_epoch(1969, 12, 31), -1);
        assert_eq!(days_since_epoch(2000, 3, 1), 11_017);
        assert_eq!(days_since_epoch(2023, 11, 16), 19_677);
    }

    #[test]
    fn every_published_form_of_a_time_is_read() {
        let base = timestamp("2024-05-10 00:00:00").expect("plain");
        assert_eq!(timestamp("2024-05-10T00:00:00Z"), Some(base));
        assert_eq!(timestamp("2024-05-10 00:00:00.0099300+00:00"), Some(base + 9_930_000_000));
        assert_eq!(timestamp("2024-05-10 00:00:00.0000001"), Some(base + 100_000));
    }

    #[test]
    fn times_that_do_not_exist_are_refused() {
        for bad in [
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-01-01 24:00:00",
            "2023-01-01 00:00:60",
            "2023-01-01 00:00:00.",
            "2023-01-01 00:00:00.1234567890123",
            "2023-01-01 00:00:00+02:00",
            "2023-01-01",
            "1700000000",
            "",
        ] {
            assert_eq!(timestamp(bad), None, "{bad}");
        }
    }
}
