//! `spillgate replay`: a policy on a trace, offline, or a recorded flight again.
//!
//! Worked number: `replay --policy policies/chat-disaggregated.yaml --trace
//! replay/diurnal-burst.csv` runs 21 126 requests through the code that scales production.

mod expect;
mod flight;
mod require;
mod trace;

use super::Failure;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  spillgate replay --policy policies/chat-disaggregated.yaml --trace replay/diurnal-burst.csv
  spillgate replay flight.jsonl")]
pub(crate) struct Args {
    /// A flight record to run again; every decision must come out the same
    #[arg(value_name = "FLIGHT", conflicts_with_all = [
        "policy", "trace", "scale", "seed", "start", "routing", "begin", "flight", "require",
        "expect",
    ])]
    flight_record: Option<PathBuf>,
    /// Files with one policy, its GPU pools and, if not built in, its profiles
    #[arg(short, long, value_name = "FILE", required_unless_present = "flight_record")]
    policy: Vec<PathBuf>,
    /// Requests: Azure CSV, Mooncake JSONL, or arrival_s,input_tokens,output_tokens
    #[arg(short, long, value_name = "FILE", required_unless_present = "flight_record")]
    trace: Option<PathBuf>,
    /// Copies of each request, spread over a second
    #[arg(long, default_value = "1", value_name = "N")]
    scale: NonZeroU32,
    /// Seed of every draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replicas at the first moment
    #[arg(long, value_enum, default_value_t = StartArg::Plan)]
    start: StartArg,
    /// How the router picks a replica
    #[arg(long, value_enum, default_value_t = RoutingArg::LeastLoaded)]
    routing: RoutingArg,
    /// When the trace begins, for schedules
    #[arg(long, value_name = "TIME", default_value = "2024-01-01T00:00:00Z")]
    begin: jiff::Timestamp,
    /// Write a flight record
    #[arg(long, value_name = "FILE")]
    flight: Option<PathBuf>,
    /// Exit 4 unless this holds, such as 'slo.attainment>=0.95'; may be repeated
    #[arg(long, value_name = "GATE")]
    require: Vec<require::Gate>,
    /// Exit 5 unless decisions are those of this report (-o json) or flight
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StartArg {
    /// What the first five minutes of the trace need
    Plan,
    /// Each pool's minimum: the cold case
    Min,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RoutingArg {
    /// Prefill by queued tokens, decode by KV, mixed by requests in flight
    LeastLoaded,
    /// Each replica in its turn
    RoundRobin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A page for people
    Table,
    /// One JSON object
    Json,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match (&args.flight_record, &args.trace) {
        (Some(record), _) => flight::run(record, args.output),
        (None, Some(trace)) => trace::run(args, trace),
        (None, None) => Err(anyhow::anyhow!("a flight, or --policy and --trace").into()),
    }
}
