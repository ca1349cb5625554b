//! A policy on a trace: read, run, score, print.

use super::{Args, Output, RoutingArg, StartArg, expect};
use crate::cli::files::{Loaded, keep_inputs, load_policy};
use crate::cli::{Exit, Failure, complain, say};
use crate::driver::flight::{self, Line};
use crate::live::clock::Stopwatch;
use crate::policy;
use crate::report::{self, Report};
use crate::sim::floor::{Work, fleet_floor};
use crate::sim::replay::{self, Run, Setup, Start};
use crate::sim::score::{Score, Targets, score};
use crate::sim::trace::{self, Trace};
use crate::sim::world::Routing;
use anyhow::{Context, anyhow};
use spillgate_core::units::{MicroUsd, Picos, Stamp};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Runs the policy on the trace and prints the report.
pub(super) fn run(args: &Args, path: &Path) -> Result<(), Failure> {
    let loaded = load_policy(&args.policy)?;
    // Before the run: a file that cannot be read should not cost one.
    let expect = |file: &PathBuf| expect::decisions_sha256(file, &loaded.resolved.policy);
    let expected = args.expect.as_ref().map(expect).transpose()?;
    if let Some(flight) = &args.flight {
        let inputs = args.policy.iter().chain(&args.expect).map(PathBuf::as_path);
        keep_inputs(flight, inputs.chain([path]))?;
    }
    let read = trace::read(path, args.seed).map_err(Failure::invalid)?;
    let trace = trace::scaled(&read, args.scale, args.seed).map_err(Failure::invalid)?;
    complain(&format!("{}: {}", trace.name, trace.summary()));
    let watch = Stopwatch::start();
    let run = replay_trace(args, &loaded, &trace)?;
    let targets = Targets::from(&loaded.resolved.policy.objectives);
    let scored = score(&trace.requests, &run.outcomes, targets);
    let (wall_s, processor_s) = (watch.wall_s(), watch.processor_s());
    let mut report = report_of(args, &loaded, &trace, &run, scored);
    report.wall_s = wall_s;
    report.requests_per_cpu_s = trace.requests.len() as f64 / processor_s.max(1e-6);
    match args.output {
        Output::Table => say(report.to_table().trim_end()),
        Output::Json => say(report.to_json().trim_end()),
    }
    verdict(args, expected, &loaded, &run, &report)
}

/// Gates, expectations and rules, each with its exit code.
fn verdict(
    args: &Args,
    expected: Option<String>,
    loaded: &Loaded,
    run: &Run,
    report: &Report,
) -> Result<(), Failure> {
    if let Some(first) = run.ledger.first_breach(&loaded.resolved.policy) {
        let n = run.ledger.broken;
        return Err(
            anyhow!("{n} decisions broke a rule and were withdrawn; the first {first}").into()
        );
    }
    if let Some((file, expected)) = args.expect.as_ref().zip(expected)
        && expected != report.decisions_sha256
    {
        let (label, now) = (file.display(), &report.decisions_sha256);
        let what = anyhow!("decisions differ from {label}: expected {expected}, got {now}");
        return Err(Failure::new(Exit::Differs, what));
    }
    let value = serde_json::to_value(report).context("the report as JSON")?;
    let missed: Vec<String> = args.require.iter().filter_map(|gate| gate.miss(&value)).collect();
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(Exit::GateMissed, anyhow!("{}", missed.join("; "))))
    }
}

fn replay_trace(args: &Args, loaded: &Loaded, trace: &Trace) -> Result<Run, Failure> {
    let begin = u64::try_from(args.begin.as_millisecond()).unwrap_or(0);
    let scheduled = !loaded.autoscaler.spec.schedules.is_empty();
    let floors = |now: Stamp| {
        if scheduled {
            policy::floors_at(&loaded.autoscaler, begin.saturating_add(now.0))
        } else {
            BTreeMap::new()
        }
    };
    let mut writer = match &args.flight {
        Some(file) => Some(BufWriter::with_capacity(
            1 << 20,
            File::create(file).with_context(|| format!("cannot write {}", file.display()))?,
        )),
        None => None,
    };
    let mut record = |line: &Line| -> std::io::Result<()> {
        let Some(writer) = &mut writer else { return Ok(()) };
        serde_json::to_writer(&mut *writer, line)?;
        writer.write_all(b"\n")
    };
    let run = replay::run(Setup {
        policy: loaded.resolved.policy.clone(),
        gpu_pools: loaded.resolved.gpu_pools.clone(),
        profiles: loaded.profiles.clone(),
        requests: trace.requests.as_slice().into(),
        seed: args.seed,
        start: match args.start {
            StartArg::Plan => Start::Planned,
            StartArg::Min => Start::Min,
        },
        routing: match args.routing {
            RoutingArg::LeastLoaded => Routing::LeastLoaded,
            RoutingArg::RoundRobin => Routing::RoundRobin,
        },
        floors: &floors,
        record: args.flight.is_some().then_some(&mut record),
    })
    .map_err(|error| match error {
        replay::ReplayError::Record(_) => Failure::from(anyhow::Error::from(error)),
        _ => Failure::invalid(error),
    })?;
    if let Some(mut writer) = writer {
        writer.flush().context("writing the flight record")?;
    }
    Ok(run)
}

