//! Numbers as expositions write them, read fast and exactly.
//!
//! Most values of a page are short decimals (`3.0`, `0.005`, `1048576`): up to fifteen digits and
//! one point. Both the digits and the power of ten are then exact in a double, so one division
//! gives the correctly rounded value. Everything else (exponents, `NaN`, `+Inf`, long fractions)
//! goes to the standard parser.
//!
//! Worked number: `0.005` is the digits 5 over 10^3, and `5.0 / 1000.0` is the double nearest to
//! 0.005, bit for bit what `str::parse` gives.

const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The value of a token, `None` if it is not a number.
pub(crate) fn number(token: &str) -> Option<f64> {
    short_decimal(token.as_bytes()).or_else(|| token.parse().ok())
}

/// The value of up to fifteen digits with at most one point; `None` for anything else.
#[inline]
pub(crate) fn short_decimal(bytes: &[u8]) -> Option<f64> {
    decimal_prefix(bytes).filter(|(_, length)| *length == bytes.len()).map(|(value, _)| value)
}

/// The short decimal that `bytes` begin with, and its length.
#[inline]
pub(crate) fn decimal_prefix(bytes: &[u8]) -> Option<(f64, usize)> {
    let (whole, point) = digits(bytes, 0);
    if bytes.get(point) != Some(&b'.') {
        return (0 < point && point < 16).then_some((whole as i64 as f64, point));
    }
    let (all, end) = digits(&bytes[point + 1..], whole);
    // The signed conversion is the fast one.
    let value = all as i64 as f64;
    let fine = 0 < point + end && point + end < 16;
    fine.then(|| (if end == 0 { value } else { value / POWERS[end] }, point + 1 + end))
}

/// Puts the digits that `bytes` begin with behind those of `so_far`; also says how many they are.
/// It stops at sixteen: then the result is too long to be used.
#[inline]
fn digits(bytes: &[u8], so_far: u64) -> (u64, usize) {
    let mut value = so_far;
    let mut length = 0;
    while length < 16
        && let Some(byte) = bytes.get(length)
        && byte.is_ascii_digit()
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        length += 1;
    }
    (value, length)
}

/// A non-negative number times `scale`, rounded to a whole one; `None` if it is negative, not
/// finite, or too large to count.
pub(crate) fn whole(value: f64, scale: f64) -> Option<u64> {
    const EXACT: f64 = 4_503_599_627_370_496.0; // 2^52: from here on doubles are whole
    let scaled = value * scale;
    if !(0.0..1.8e19).contains(&scaled) {
        return None;
    }
    Some(if scaled >= EXACT { scaled as u64 } else { (scaled + 0.5) as i64 as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_tokens_are_read_or_refused() {
        assert_eq!(number("9.4E6"), Some(9_400_000.0));
        assert_eq!(number("2.097152e+06"), Some(2_097_152.0));
        assert_eq!(number("+Inf"), Some(f64::INFINITY));
        assert_eq!(number("5."), Some(5.0));
        assert_eq!(number(".5"), Some(0.5));
        assert!(number("NaN").is_some_and(f64::is_nan));
        for bad in ["", ".", "-", "1.2.3", "0x10", "1_000", "seven"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_none_and_not_zero() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
            assert_eq!(whole(bad, 1.0), None);
        }
        assert_eq!(whole(0.0049, 1e6), Some(4_900));
    }

    proptest! {
        #[test]
        fn the_fast_path_gives_the_same_bits_as_the_standard_parser(text in "[0-9]{0,9}\\.?[0-9]{0,9}") {
            prop_assert_eq!(number(&text).map(f64::to_bits), text.parse::<f64>().ok().map(f64::to_bits));
        }
    }
}
