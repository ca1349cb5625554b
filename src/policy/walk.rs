//! One document against the schema table: every field, type, range and unit at once.
//!
//! Worked number: a document with an unknown field, a duration without a unit and a percentile of
//! 101 gives three problems, each with its line, in the order of the file.

use super::at::At;
use super::nearest::suggestion;
use super::node::{Entry, Value};
use super::problem::{Problem, Report};
use super::schema::{Field, SIGNALS, Shape, Tie};
use super::{schedule, values};
use std::collections::BTreeMap;

/// Checks `at` against `shape`.
pub(super) fn walk(at: &At<'_>, shape: &Shape, report: &mut Report) {
    match shape {
        _ if report.is_full() => {}
        Shape::Map(fields) => map(at, fields, report),
        Shape::Union { fields, default, ties } => {
            map(at, fields, report);
            union(at, default, ties, report);
        }
        Shape::Keyed { key, of, least } => keyed(at, key, of, *least, report),
        Shape::Set(of) => set(at, of, report),
        Shape::Labels => labels(at, report),
        Shape::Anything => {}
        Shape::Whole(least, most) => whole(at, *least, *most, report),
        _ => text(at, shape, report),
    }
}

fn wrong_type(at: &At<'_>, expected: &str) -> Problem {
    let found = at.node.kind();
    let problem = Problem::error("WrongType", format!("expects {expected}, found {found}"));
    let mend = match &at.node.value {
        Value::Null => "give it a value, or leave the line out",
        Value::Bool(_) if expected.contains("text") => {
            "write it in quotes: without them YAML reads a boolean"
        }
        Value::Number(_) if expected.contains("text") => "write it in quotes",
        _ => return at.mark(problem),
    };
    at.mark(problem.mend(mend))
}

fn map(at: &At<'_>, fields: &[Field], report: &mut Report) {
    let Value::Map(entries) = &at.node.value else {
        report.push(wrong_type(at, "a map of fields"));
        return;
    };
    let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
    for Entry { key, line, node } in entries {
        let here = At { node, path: at.inside(key), line: *line };
        match fields.iter().find(|field| field.name == key) {
            Some(field) => walk(&here, &field.shape, report),
            None => report.push(
                here.mark(
                    Problem::error("UnknownField", "there is no such field")
                        .mend(suggestion(key, &known)),
                ),
            ),
        }
    }
    for field in fields.iter().filter(|field| field.required) {
        if at.node.entry(field.name).is_none() {
            let problem = Problem::error("Missing", "this field is needed and has no default");
            report.push(at.mark_missing(field.name, problem));
        }
    }
}

fn union(at: &At<'_>, default: &str, ties: &[Tie], report: &mut Report) {
    let chosen = match at.get("type") {
        // A type that is not text has been named already.
        Some(given) => match given.text() {
            Some(text) => text,
            None => return,
        },
        None => default,
    };
    for tie in ties {
        match at.get(tie.field) {
            Some(member) if chosen != tie.with => {
                let message = format!("belongs to type {}, and the type is {chosen}", tie.with);
                let mend = format!("set `type: {}`, or leave `{}` out", tie.with, tie.field);
                report.push(member.mark(Problem::error("UnionMember", message).mend(mend)));
            }
            None if chosen == tie.with && tie.required => {
                let message = format!("type {chosen} needs `{}`, and there is none", tie.field);
                report.push(at.mark_missing(tie.field, Problem::error("Missing", message)));
            }
            _ => {}
        }
    }
}

fn keyed(at: &At<'_>, key: &str, of: &Shape, least: usize, report: &mut Report) {
    let Value::List(items) = &at.node.value else {
        report.push(wrong_type(at, "a list"));
        return;
    };
    if items.len() < least {
        let problem = Problem::error("TooFew", format!("needs at least {least} entry"));
        report.push(at.mark(problem));
    }
    let mut first_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for item in at.items(key) {
        walk(&item, of, report);
        let Some(name) = item.get(key) else { continue };
        let Some(text) = name.text() else { continue };
        if let Some(line) = first_lines.get(text) {
            let message = format!("`{key}` must be unique here; line {line} has it too");
            report.push(name.mark(Problem::error("Duplicate", message).mend("rename one")));
        } else {
            first_lines.insert(text, name.line);
        }
    }
}

