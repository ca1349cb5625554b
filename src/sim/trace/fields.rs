//! Reads the numbers of a row, exactly.
//!
//! Decimal seconds become integer picoseconds digit by digit: a float in between would move
//! arrivals by an ulp and make two close rows swap.
//!
//! Worked number: `61.4965433` is 61_496_543_300_000 ps, not 61_496_543_299_999.

use super::error::Problem;

/// One second.
pub(super) const PICOS_PER_SECOND: i128 = 1_000_000_000_000;

/// Least number of tokens that a column may hold.
#[derive(Clone, Copy)]
pub(super) enum Least {
    /// Prompts: there is no request without one.
    One,
    /// Outputs: an empty answer is an answer.
    Zero,
}

impl Least {
    /// What a token column should hold, in words.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::One => "a whole number of tokens from 1 to 4294967295 (no prompt is empty)",
            Self::Zero => "a whole number of tokens from 0 to 4294967295",
        }
    }

    /// Refuses a number that is too small or too large.
    pub(super) fn check(self, tokens: u64) -> Option<u32> {
        let least = match self {
            Self::One => 1,
            Self::Zero => 0,
        };
        u32::try_from(tokens).ok().filter(|tokens| *tokens >= least)
    }
}

/// The three fields of a row, or the problem that there are not three.
pub(super) fn three(line: u64, text: &str) -> Result<[&str; 3], Problem> {
    let mut fields = text.split(',');
    if let (Some(a), Some(b), Some(c), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    {
        return Ok([a.trim(), b.trim(), c.trim()]);
    }
    Err(Problem::new(line, "whole line", text, "three fields with commas between them"))
}

/// A number of tokens.
pub(super) fn tokens(
    line: u64,
    column: &'static str,
    field: &str,
    least: Least,
) -> Result<u32, Problem> {
    digits(field)
        .and_then(|tokens| least.check(tokens))
        .ok_or_else(|| Problem::new(line, column, field, least.expected()))
}

/// A whole number of plain digits: no sign, no blank, no overflow.
pub(super) fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Non-negative decimal seconds as picoseconds. Digits below a picosecond are cut; numbers with an
/// exponent, which some writers use for small ones, go through a float.
pub(super) fn seconds(text: &str) -> Option<i128> {
    if text.contains(['e', 'E']) {
        let value: f64 = text.parse().ok()?;
        let plausible = (0.0..1e12).contains(&value) && !text.starts_with('-');
        return plausible.then(|| libm::round(value * 1e12) as i128);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = i128::from(digits(whole)?);
    let picos = fraction_picos(fraction)?;
    Some(whole * PICOS_PER_SECOND + picos)
}

/// Digits after the point, as picoseconds. At least one digit.
pub(super) fn fraction_picos(fraction: &str) -> Option<i128> {
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = fraction.get(..12).unwrap_or(fraction);
    let scale = 10_i128.pow(12 - kept.len() as u32);
    Some(i128::from(digits(kept)?) * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_exactly() {
        assert_eq!(seconds("61.4965433"), Some(61_496_543_300_000));
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("1.5e-5"), Some(15_000_000));
        assert_eq!(seconds("0.30000000000000004"), Some(300_000_000_000));
    }

    #[test]
    fn seconds_that_are_none_are_refused() {
        for bad in ["", "-1", "-1e3", "NaN", "inf", "1.", ".5", "1e400", "1 2", "+1", "1,5"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn token_counts_are_bounded() {
        assert_eq!(Least::One.check(0), None);
        assert_eq!(Least::Zero.check(0), Some(0));
        assert_eq!(Least::Zero.check(1 << 32), None);
        assert_eq!(digits("18446744073709551616"), None);
    }
}
