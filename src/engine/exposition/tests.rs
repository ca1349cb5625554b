//! The scanner against each leniency and each fault that writers are known for.

use super::*;
use proptest::prelude::*;

type Owned = (String, Vec<(String, String)>, f64);

fn scan(text: &str) -> (Vec<Owned>, Vec<Malformed>) {
    let mut scan = Scan::new(text).expect("small page");
    let (mut samples, mut bad) = (Vec::new(), Vec::new());
    while let Some(next) = scan.next_sample() {
        match next {
            Ok(sample) => samples.push((
                sample.name.to_owned(),
                sample
                    .labels
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.unescape().into_owned()))
                    .collect(),
                sample.value,
            )),
            Err(malformed) => bad.push(malformed),
        }
    }
    (samples, bad)
}

fn one(text: &str) -> Owned {
    let (mut samples, bad) = scan(text);
    assert_eq!(bad, [], "{text}");
    assert_eq!(samples.len(), 1, "{text}");
    samples.remove(0)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn label_values_keep_commas_braces_equals_and_escapes() {
    let text =
        r#"vllm:x{engine="1",model_name="acme/chat-8b, rev {7}",a="b=c",q="we\"ird\\\n\d"} 41"#;
    let (name, labels, value) = one(text);
    assert_eq!((name.as_str(), value), ("vllm:x", 41.0));
    let want = [
        ("engine", "1"),
        ("model_name", "acme/chat-8b, rev {7}"),
        ("a", "b=c"),
        ("q", "we\"ird\\\n\\d"),
    ];
    assert_eq!(labels, pairs(&want));
}

#[test]
fn a_value_without_a_backslash_is_not_copied() {
    assert!(matches!(RawValue("plain").unescape(), Cow::Borrowed("plain")));
    assert!(matches!(RawValue("a\\\\").unescape(), Cow::Owned(text) if text == "a\\"));
}

#[test]
fn trailing_commas_blanks_and_empty_sets_are_fine() {
    let (_, labels, value) = one("\n\n\nvllm:p{ model_name=\"m\", engine = \"0\", } 9.4E6\r\n");
    assert_eq!(value, 9_400_000.0);
    assert_eq!(labels, pairs(&[("model_name", "m"), ("engine", "0")]));
    assert_eq!(one("name{} 3"), one("name 3"));
    assert_eq!(one("\tname\t3\t"), one("name 3"));
    assert_eq!(one("name {a=\"b\"} 3").1, pairs(&[("a", "b")]));
}

#[test]
fn exemplars_time_stamps_and_open_metrics_lines_are_passed_over() {
    let bucket = r#"x_bucket{le="0.5"} 7 # {trace_id="t1}"} 0.41 1.7e9"#;
    assert_eq!(one(bucket).2, 7.0);
    assert_eq!(one("x 7 1768467600000").2, 7.0);
    assert_eq!(one("x 7 1768467600.123 # {} 1").2, 7.0);
    assert_eq!(scan("# UNIT x seconds\n# EOF\n"), (vec![], vec![]));
}

#[test]
fn each_fault_is_named_with_its_line_and_loses_no_other() {
    let faults = [
        ("<html>", Problem::Name),
        ("9lives 1", Problem::Name),
        ("x", Problem::Value),
        ("x{a=\"b\"}", Problem::Value),
        ("x seven", Problem::Value),
        ("x{a=\"b", Problem::Open),
        ("x{a=\"b\\", Problem::Open),
        ("x{a=\"b\"", Problem::Open),
        ("x{a", Problem::Open),
        ("x{a=b} 1", Problem::LabelValue),
        ("x{=\"b\"} 1", Problem::LabelName),
        ("x{a=\"b\" c=\"d\"} 1", Problem::LabelName),
        ("x{a=\"b\",a=\"c\"} 1", Problem::LabelTwice),
        ("x 1 2 3", Problem::Trailing),
        ("x 1 soon", Problem::Trailing),
    ];
    for (fault, problem) in faults {
        let (samples, bad) = scan(&format!("before 1\n{fault}\nafter 2\n"));
        assert_eq!(samples.len(), 2, "{fault}");
        assert_eq!(bad, [Malformed { line: 2, problem }], "{fault}");
    }
}

#[test]
fn limits_on_body_line_and_labels_hold() {
    assert_eq!(Scan::new(&"x".repeat(MAX_BODY + 1)).err(), Some(PageError::TooLarge));
    let long = format!("x{{a=\"{}\"}} 1\ny 2\n", "v".repeat(MAX_LINE));
    let (samples, bad) = scan(&long);
    assert_eq!((samples.len(), bad[0].problem), (1, Problem::TooLong));
    let set = |count: usize| {
        let labels: Vec<String> = (0..count).map(|index| format!("l{index}=\"\"")).collect();
        scan(&format!("x{{{}}} 1", labels.join(",")))
    };
    assert_eq!(set(MAX_LABELS).0[0].1.len(), MAX_LABELS);
    assert_eq!(set(MAX_LABELS + 1).1[0].problem, Problem::TooManyLabels);
}

#[test]
fn a_body_that_is_not_text_says_where() {
    assert_eq!(page_text(b"x 1\n\xff"), Err(PageError::NotText { at: 4 }));
}

proptest! {
    #[test]
    fn any_text_is_scanned_without_a_panic_and_every_line_is_accounted_for(
        text in "([ -~\\n\\t\r\\\\\"é{}=,#]|x\\{a=\"|\"\\} 1\\n){0,200}"
    ) {
        let lines = text
            .split('\n')
            .map(trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .count();
        let (samples, bad) = scan(&text);
        prop_assert_eq!(samples.len() + bad.len(), lines);
    }

    #[test]
    fn any_label_value_comes_back_as_it_was_escaped(value in any::<String>()) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        prop_assert_eq!(one(&format!("x{{a=\"{escaped}\"}} 1")).1, pairs(&[("a", &value)]));
    }

    #[test]
    fn a_line_is_read_the_same_alone_and_after_any_other(
        lines in prop::collection::vec(prop::sample::select(BUCKETS), 0..30)
    ) {
        let alone: Vec<Owned> = lines.iter().flat_map(|line| scan(line).0).collect();
        prop_assert_eq!(scan(&lines.join("\n")).0, alone);
    }
}

/// Lines that differ in `le` only, and neighbours that nearly do.
const BUCKETS: &[&str] = &[
    "x_bucket{a=\"1\",le=\"0.1\",m=\"n\"} 1",
    "x_bucket{a=\"1\",le=\"0.25\",m=\"n\"} 2.0",
    "x_bucket{a=\"1\",le=\"+Inf\",m=\"n\"} 3 # {t=\"}\"} 4",
    "x_bucket{a=\"1\",le=\"\",m=\"n\"} 5 17",
    "x_bucket{a=\"1\",le=\"0\\\"1\",m=\"n\"} 6",
    "x_bucket{a=\"1\",le=\"0.1\",m=\"nn\"} 7",
    "x_bucket{a=\"2\",le=\"0.1\",m=\"n\"} 8",
    "x_bucket{a=\"1\",le=\"0.1\"} 9",
    "x_bucket{a=\"1\",le=\"0.123456789\"} 10",
    "y_bucket{le=\"0.1\"} 11",
    "y_bucket{le=\"0.1\"}12",
    "y_bucket{le=\"0.1\",} 13",
    "y_bucket{le=\"0.1\"} none",
    "y_bucket{le=\"0.1\"",
    "y_bucket{le=\"0.1",
    "y 14",
    "# y",
    "",
];