fn set(at: &At<'_>, of: &Shape, report: &mut Report) {
    if !matches!(at.node.value, Value::List(_)) {
        report.push(wrong_type(at, "a list"));
        return;
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for item in at.items("") {
        walk(&item, of, report);
        let Some(text) = item.text() else { continue };
        if let Some(line) = seen.insert(text, item.line) {
            let message = format!("is listed twice, line {line} has it too");
            report.push(item.mark(Problem::error("Duplicate", message).mend("remove one")));
        }
    }
}

fn labels(at: &At<'_>, report: &mut Report) {
    let Value::Map(entries) = &at.node.value else {
        report.push(wrong_type(at, "a map of text to text"));
        return;
    };
    for Entry { key, line, node } in entries {
        let here = At { node, path: at.inside(key), line: *line };
        if here.text().is_none() {
            report.push(wrong_type(&here, "text"));
        }
    }
}

fn whole(at: &At<'_>, least: i64, most: i64, report: &mut Report) {
    let Value::Number(text) = &at.node.value else {
        let mut problem = wrong_type(at, "a whole number");
        if let Value::Text(text) = &at.node.value {
            let bare = text.trim_end_matches('%');
            if bare.parse::<f64>().is_ok() {
                let percent = bare.len() < text.len();
                let mend = if percent { "leave out the % sign" } else { "write it without quotes" };
                problem = problem.mend(mend);
            }
        }
        report.push(problem);
        return;
    };
    match text.parse::<i64>() {
        Ok(number) if number >= least && number <= most => {}
        Ok(_) => {
            let message = format!("must be from {least} to {most}");
            report.push(at.mark(Problem::error("OutOfRange", message)));
        }
        Err(_) => {
            let problem = Problem::error("WrongType", "must be a whole number");
            let mend = format!("from {least} to {most}, in decimal digits");
            report.push(at.mark(problem.mend(mend)));
        }
    }
}

/// What a text in this place must be, in words.
const fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::Money => "a decimal number as text, such as \"2.50\"",
        Shape::Count => "a whole number as text, such as \"2000000\"",
        Shape::Target | Shape::Window => "a duration as text, such as 500ms",
        Shape::WindowOr(_) => "a duration as text, such as 30s, or `Auto`",
        _ => "text",
    }
}

fn text(at: &At<'_>, shape: &Shape, report: &mut Report) {
    let Some(text) = at.text() else {
        let mut problem = wrong_type(at, expected(shape));
        if let (Value::Number(number), Shape::Target | Shape::Window | Shape::WindowOr(_)) =
            (&at.node.value, shape)
        {
            let mend = match values::duration(number) {
                Err(mend) => mend,
                Ok(_) => "needs a unit, for example 500ms".into(),
            };
            problem = at.mark(Problem::error("BadDuration", mend));
        }
        report.push(problem);
        return;
    };
    if let Err((code, message, mend)) = read(text, shape) {
        let mut problem = Problem::error(code, message);
        if let Some(mend) = mend {
            problem = problem.mend(mend);
        }
        report.push(at.mark(problem));
    }
}

