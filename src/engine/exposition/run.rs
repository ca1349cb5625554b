//! Runs of bucket lines, the fast lane of the scanner.
//!
//! A histogram is a run of lines that differ in two places, the bound and the count. Here such a
//! line is read in one pass, without looking for its end first. Whatever is not written in just
//! that way is left where it is, for [`Scan::next_sample`] to read.
//!
//! Worked number: 500 of the 631 lines of a 60 KB page with five engines continue a run.

use super::{MAX_LINE, Scan};
use crate::engine::number::decimal_prefix;

/// A line that is the one before, but for its bound and count.
pub(crate) struct NextBucket {
    /// Line number, from 1.
    pub(crate) line: u32,
    /// Its `le`, never negative.
    pub(crate) bound: f64,
    /// Its value, never negative.
    pub(crate) value: f64,
}

impl Scan<'_> {
    /// The next line, if it continues a run of buckets in the plainest spelling.
    #[inline]
    pub(crate) fn next_bucket(&mut self) -> Option<NextBucket> {
        let last = self.last.as_ref()?;
        let span = self.spans[last.bound];
        let before = last.line.as_bytes();
        let head = &before[..usize::from(span.value)];
        let tail = &before[usize::from(span.value_end)..last.end]; // quote to brace
        let line = self.text.as_bytes().get(self.at..)?;
        let (bound, length) = decimal_prefix(line.strip_prefix(head)?)?;
        let rest = line[head.len() + length..].strip_prefix(tail)?.strip_prefix(b" ")?;
        let (value, length) = decimal_prefix(rest)?;
        let rest = rest[length..].strip_prefix(b"\n")?;
        let length = line.len() - rest.len();
        if length > MAX_LINE {
            return None;
        }
        self.at += length;
        self.line += 1;
        Some(NextBucket { line: self.line, bound, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::number::number;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// What is read of a page, as text, and how many lines the fast lane read of it.
    fn read(text: &str, fast: bool) -> (Vec<String>, usize) {
        let mut scan = Scan::new(text).expect("small page");
        let (mut seen, mut quick) = (Vec::new(), 0);
        let say = |line, bound: f64, value: f64| format!("{line}: {bound:?} {value:?}");
        while let Some(next) = scan.next_sample() {
            match next {
                Ok(sample) => {
                    let bound = sample.bound.map_or(f64::NAN, |raw| number(raw).unwrap_or(-1.0));
                    seen.push(say(sample.line, bound, sample.value));
                    while fast && let Some(bucket) = scan.next_bucket() {
                        seen.push(say(bucket.line, bucket.bound, bucket.value));
                        quick += 1;
                    }
                }
                Err(malformed) => seen.push(malformed.to_string()),
            }
        }
        (seen, quick)
    }

    #[test]
    fn a_run_is_read_in_the_fast_lane_up_to_the_first_other_line() {
        let page = "x{a=\"b\",le=\"1\",c=\"d\"} 1\nx{a=\"b\",le=\"2.5\",c=\"d\"} 3.0\n\
                    x{a=\"b\",le=\"10\",c=\"d\"} 40\nx{a=\"b\",le=\"+Inf\",c=\"d\"} 41\n";
        let (seen, quick) = read(page, true);
        assert_eq!(seen, ["1: 1.0 1.0", "2: 2.5 3.0", "3: 10.0 40.0", "4: inf 41.0"]);
        assert_eq!(quick, 2);
    }

    #[test]
    fn a_quote_behind_a_backslash_does_not_end_a_bound() {
        let page = "x{le=\"1\",c=\"d\"} 1\nx{le=\"2\\\",c=\"d\"} 2\n";
        let (seen, quick) = read(page, true);
        assert_eq!((seen.len(), quick), (2, 0));
        assert_eq!(seen, read(page, false).0);
    }

    #[test]
    fn a_line_that_is_too_long_stays_refused_in_a_run() {
        let line = |bound| format!("x{{a=\"{}\",le=\"{bound}\"}} 1\n", "b".repeat(MAX_LINE - 16));
        let page = line("1") + &line("1.000");
        let (seen, quick) = read(&page, true);
        assert_eq!((seen.len(), quick), (2, 0));
        assert_eq!(seen, read(&page, false).0);
    }

    proptest! {
        #[test]
        fn the_fast_lane_reads_what_the_ordinary_one_reads(
            lines in prop::collection::vec(
                (
                    select(vec!["x", "x", "x", "y", " x", "# x"]),
                    select(vec!["1", "2.5", "0.005", "10.", ".", "", "1e3", "-1", "1\\", "+Inf", "1 "]),
                    select(vec!["", ",", ",c=\"d\"", " ,c=\"d\""]),
                    select(vec![" ", " ", "  ", "", "\t"]),
                    select(vec!["3", "37.0", "1e2", "NaN", "-4", "", "3 17", "3 # {t=\"1\"} 2", "1234567890123456"]),
                    select(vec!["\n", "\n", "\n", "\r\n", " \n", "\n\n"]),
                ),
                0..12,
            ),
            cut in 0_usize..4,
        ) {
            let line = |(name, bound, tail, gap, value, end): &(&str, &str, &str, &str, &str, &str)| {
                format!("{name}{{a=\"b\",le=\"{bound}\"{tail}}}{gap}{value}{end}")
            };
            let page: String = lines.iter().map(line).collect();
            let page = &page[..page.len().saturating_sub(cut)];
            prop_assert_eq!(read(page, true).0, read(page, false).0);
        }
    }
}
