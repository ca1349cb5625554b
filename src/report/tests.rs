//! Goldens of a made-up report, and the promise in words.

use super::*;
use crate::sim::score::Slo;
use spillgate_core::policy::TtftTarget;
use spillgate_core::units::{Micros, Ppm};

fn spread(mean: f64) -> Spread {
    Spread {
        mean: Some(mean),
        p50: Some(mean * 0.75),
        p90: Some(mean * 2.0),
        p95: Some(mean * 2.5),
        p99: Some(mean * 10.0),
    }
}

fn pool(role: Role, mean: f64) -> PoolReport {
    PoolReport { role, mean, max: 7, ups: 5, downs: 4, reversals: 1, gpu_hours: mean * 1.95 }
}

fn row(at_s: f64, what: &str, why: &str) -> Row {
    Row { at_s, what: what.to_owned(), why: why.to_owned() }
}

fn objectives() -> Objectives {
    Objectives {
        attainment: Ppm(990_000),
        ttft: Some(TtftTarget { base: Micros(1_000_000), per_kilotoken: Micros(200_000) }),
        itl: Some(Micros(50_000)),
        e2e: None,
    }
}

fn score() -> Score {
    Score {
        requests: 193_660,
        completed: 193_650,
        failed: 10,
        overflowed: 4_841,
        slo: Slo {
            attainment: Some(0.985),
            ttft: Some(0.990_625),
            itl: Some(0.999_96),
            attainment_local: Some(0.984_375),
        },
        ttft_ms: spread(412.5),
        itl_ms: spread(21.25),
    }
}

fn report() -> Report {
    Report {
        schema: SCHEMA,
        version: "0.1.0".to_owned(),
        policy: "llm/chat".to_owned(),
        promise: promise(&objectives()),
        trace: TraceReport {
            name: "conv.csv".to_owned(),
            span_s: 3_502.5,
            input_tokens: 223_618_960,
            output_tokens: 40_899_060,
            zero_output: 0,
        },
        seed: 1,
        scale: 10,
        hashes: Hashes {
            policy: "aa11".to_owned(),
            profiles: [("made-up".to_owned(), "bb22".to_owned())].into(),
            trace: "cc33".to_owned(),
        },
        score: score(),
        gpu_hours: 18.75,
        gpu_hours_floor: Some(12.5),
        overflow: OverflowReport { share: Some(0.025), usd: Some(5.5) },
        usd: Some(52.375),
        gate: Gate { opens: 1, closes: 1 },
        pools: [
            ("prefill".to_owned(), pool(Role::Prefill, 6.25)),
            ("decode".to_owned(), pool(Role::Decode, 3.5)),
        ]
        .into(),
        decisions: vec![
            row(12.0, "prefill 4 -> 6", "load 3.9 of 4 replicas, wants 6"),
            row(1_215.5, "spill 0 % -> 18 %", "no device is free for 2 more replicas"),
        ],
        decisions_sha256: "dd44".to_owned(),
        wall_s: 0.25,
        requests_per_cpu_s: 800_000.0,
        notes: vec!["each request is sent 10 times".to_owned()],
        reproduce: "spillgate replay --policy chat.yaml --trace conv.csv --scale 10 --seed 1"
            .to_owned(),
    }
}

/// Nothing served, nothing priced, nothing decided.
fn empty() -> Report {
    let score = Score {
        requests: 1,
        completed: 0,
        failed: 1,
        overflowed: 0,
        slo: Slo { attainment: Some(0.0), ttft: Some(0.0), itl: Some(0.0), attainment_local: None },
        ttft_ms: Spread::default(),
        itl_ms: Spread::default(),
    };
    let trace = TraceReport { span_s: 0.0, ..report().trace };
    Report {
        score,
        trace,
        gpu_hours: 0.0,
        gpu_hours_floor: None,
        overflow: OverflowReport { share: None, usd: None },
        usd: None,
        decisions: Vec::new(),
        notes: Vec::new(),
        scale: 1,
        ..report()
    }
}

#[test]
fn the_table_reads_as_it_should() {
    insta::assert_snapshot!(report().to_table());
}

#[test]
fn the_table_of_a_run_that_served_nothing_has_dashes_for_what_is_not_known() {
    insta::assert_snapshot!(empty().to_table());
}

#[test]
fn the_json_reads_as_it_should() {
    insta::assert_snapshot!(report().to_json());
}

#[test]
fn the_json_has_every_field_of_the_contract() {
    let value: serde_json::Value = serde_json::from_str(&report().to_json()).expect("JSON");
    for pointer in [
        "/policy",
        "/requests",
        "/completed",
        "/failed",
        "/overflowed",
        "/slo/attainment",
        "/slo/ttft",
        "/slo/itl",
        "/slo/attainment_local",
        "/ttft_ms/mean",
        "/ttft_ms/p50",
        "/ttft_ms/p90",
        "/ttft_ms/p95",
        "/ttft_ms/p99",
        "/itl_ms/mean",
        "/itl_ms/p99",
        "/gpu_hours",
        "/gpu_hours_floor",
        "/overflow/share",
        "/overflow/usd",
        "/usd",
        "/pools/prefill/role",
        "/pools/prefill/mean",
        "/pools/prefill/max",
        "/pools/prefill/ups",
        "/pools/prefill/downs",
        "/pools/prefill/reversals",
        "/wall_s",
        "/requests_per_cpu_s",
        "/decisions_sha256",
        "/version",
        "/seed",
        "/hashes/policy",
        "/hashes/profiles",
        "/hashes/trace",
        "/reproduce",
        "/schema",
        "/notes",
        "/gate/opens",
        "/gate/closes",
    ] {
        assert!(value.pointer(pointer).is_some_and(|value| !value.is_null()), "{pointer}");
    }
}

#[test]
fn what_is_not_known_is_null() {
    let value: serde_json::Value = serde_json::from_str(&empty().to_json()).expect("JSON");
    for pointer in
        ["/usd", "/overflow/usd", "/gpu_hours_floor", "/slo/attainment_local", "/itl_ms/p50"]
    {
        assert_eq!(value.pointer(pointer), Some(&serde_json::Value::Null), "{pointer}");
    }
}

#[test]
fn a_promise_names_only_the_targets_that_are_there() {
    assert_eq!(
        promise(&objectives()),
        "99 % of requests: TTFT <= 1,000 ms + 200 ms per 1,000 input tokens, ITL <= 50 ms"
    );
    let odd = Objectives { itl: Some(Micros(12_500)), ttft: None, ..objectives() };
    assert_eq!(promise(&odd), "99 % of requests: ITL <= 12.500 ms");
    let none = Objectives { attainment: Ppm(995_000), ttft: None, itl: None, e2e: None };
    assert_eq!(promise(&none), "99.5 % of requests: served");
}
