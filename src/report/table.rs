//! The page for people: aligned, with units, the score on one screen and the decisions below it.
//!
//! Worked number: a label column of 13 and five columns of 11 for latencies are 68 characters wide;
//! the table of pools, the widest, is 87.

use super::number::{clock, fixed, maybe, percent, whole};
use super::{Report, Spread};
use spillgate_core::policy::Role;
use std::fmt::Write;

/// The whole page.
pub(super) fn render(report: &Report) -> String {
    let mut page = String::new();
    head(&mut page, report);
    score(&mut page, report);
    latencies(&mut page, report);
    money(&mut page, report);
    pools(&mut page, report);
    decisions(&mut page, report);
    foot(&mut page, report);
    page
}

/// A labelled line. Writing to a String does not fail.
fn line(page: &mut String, label: &str, text: &str) {
    let _ = writeln!(page, "{}", format!("{label:<13} {text}").trim_end());
}

fn head(page: &mut String, report: &Report) {
    let trace = &report.trace;
    let scale = match report.scale {
        1 => String::new(),
        copies => format!(" x {copies}"),
    };
    let _ = writeln!(
        page,
        "{} on {}{scale}, seed {} (spillgate {})\n",
        report.policy, trace.name, report.seed, report.version
    );
    line(page, "promise", &report.promise);
    let rate = report.score.requests as f64 / trace.span_s;
    line(
        page,
        "traffic",
        &format!(
            "{} requests over {} s, {} a second",
            whole(report.score.requests),
            fixed(trace.span_s, 0),
            fixed(rate, 2),
        ),
    );
    line(
        page,
        "tokens",
        &format!(
            "{} of input, {} of output; {} requests without output",
            whole(trace.input_tokens),
            whole(trace.output_tokens),
            whole(trace.zero_output),
        ),
    );
}

fn score(page: &mut String, report: &Report) {
    let (score, slo) = (&report.score, &report.score.slo);
    line(
        page,
        "served",
        &format!(
            "{} completed, {} of them outside ({}); {} failed",
            whole(score.completed),
            whole(score.overflowed),
            percent(report.overflow.share),
            whole(score.failed),
        ),
    );
    line(
        page,
        "attainment",
        &format!(
            "{} of all requests (TTFT {}, ITL {}); {} of those kept here",
            percent(slo.attainment),
            percent(slo.ttft),
            percent(slo.itl),
            percent(slo.attainment_local),
        ),
    );
}

fn latencies(page: &mut String, report: &Report) {
    page.push('\n');
    let row = |label: &str, cells: [String; 5]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
        format!("{label:<13}{cells}\n")
    };
    let spread = |label, spread: &Spread, decimals| {
        let values = [spread.mean, spread.p50, spread.p90, spread.p95, spread.p99];
        row(label, values.map(|value| maybe(value, decimals)))
    };
    page.push_str(&row("", ["mean", "p50", "p90", "p95", "p99"].map(str::to_owned)));
    page.push_str(&spread("TTFT, ms", &report.score.ttft_ms, 0));
    page.push_str(&spread("ITL, ms", &report.score.itl_ms, 1));
    page.push('\n');
}

fn money(page: &mut String, report: &Report) {
    let floor = report.gpu_hours_floor.filter(|floor| *floor > 0.0).map_or_else(
        || "floor not known".to_owned(),
        |floor| {
            format!("{} x the floor of {}", fixed(report.gpu_hours / floor, 2), fixed(floor, 2))
        },
    );
    line(page, "GPU-hours", &format!("{} ({floor})", fixed(report.gpu_hours, 2)));
    let dollars = |usd: Option<f64>| {
        usd.map_or_else(|| "no price".to_owned(), |usd| format!("${}", fixed(usd, 2)))
    };
    let (all, outside) = (dollars(report.usd), dollars(report.overflow.usd));
    line(page, "cost", &format!("{all}, of it outside: {outside}"));
    let gate = report.gate;
    line(page, "gate", &format!("opened: {}, closed: {}", gate.opens, gate.closes));
}

fn pools(page: &mut String, report: &Report) {
    page.push('\n');
    let width = report.pools.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(12);
    let mut row = |name: &str, role: &str, cells: [String; 6]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
        let _ = writeln!(page, "{name:<width$} {role:<8}{cells}");
    };
    let titles = ["mean", "max", "ups", "downs", "reversals", "GPU-hours"];
    row("pool", "role", titles.map(str::to_owned));
    for (name, pool) in &report.pools {
        row(
            name,
            role(pool.role),
            [
                fixed(pool.mean, 2),
                whole(u64::from(pool.max)),
                whole(pool.ups),
                whole(pool.downs),
                whole(pool.reversals),
                fixed(pool.gpu_hours, 2),
            ],
        );
    }
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Mixed => "mixed",
        Role::Pooling => "pooling",
    }
}

fn decisions(page: &mut String, report: &Report) {
    if report.decisions.is_empty() {
        let _ = writeln!(page, "\ndecisions: none, nothing had to change");
        return;
    }
    let width = report.decisions.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    let _ = writeln!(page, "\ndecisions ({})", whole(report.decisions.len() as u64));
    for row in &report.decisions {
        let _ = writeln!(page, "{:>11}  {:<width$}  {}", clock(row.at_s), row.what, row.why);
    }
}

fn foot(page: &mut String, report: &Report) {
    if !report.notes.is_empty() {
        page.push_str("\nnotes\n");
        for note in &report.notes {
            let _ = writeln!(page, "  - {note}");
        }
    }
    page.push('\n');
    line(
        page,
        "run",
        &format!(
            "{} s, {} requests per CPU second",
            fixed(report.wall_s, 2),
            fixed(report.requests_per_cpu_s, 0)
        ),
    );
    line(page, "decisions", &report.decisions_sha256);
    line(page, "policy", &report.hashes.policy);
    for (name, hash) in &report.hashes.profiles {
        line(page, "profile", &format!("{hash} {name}"));
    }
    line(page, "trace", &report.hashes.trace);
    line(page, "reproduce", &report.reproduce);
}
