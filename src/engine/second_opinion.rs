//! A second opinion on a page: the prometheus-parse crate, behind a rewrite.
//!
//! The crate cannot read a name with a colon, splits label values at commas and equals signs,
//! loses a line with a brace in one, and unescapes nothing. So each line is rewritten first, by
//! a walk of its own over the characters (not by our scanner, which is what is being checked): `:`
//! becomes `__`, troublesome characters between quotes become `%xx`, blanks, `{}` and trailing
//! commas go, and time stamps and exemplars are cut off. Comments are left out, so that each line
//! is one untyped sample and lines can be compared one by one.
//!
//! Worked number: of `acme/chat-8b, rev {7}` the crate alone makes nothing; rewritten it reads
//! `acme/chat-8b%2c%20rev%20%7b7%7d`, which is undone afterwards.

use super::exposition::{PageError, RawValue, Scan};
use std::collections::BTreeMap;

/// Whether both parsers read the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sample lines given to the other parser, without those that neither can read.
    pub fed: usize,
    /// Samples it returned.
    pub returned: usize,
    /// Samples that only one of the two has, or with another value.
    pub differing: usize,
}

impl Verdict {
    /// Both read the same, and nothing was lost.
    #[must_use]
    pub const fn agrees(self) -> bool {
        self.differing == 0 && self.fed == self.returned
    }
}

/// Reads the page with both parsers and compares them sample by sample.
pub fn compare(text: &str) -> Result<Verdict, PageError> {
    let mut balance: BTreeMap<String, i64> = BTreeMap::new();
    let mut scan = Scan::new(text)?;
    let mut refused = 0;
    while let Some(next) = scan.next_sample() {
        let Ok(sample) = next else {
            refused += 1;
            continue;
        };
        let labels = sample.labels.iter();
        let labels = labels.map(|(name, value)| (name.to_owned(), value.unescape().into_owned()));
        *balance.entry(canonical(sample.name, labels, sample.value)).or_default() += 1;
    }
    let lines = rewrite(text);
    let lines_fed = lines.len();
    let samples = read_rewritten(lines);
    let returned = samples.len();
    // A line that neither parser reads, as where a page is cut, is no difference between them.
    let fed = lines_fed - refused.min(lines_fed.saturating_sub(returned));
    for sample in &samples {
        let labels = sample
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), RawValue(&restore(value)).unescape().into_owned()));
        let prometheus_parse::Value::Untyped(value) = sample.value else { continue };
        *balance.entry(canonical(&sample.metric, labels, value)).or_default() -= 1;
    }
    let ours = balance.values().filter(|count| **count > 0).sum::<i64>();
    let theirs = -balance.values().filter(|count| **count < 0).sum::<i64>();
    let differing = usize::try_from(ours.max(theirs)).unwrap_or(usize::MAX);
    Ok(Verdict { fed, returned, differing })
}

/// The other parser's samples of rewritten lines, in their order.
#[must_use]
pub fn read_rewritten(lines: Vec<String>) -> Vec<prometheus_parse::Sample> {
    let lines = lines.into_iter().map(Ok);
    // Its only error is one of the line source, which has none.
    prometheus_parse::Scrape::parse(lines).map_or_else(|_| Vec::new(), |scrape| scrape.samples)
}

/// One sample as a line of text in which order and spelling of the labels no longer matter.
fn canonical(name: &str, labels: impl Iterator<Item = (String, String)>, value: f64) -> String {
    let labels: BTreeMap<String, String> = labels.collect();
    let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    format!("{} {labels:?} {bits:x}", name.replace(':', "__"))
}

/// The sample lines of a page as the other parser can bear them.
#[must_use]
pub fn rewrite(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(rewrite_line).collect()
}

fn rewrite_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    let head = line.find(['{', ' ', '\t']).unwrap_or(line.len());
    for c in line[..head].chars() {
        if c == ':' { out.push_str("__") } else { out.push(c) }
    }
    let mut rest = line[head..].trim_start();
    if let Some(labels) = rest.strip_prefix('{') {
        let end = rewrite_labels(labels, &mut out);
        rest = &labels[end..];
    }
    if let Some(value) = rest.split_whitespace().next() {
        out.push(' ');
        out.push_str(value);
    }
    out
}

/// Writes the label set, and returns where the text after its brace begins.
fn rewrite_labels(labels: &str, out: &mut String) -> usize {
    let start = out.len();
    let (mut quoted, mut escaped) = (false, false);
    out.push('{');
    for (at, c) in labels.char_indices() {
        match c {
            '"' if !escaped => {
                quoted = !quoted;
                out.push('"');
            }
            '}' if !quoted => {
                if out.ends_with(',') {
                    out.pop();
                }
                if out.len() == start + 1 {
                    out.pop();
                } else {
                    out.push('}');
                }
                return at + 1;
            }
            ' ' | '\t' if !quoted => {}
            '%' | ',' | '=' | '{' | '}' | '"' | '\\' | ' ' | '\t' | '\0'..='\x1f' if quoted => {
                out.push('%');
                for digit in [c as u32 >> 4, c as u32 & 15] {
                    out.extend(char::from_digit(digit, 16));
                }
            }
            _ => out.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    labels.len()
}

/// Undoes the `%xx` of a label value.
fn restore(value: &str) -> String {
    let mut parts = value.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) => {
                out.push(char::from(code));
                out.push_str(&part[2..]);
            }
            None => {
                out.push('%');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_crate_alone_reads_nothing_of_an_engine() {
        let line = r#"vllm:num_requests_waiting{engine="0"} 3.0"#.to_owned();
        assert!(read_rewritten(vec![line.clone()]).is_empty());
        assert_eq!(read_rewritten(rewrite(&line)).len(), 1);
    }

    #[test]
    fn lines_are_rewritten_and_values_restored() {
        let line = r#" vllm:x { a = "b,c={}%", } 9.4E6 17 # {t="1"} 2"#;
        assert_eq!(rewrite(line), [r#"vllm__x{a="b%2cc%3d%7b%7d%25"} 9.4E6"#]);
        assert_eq!(restore("b%2cc%3d%7b%7d%25"), "b,c={}%");
        assert_eq!(rewrite("x{} 3\n# HELP x y\n\n"), ["x 3"]);
    }

    #[test]
    fn a_sample_that_only_one_parser_reads_is_counted() {
        let verdict = compare("x 1\ny 1 2 3\n").unwrap();
        assert_eq!(verdict, Verdict { fed: 2, returned: 2, differing: 1 });
        assert!(!verdict.agrees());
    }

    #[test]
    fn a_line_that_neither_parser_reads_is_no_difference() {
        let verdict = compare("in_the_middle\"} \nx 1\ny{a=\"cut").unwrap();
        assert_eq!(verdict, Verdict { fed: 1, returned: 1, differing: 0 });
    }

    proptest! {
        #[test]
        fn both_parsers_agree_on_any_label_value(value in any::<String>(), number in any::<f64>()) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let line = format!("vllm:x{{engine=\"0\",model_name=\"{escaped}\"}} {number:e}\n");
            let verdict = compare(&line).unwrap();
            prop_assert!(verdict.agrees(), "{verdict:?} {line}");
        }
    }
}
