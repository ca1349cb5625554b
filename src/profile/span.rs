//! Lengths of time in profile files: strings in h, m, s and ms.
//!
//! humantime reads them, and also takes days, months and years, which are refused here: `1M` is a
//! month to it and a typing error to everybody else.
//!
//! Worked number: `1h30m` is 5 400 000 ms.

use spillgate_core::units::Span;

/// Reads a length of time, or says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Span, String> {
    let units = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|unit| !unit.is_empty());
    for unit in units {
        if !matches!(unit, "h" | "m" | "s" | "ms") {
            return Err(format!("`{unit}` is not a unit of time here (h, m, s, ms are)"));
        }
    }
    let length = humantime::parse_duration(text).map_err(|error| format!("{error}"))?;
    let millis = u64::try_from(length.as_millis()).map_err(|_| "too long".to_owned())?;
    if length.subsec_nanos() % 1_000_000 != 0 {
        return Err("finer than a millisecond".to_owned());
    }
    Ok(Span(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_to_milliseconds_are_read() {
        assert_eq!(parse("1h30m"), Ok(Span(5_400_000)));
        assert_eq!(parse("2m"), Ok(Span(120_000)));
        assert_eq!(parse("250ms"), Ok(Span(250)));
    }

    #[test]
    fn days_months_and_bare_numbers_are_refused() {
        for bad in ["1d", "1M", "2 months", "90", "", "-3s", "1day", "0.3ms", "3µs"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