fn report_of(args: &Args, loaded: &Loaded, trace: &Trace, run: &Run, scored: Score) -> Report {
    let policy = &loaded.resolved.policy;
    let summary = trace.summary();
    let share = (scored.requests > 0).then(|| scored.overflowed as f64 / scored.requests as f64);
    let overflow_usd = run.external_cost.map(usd);
    let spent = if scored.overflowed == 0 { Some(0.0) } else { overflow_usd };
    Report {
        schema: report::SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        policy: policy.name.to_string(),
        promise: report::promise(&policy.objectives),
        trace: report::TraceReport {
            name: trace.name.clone(),
            span_s: summary.span.as_secs(),
            input_tokens: summary.input_tokens,
            output_tokens: summary.output_tokens,
            zero_output: summary.zero_output,
        },
        seed: args.seed,
        scale: args.scale.get(),
        hashes: hashes(loaded, trace),
        score: scored,
        gpu_hours: run.usage.iter().map(|u| device_hours(u.device_picos)).sum(),
        gpu_hours_floor: floor(loaded, trace),
        overflow: report::OverflowReport { share, usd: spent },
        usd: device_cost(loaded, run).zip(spent).map(|(devices, spent)| devices + spent),
        gate: report::Gate { opens: run.ledger.opens, closes: run.ledger.closes },
        pools: pools(loaded, run),
        decisions: rows(run),
        decisions_sha256: run.ledger.sha256(),
        wall_s: 0.0,
        requests_per_cpu_s: 0.0,
        notes: notes(loaded, trace, run),
        reproduce: reproduce(args),
    }
}

fn hashes(loaded: &Loaded, trace: &Trace) -> report::Hashes {
    let canonical = policy::canonical_json(&loaded.autoscaler);
    report::Hashes {
        // Limits and prices of its GPU pools are part of what was run.
        policy: flight::sha256_of(&(canonical, &loaded.resolved.gpu_pools)),
        profiles: loaded
            .profiles
            .iter()
            .map(|(name, profile)| (name.to_string(), flight::sha256_of(profile)))
            .collect(),
        trace: trace.sha256.clone(),
    }
}

fn pools(loaded: &Loaded, run: &Run) -> BTreeMap<String, report::PoolReport> {
    let pools = loaded.resolved.policy.pools.iter().zip(&run.usage).zip(&run.ledger.moves);
    pools
        .map(|((pool, usage), moves)| {
            let report = report::PoolReport {
                role: pool.role,
                mean: usage.replica_picos as f64 / run.length.0.max(1) as f64,
                max: usage.most.0,
                ups: moves.ups,
                downs: moves.downs,
                reversals: moves.reversals,
                gpu_hours: device_hours(usage.device_picos),
            };
            (pool.name.to_string(), report)
        })
        .collect()
}

fn rows(run: &Run) -> Vec<report::Row> {
    let row = |change: &replay::Change| report::Row {
        at_s: change.at.0 as f64 / 1e3,
        what: change.what.clone(),
        why: change.why.clone(),
    };
    run.ledger.changes.iter().map(row).collect()
}

fn floor(loaded: &Loaded, trace: &Trace) -> Option<f64> {
    let policy = &loaded.resolved.policy;
    let pools: Option<Vec<_>> = policy
        .pools
        .iter()
        .map(|pool| loaded.profiles.get(&pool.profile).map(|profile| (pool.role, profile)))
        .collect();
    fleet_floor(&pools?, policy.objectives.itl, &Work::of(&trace.requests))
}

/// Cost of all devices, if each pool's devices have a price.
fn device_cost(loaded: &Loaded, run: &Run) -> Option<f64> {
    let pools = loaded.resolved.policy.pools.iter().zip(&run.usage);
    pools
        .map(|(pool, usage)| {
            Some(usd(pool.cost_per_device_hour?) * device_hours(usage.device_picos))
        })
        .sum()
}

fn device_hours(device_picos: u128) -> f64 {
    device_picos as f64 / 3.6e15
}

fn usd(money: MicroUsd) -> f64 {
    money.0 as f64 / 1e6
}

fn notes(loaded: &Loaded, trace: &Trace, run: &Run) -> Vec<String> {
    let mut notes = trace.notes.clone();
    let initial: Vec<String> = loaded
        .resolved
        .policy
        .pools
        .iter()
        .zip(&run.initial)
        .map(|(pool, replicas)| format!("{} {replicas}", pool.name))
        .collect();
    notes.push(format!("starts with {}", initial.join(", ")));
    let drained = run.length.less(trace.requests.last().map_or(Picos::ZERO, |r| r.at));
    notes.push(format!("work in flight ended {:.1} s after the last arrival", drained.as_secs()));
    notes.push(format!("{} decisions, {} broke a rule", run.ledger.ticks(), run.ledger.broken));
    notes
}

/// The command that gives this report again.
fn reproduce(args: &Args) -> String {
    let mut command = "spillgate replay".to_owned();
    for policy in &args.policy {
        command += &format!(" --policy {}", policy.display());
    }
    if let Some(trace) = &args.trace {
        command += &format!(" --trace {}", trace.display());
    }
    command += &format!(" --scale {} --seed {}", args.scale, args.seed);
    if args.start == StartArg::Min {
        command += " --start min";
    }
    if args.routing == RoutingArg::RoundRobin {
        command += " --routing round-robin";
    }
    command + &format!(" --begin {}", args.begin)
}
