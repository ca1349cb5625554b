//! The report as a person reads it: what is understood, what is missing, what cannot be seen.
//!
//! Worked number: KV `985 000 ppm` is printed as `98.5 %`, and what a page does not say as `-`.

use super::Inspected;
use crate::engine::dialect::Meaning;
use crate::engine::histogram::{Quantile, quantile};
use crate::engine::{Page, Signal};
use spillgate_core::observation::{EngineSample, Histogram};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Whether an engine says something.
type Said = fn(&EngineSample) -> bool;

/// The gauges without which a signal is not full.
const REQUIRED: &[(&str, Said)] = &[
    ("waiting", |engine| engine.waiting.is_some()),
    ("running", |engine| engine.running.is_some()),
    ("KV usage", |engine| engine.kv_used.is_some()),
];

/// The whole report.
pub(super) fn report(inspected: &Inspected<'_>) -> String {
    let page = inspected.page;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut out, inspected);
    if page.dialect.is_some() {
        let _ = engines(&mut out, page);
        let _ = latencies(&mut out, page);
    }
    let _ = doubts(&mut out, page);
    let notes = notes(page);
    if !notes.is_empty() {
        out.push_str("\nblind spots\n");
        for note in notes {
            let _ = writeln!(out, "  - {note}");
        }
    }
    out
}

/// What people should know about this page's engine and version.
pub(super) fn notes(page: &Page) -> Vec<&'static str> {
    let notes = page.dialect.map_or(&[][..], |dialect| dialect.notes);
    notes.iter().filter(|note| (note.when)(page)).map(|note| note.text).collect()
}

fn head(out: &mut String, inspected: &Inspected<'_>) -> std::fmt::Result {
    let page = inspected.page;
    let signal = page.signal(inspected.expected);
    writeln!(out, "{}", inspected.source)?;
    let dialect = page.dialect.map_or("no engine that Spillgate knows", |dialect| dialect.name);
    let version =
        page.version_from.map_or(String::new(), |version| format!(", {version} or later"));
    writeln!(out, "  engine    {dialect}{version}")?;
    writeln!(out, "  signal    {signal}: {}", meaning(signal, inspected))?;
    if !page.model_names.is_empty() {
        let names: Vec<&str> = page.model_names.iter().map(String::as_str).collect();
        writeln!(out, "  models    {}", clean(&names.join(" | ")))?;
    }
    for started in starts(page) {
        writeln!(out, "  started   {started}")?;
    }
    let lines = page.lines;
    writeln!(
        out,
        "  lines     {} samples: {} used, {} known but not used, {} unknown, {} foreign, {} \
         refused; {} malformed",
        lines.samples(),
        lines.used,
        lines.unused,
        lines.unknown,
        lines.foreign,
        lines.refused,
        lines.malformed
    )?;
    if let Some(verdict) = inspected.verdict {
        let word = if verdict.agrees() { "agrees" } else { "DIFFERS" };
        writeln!(
            out,
            "  check     prometheus-parse {word}: {} fed, {} returned, {} differing",
            verdict.fed, verdict.returned, verdict.differing
        )?;
    }
    Ok(())
}

/// When the engines started, each moment once.
fn starts(page: &Page) -> BTreeSet<String> {
    let epochs = page.engines.iter().filter(|engine| engine.epoch > 0);
    let epochs = epochs.filter_map(|engine| i64::try_from(engine.epoch).ok());
    let stamps = epochs.filter_map(|epoch| jiff::Timestamp::from_millisecond(epoch).ok());
    stamps.map(|stamp| format!("{stamp:.0}")).collect()
}

fn meaning(signal: Signal, inspected: &Inspected<'_>) -> String {
    let page = inspected.page;
    match signal {
        Signal::Full => "every engine says waiting, running and KV".to_owned(),
        Signal::None => {
            let names: Vec<&str> = page.foreign.iter().map(String::as_str).take(6).collect();
            let seen = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            format!("the endpoint answers but is no engine; families seen: {}", clean(&seen))
        }
        Signal::Partial => {
            let mut missing: Vec<String> = REQUIRED
                .iter()
                .filter(|(_, said)| page.engines.is_empty() || !page.engines.iter().all(said))
                .map(|(name, _)| (*name).to_owned())
                .collect();
            let seen = page.engines.len();
            if let Some(expected) = inspected.expected.filter(|count| *count as usize > seen) {
                missing.push(format!("engines ({seen} of {expected})"));
            }
            format!("missing: {}; good for scaling up, not down", missing.join(", "))
        }
    }
}

