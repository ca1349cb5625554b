//! `spillgate inspect`: what Spillgate understands of an engine's `/metrics`.
//!
//! Worked number: of a page with 100 TTFT observations, 60 of them at or below the last finite
//! bound of 10 s and a sum of 2 400 s, it says p95 ">= 10 s" and a mean of 24 s.

mod fetch;
mod json;
mod table;

use super::{Exit, Failure, say};
use crate::engine::exposition::page_text;
use crate::engine::{Page, read_page, second_opinion};
use anyhow::anyhow;

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A saved page, or the address of a live one (http:// or https://)
    #[arg(value_name = "FILE|URL")]
    source: String,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Engines (data-parallel ranks) that should be on the page; fewer make the signal Partial
    #[arg(long, value_name = "N")]
    expect_engines: Option<u32>,
    /// Read the page with prometheus-parse too, and fail if the two differ
    #[arg(long)]
    cross_check: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Everything that a report is made of.
struct Inspected<'a> {
    source: &'a str,
    page: &'a Page,
    expected: Option<u32>,
    verdict: Option<second_opinion::Verdict>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let body = fetch::body(&args.source)?;
    let unreadable = |error| {
        Failure::invalid(anyhow::Error::new(error).context(format!("cannot read {}", args.source)))
    };
    let text = page_text(&body).map_err(unreadable)?;
    let page = read_page(text).map_err(unreadable)?;
    let verdict = args.cross_check.then(|| second_opinion::compare(text)).transpose();
    let verdict = verdict.map_err(unreadable)?;
    let inspected =
        Inspected { source: &args.source, page: &page, expected: args.expect_engines, verdict };
    match args.output {
        Output::Table => say(table::report(&inspected).trim_end()),
        Output::Json => say(&json::report(&inspected)),
    }
    if page.is_unreadable() {
        let first = page.complaints.first().map_or(String::new(), |complaint| {
            format!(" (line {}: {})", complaint.line, complaint.text)
        });
        return Err(Failure::invalid(anyhow!(
            "{} has not one sample line{first}: this is no metrics page; check the address",
            args.source
        )));
    }
    match verdict {
        Some(verdict) if !verdict.agrees() => Err(Failure::new(
            Exit::Failed,
            anyhow!(
                "the second parser differs: {} lines fed, {} returned, {} differing; please \
                 report the page",
                verdict.fed,
                verdict.returned,
                verdict.differing
            ),
        )),
        _ => Ok(()),
    }
}
