//! Numbers as people read them: thousands apart, a fixed number of decimals, a dash for what is not
//! known.
//!
//! Worked number: 193660 prints as `193,660`, 0.98214 of the requests as `98.21 %`.

/// A whole number with commas between its thousands.
pub(super) fn whole(number: u64) -> String {
    grouped(&number.to_string())
}

/// A number with this many decimals, thousands apart. What is not finite is a dash.
pub(super) fn fixed(number: f64, decimals: usize) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{number:.decimals$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    match text.split_once('.') {
        Some((whole, fraction)) => format!("{sign}{}.{fraction}", grouped(whole)),
        None => format!("{sign}{}", grouped(text)),
    }
}

/// As [`fixed`]; a dash where there is none.
pub(super) fn maybe(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| fixed(number, decimals))
}

/// A share of one as percent, rounded down: 99.996 % must not read as all of them.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        // A share that is a whole number of hundredths of a percent may lie an ulp below it.
        |share| format!("{} %", fixed(libm::floor(share * 1e4 + 1e-7) / 1e2, 2)),
    )
}

/// Seconds as `h:mm:ss.t`.
pub(super) fn clock(seconds: f64) -> String {
    let tenths = libm::round(seconds.max(0.0) * 10.0) as u64;
    let (minutes, tenths) = (tenths / 600, tenths % 600);
    format!("{}:{:02}:{:02}.{}", minutes / 60, minutes % 60, tenths / 10, tenths % 10)
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([whole(0), whole(999), whole(1_000)], ["0", "999", "1,000"]);
        assert_eq!(whole(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(fixed(-12_345.678, 1), "-12,345.7");
        assert_eq!(fixed(1_234.5, 0), "1,234");
        assert_eq!(fixed(f64::NAN, 1), "-");
    }

    #[test]
    fn a_share_is_never_rounded_up_to_all() {
        assert_eq!(percent(Some(0.999_99)), "99.99 %");
        assert_eq!(percent(Some(1.0)), "100.00 %");
        assert_eq!(percent(Some(0.29)), "29.00 %");
        assert_eq!(percent(None), "-");
    }

    #[test]
    fn times_read_as_a_clock() {
        assert_eq!(clock(0.04), "0:00:00.0");
        assert_eq!(clock(3_725.96), "1:02:06.0");
    }
}
