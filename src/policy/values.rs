//! Text values that carry a unit: durations, money, counts.
//!
//! A duration is written in h, m, s, ms, as `kubectl` and Go read them. `humantime` parses; months,
//! days and bare numbers, which it takes or which are easily mistaken, are refused first. Money is a
//! decimal text and becomes whole millionths of a dollar without passing through a float.
//!
//! Worked number: `0.05s` is 50 000 us, `1m30s` is 90 s, `"2.40"` is 2 400 000 uUSD.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spillgate_core::units::{MicroUsd, Micros, Span, Tokens};
use std::fmt;

/// Nothing here is longer than a year and a day.
const LONGEST: Micros = Micros(366 * 24 * 3_600_000_000);

/// A length of time in a manifest, printed as Go does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Micros);

/// Dollars in a manifest: a decimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub MicroUsd);

/// A number of tokens in a manifest: digits in a text, since it outgrows what JSON readers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub Tokens);

impl Time {
    /// `n` seconds.
    pub(super) const fn secs(n: u64) -> Self {
        Self(Micros(n.saturating_mul(1_000_000)))
    }

    /// In milliseconds, as the core counts windows.
    #[must_use]
    pub const fn span(self) -> Span {
        Span(self.0.0 / 1_000)
    }
}

/// A duration, or how to mend it.
pub(crate) fn duration(text: &str) -> Result<Time, String> {
    if text.starts_with('-') {
        return Err("must be > 0, for example 500ms".into());
    }
    if text.is_empty() || text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err("needs a unit, for example 500ms".into());
    }
    if text.len() > 40 {
        return Err("is too long, for example 1h30m".into());
    }
    let mut rest = text;
    while !rest.is_empty() {
        rest = one_part(rest)?;
    }
    let parsed = humantime::parse_duration(text)
        .map_err(|error| format!("is not a duration ({error}), for example 1m30s"))?;
    let micros = Micros(u64::try_from(parsed.as_micros()).unwrap_or(u64::MAX));
    if micros > LONGEST {
        return Err("is longer than a year (8784h)".into());
    }
    if u128::from(micros.0) * 1_000 != parsed.as_nanos() {
        return Err("is finer than a microsecond, for example 0.5ms".into());
    }
    match micros {
        Micros::ZERO => Err("must be > 0, for example 500ms".into()),
        _ => Ok(Time(micros)),
    }
}

/// Checks a number and its unit at the start of `text` and gives what follows.
fn one_part(text: &str) -> Result<&str, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(unit_at);
    let next_at = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(next_at);
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return Err("needs a number before each unit, for example 500ms".into());
    }
    match unit {
        "h" | "m" | "s" | "ms" => Ok(rest),
        "" => Err(format!("needs a unit after {number}, for example {number}ms")),
        "d" | "day" | "days" => {
            Err("has days, which are not fixed in length; use h, as in 24h".into())
        }
        "w" | "week" | "weeks" => Err("has weeks; use h, as in 168h".into()),
        "M" | "month" | "months" | "y" | "year" | "years" => {
            Err(format!("has `{unit}`, which has no fixed length; use h, m, s or ms"))
        }
        _ => Err(format!("has the unknown unit `{}`; use h, m, s or ms", unit.escape_debug())),
    }
}

/// Money, or how to mend it.
pub(super) fn money(text: &str) -> Result<Money, String> {
    if text.starts_with('-') {
        return Err("must not be negative".into());
    }
    if text.contains(['$', '€']) || text.to_ascii_lowercase().contains("usd") {
        return Err("is in US dollars without a sign, for example \"2.50\"".into());
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return Err("is not a decimal number, for example \"2.50\"".into());
    }
    if part.len() > 6 || whole.len() > 9 {
        return Err("has more than 9 digits before or 6 after the point".into());
    }
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(Money(MicroUsd(number(whole)? * 1_000_000 + number(&format!("{part:0<6}"))?)))
}

/// A whole number in quotes, or how to mend it.
pub(super) fn count(text: &str) -> Result<Count, String> {
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) || text.len() > 15 {
        return Err("must be digits in quotes, for example \"2000000\"".into());
    }
    match text.parse() {
        Ok(0) => Err("must be > 0; leave the field out for no limit".into()),
        Ok(tokens) => Ok(Count(Tokens(tokens))),
        Err(_) => Err("is too large".into()),
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 % 1_000 {
            0 => write!(f, "{}", self.span()),
            part => {
                let decimals = format!("{part:03}");
                write!(f, "{}.{}ms", self.0.0 / 1_000, decimals.trim_end_matches('0'))
            }
        }
    }
}

impl fmt::Display for Money {
    /// Cents at least: `2.50`, `0.000125`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0.0 % 1_000_000);
        let kept = decimals.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0.0 / 1_000_000, &decimals[..kept])
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.0)
    }
}

macro_rules! as_text {
    ($name:ident, $parse:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                $parse(&text).map_err(|mend| {
                    serde::de::Error::custom(format!("`{}` {mend}", text.escape_debug()))
                })
            }
        }
    };
}

as_text!(Time, duration);
as_text!(Money, money);
as_text!(Count, count);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_in_h_m_s_ms_are_read_and_printed_as_go_does() {
        for (text, micros, printed) in [
            ("0.05s", 50_000, "50ms"),
            ("1500ms", 1_500_000, "1s500ms"),
            ("90s", 90_000_000, "1m30s"),
            ("1h30m", 5_400_000_000, "1h30m"),
            ("0.5ms", 500, "0.5ms"),
        ] {
            let time = duration(text).unwrap();
            assert_eq!((time.0.0, time.to_string().as_str()), (micros, printed), "{text}");
        }
    }

    #[test]
    fn bare_numbers_days_months_and_negatives_are_refused_with_a_mend() {
        for (text, part) in [
            ("500", "needs a unit, for example 500ms"),
            ("", "needs a unit"),
            ("-60s", "must be > 0"),
            ("0ms", "must be > 0"),
            ("1M", "no fixed length"),
            ("1month", "no fixed length"),
            ("2days", "use h"),
            ("1w", "168h"),
            ("1h 30m", "unknown unit"),
            ("5min", "unknown unit"),
            ("9000h", "longer than a year"),
            ("99999999999h", "longer than a year"),
            ("1m30", "needs a unit after 30"),
            ("ms", "needs a number"),
            ("1.s", "needs a number"),
        ] {
            let mend = duration(text).unwrap_err();
            assert!(mend.contains(part), "{text}: {mend}");
        }
    }

    #[test]
    fn money_is_exact() {
        assert_eq!(money("2.50").unwrap().0, MicroUsd(2_500_000));
        assert_eq!(money("50").unwrap().to_string(), "50.00");
        assert_eq!(money("0.000125").unwrap().to_string(), "0.000125");
        for bad in ["", "-1", "$5", "1e3", "1.2345678", ".5", "5.", "1,50", "NaN"] {
            assert!(money(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(micros in 1..LONGEST.0, dollars in 0..1_000_000_000_000_000_u64) {
            let time = Time(Micros(micros));
            prop_assert_eq!(duration(&time.to_string()), Ok(time));
            let price = Money(MicroUsd(dollars));
            prop_assert_eq!(money(&price.to_string()), Ok(price));
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in "[0-9hmsMdyw.\\- eE+$]{0,12}|.{0,45}") {
            let _ = (duration(&text), money(&text), count(&text));
        }
    }
}