fn engines(out: &mut String, page: &Page) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:>6} {:>8} {:>8} {:>8} {:>8} {:>7} {:>11} {:>12} {:>12} {:>9}",
        "engine",
        "state",
        "waiting",
        "deferred",
        "running",
        "KV",
        "KV tokens",
        "prompt tok",
        "output tok",
        "finished"
    )?;
    for engine in &page.engines {
        let state = match engine.awake {
            Some(true) => "awake",
            Some(false) => "asleep",
            None => "-",
        };
        let kv =
            engine.kv_used.map_or("-".to_owned(), |ppm| format!("{:.1} %", f64::from(ppm.0) / 1e4));
        writeln!(
            out,
            "{:>6} {:>8} {:>8} {:>8} {:>8} {:>7} {:>11} {:>12} {:>12} {:>9}",
            engine.rank,
            state,
            count(engine.waiting),
            count(engine.deferred),
            count(engine.running),
            kv,
            count(engine.kv_capacity.map(|size| size.0)),
            count(engine.prompt_tokens),
            count(engine.generation_tokens),
            count(engine.finished)
        )?;
    }
    let rejected = page.split_total(Meaning::Rejected).map(|total| total as u64);
    writeln!(
        out,
        "\nserver: {} refused at admission, {} answers to inference calls, {} preemptions",
        count(rejected),
        count(page.sum(|engine| engine.http_requests)),
        count(page.sum(|engine| engine.preempted))
    )
}

fn latencies(out: &mut String, page: &Page) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<16} {:>10} {:>12} {:>12} {:>12}",
        "since start", "count", "mean", "p50", "p95"
    )?;
    let rows = [
        ("TTFT", page.histogram(|engine| engine.ttft.as_ref()), 1e6, " s"),
        ("ITL", page.histogram(|engine| engine.itl.as_ref()), 1e3, " ms"),
        ("queue", page.histogram(|engine| engine.queue.as_ref()), 1e6, " s"),
        ("prompt tokens", page.histogram(|engine| engine.prompt_lengths.as_ref()), 1.0, ""),
        ("output tokens", page.histogram(|engine| engine.output_lengths.as_ref()), 1.0, ""),
    ];
    for (name, histogram, scale, unit) in rows {
        let Some(histogram) = histogram else {
            writeln!(out, "{name:<16} {:>10}", "-")?;
            continue;
        };
        writeln!(
            out,
            "{name:<16} {:>10} {:>12} {:>12} {:>12}",
            histogram.count(),
            histogram.mean().map_or("none".to_owned(), |mean| number(mean / scale, unit)),
            spread(&histogram, 0.5, scale, unit),
            spread(&histogram, 0.95, scale, unit)
        )?;
    }
    speculation(out, page)
}

/// With speculative decoding an ITL observation covers several tokens: its mean is no token's.
fn speculation(out: &mut String, page: &Page) -> std::fmt::Result {
    let itl = page.histogram(|engine| engine.itl.as_ref()).and_then(|itl| itl.mean());
    match (page.tokens_per_itl(), itl) {
        (Some(tokens), Some(mean)) if tokens > 1.05 => {
            let each = number(mean / tokens / 1e3, " ms");
            writeln!(
                out,
                "{tokens:.2} tokens an ITL observation (speculative decoding): {each} a token"
            )
        }
        (None, Some(_)) => writeln!(
            out,
            "tokens an ITL observation stands for: unknown (token and latency counters do not fit \
             together), so ITL may not be a token's"
        ),
        _ => Ok(()),
    }
}

fn doubts(out: &mut String, page: &Page) -> std::fmt::Result {
    if !page.unknown.is_empty() {
        out.push_str("\nfamilies of this engine that Spillgate does not know\n");
        for (name, lines) in &page.unknown {
            writeln!(out, "  {name} ({lines} lines)")?;
        }
    }
    if !page.complaints.is_empty() || page.unterminated {
        out.push_str("\ncomplaints\n");
    }
    for complaint in &page.complaints {
        match complaint.line {
            0 => writeln!(out, "  {}", complaint.text)?,
            line => writeln!(out, "  line {line}: {}", complaint.text)?,
        }
    }
    if page.complaints_left > 0 {
        writeln!(out, "  and {} more", page.complaints_left)?;
    }
    if page.unterminated {
        out.push_str("  the page does not end in a line break: it may be cut short\n");
    }
    Ok(())
}

fn count(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn spread(histogram: &Histogram, q: f64, scale: f64, unit: &str) -> String {
    match quantile(histogram, q) {
        Quantile::Unknown => "none".to_owned(),
        // Below the first bound a straight line from zero says more than is known.
        Quantile::At(value) => match histogram.bounds.first() {
            Some(first) if value <= *first as f64 => {
                format!("<= {}", plain(*first as f64 / scale, unit))
            }
            _ => number(value / scale, unit),
        },
        Quantile::AtLeast(bound) => format!(">= {}", plain(bound / scale, unit)),
    }
}

fn number(value: f64, unit: &str) -> String {
    let decimals = match value {
        value if value >= 10.0 => 1,
        value if value >= 0.01 || value == 0.0 => 3,
        _ => 6,
    };
    format!("{value:.decimals$}{unit}")
}

fn plain(value: f64, unit: &str) -> String {
    format!("{value}{unit}")
}

/// A page may hold anything: control characters do not reach the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