type Fault = (&'static str, String, Option<String>);

fn read(text: &str, shape: &Shape) -> Result<(), Fault> {
    match shape {
        Shape::Name => name(text),
        Shape::Text if text.is_empty() => Err(("Empty", "must not be empty".into(), None)),
        Shape::Choice(known) if !known.contains(&text) => {
            Err(("UnknownValue", "is not known here".into(), Some(suggestion(text, known))))
        }
        Shape::WindowOr(word) if text == *word => Ok(()),
        Shape::Target => {
            values::duration(text).map(drop).map_err(|mend| ("BadDuration", mend, None))
        }
        Shape::Window | Shape::WindowOr(_) => match values::duration(text) {
            Err(mend) => Err(("BadDuration", mend, None)),
            Ok(time) if time.0.0 % 1_000 != 0 => {
                Err(("BadDuration", "is finer than a millisecond".into(), None))
            }
            Ok(_) => Ok(()),
        },
        Shape::Money => values::money(text).map(drop).map_err(|mend| ("BadMoney", mend, None)),
        Shape::Count => values::count(text).map(drop).map_err(|mend| ("BadCount", mend, None)),
        Shape::Cron => {
            schedule::expression(text).map(drop).map_err(|message| ("BadSchedule", message, None))
        }
        Shape::Zone => schedule::zone(text)
            .map(drop)
            .map_err(|mend| ("UnknownTimeZone", "is not in the IANA database".into(), Some(mend))),
        Shape::MetricSpec => metric_spec(text),
        _ => Ok(()),
    }
}

/// A DNS subdomain, which is what Kubernetes takes for a name.
fn name(text: &str) -> Result<(), Fault> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inside = text.chars().all(|c| good(c) || c == '-' || c == '.');
    if inside && text.starts_with(good) && text.ends_with(good) && text.len() <= 253 {
        return Ok(());
    }
    let lower: String = text
        .chars()
        .take(63)
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if good(c) || c == '.' { c } else { '-' })
        .collect();
    let mend = match lower.trim_matches(['-', '.']) {
        "" => None,
        lower => Some(format!("for example `{lower}`")),
    };
    let message = "must be lower case letters, digits, `-` and `.`, 253 at most";
    Err(("BadName", message.into(), mend))
}

/// `signal=metric` or `signal=metric{label="value"}`.
fn metric_spec(text: &str) -> Result<(), Fault> {
    let (signal, metric) = text.split_once('=').unwrap_or((text, ""));
    if !SIGNALS.contains(&signal) {
        let message = "names an unknown signal, which would otherwise read as no data for ever";
        return Err(("UnknownSignal", message.into(), Some(suggestion(signal, &SIGNALS))));
    }
    let (family, labels) = match metric.split_once('{') {
        Some((family, rest)) => (family, rest.strip_suffix('}')),
        None => (metric, Some("")),
    };
    let start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    let named = family.starts_with(start) && family.chars().all(|c| start(c) || c.is_ascii_digit());
    if !named || labels.is_none() {
        let mend = format!("write {signal}=metric_name or {signal}=metric_name{{label=\"value\"}}");
        return Err(("BadMetricSpec", "names no metric".into(), Some(mend)));
    }
    let level =
        matches!(signal, "num_requests_waiting" | "num_requests_running" | "kv_cache_usage");
    let part = ["_total", "_sum", "_count", "_bucket"].iter().find(|end| family.ends_with(**end));
    match part {
        Some(part) if level => {
            let message = format!("`{part}` only ever grows, and {signal} is a level");
            Err(("CounterAsLevel", message, Some("name the gauge instead".into())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_kubernetes_takes() {
        assert!(name("qwen3-32b.v1").is_ok());
        for bad in ["", "-a", "Web", "a_b", "a/b", &"a".repeat(254)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_counter_is_no_level_and_an_unknown_signal_has_a_near_miss() {
        assert!(metric_spec("num_requests_running=my:running{model=\"m\"}").is_ok());
        assert!(metric_spec("requests_finished=done_total").is_ok());
        let (code, ..) = metric_spec("num_requests_waiting=wait_seconds_sum").unwrap_err();
        assert_eq!(code, "CounterAsLevel");
        let (code, _, mend) = metric_spec("running_requests=x").unwrap_err();
        assert_eq!(code, "UnknownSignal");
        assert!(mend.unwrap().contains("num_requests_running"));
        assert!(metric_spec("num_requests_waiting").is_err());
    }
}
