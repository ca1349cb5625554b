//! What a hurried or unkind user does at the command line, and what must not come of it.
//!
//! Worked number: `replay --trace t.csv --flight t.csv` ends with 1, and `t.csv` keeps its 101 lines.

mod support;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use support::{own, scratch, text};

const CHAT: &str = "policies/chat-disaggregated.yaml";

fn spillgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillgate")).args(arguments).output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A hundred requests, two a second.
fn trace(name: &str) -> PathBuf {
    let rows: String = (0..100).map(|i| format!("{}.{},500,100\n", i / 2, i % 2 * 5)).collect();
    let path = scratch(name);
    std::fs::write(&path, format!("arrival_s,input_tokens,output_tokens\n{rows}"))
        .expect("written");
    path
}

#[test]
fn a_flight_record_never_replaces_the_trace_it_is_made_from() {
    let (policy, trace) = (own(CHAT), trace("kept.csv"));
    let before = std::fs::read(&trace).expect("the trace");
    let (policy, path) = (text(&policy), text(&trace));
    let output = spillgate(&["replay", "--policy", policy, "--trace", path, "--flight", path]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("write somewhere else"), "{}", said(&output));
    assert_eq!(std::fs::read(&trace).expect("the trace"), before);
}

#[test]
fn a_profile_never_replaces_the_measurements_it_is_made_from() {
    let rows = scratch("kept-rows.csv");
    std::fs::write(&rows, "model_path\n").expect("written");
    let path = text(&rows);
    let model = ["--model", "m", "--system", "s", "--tp", "1", "--kv-bytes-per-token", "1000"];
    let output = spillgate(&[&["fit", path, "-o", path], &model[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(&rows).expect("the rows"), "model_path\n");
}

#[test]
fn options_that_a_flight_does_not_heed_are_refused() {
    for option in [
        ["--require", "slo.attainment>=0.95"],
        ["--expect", "report.json"],
        ["--scale", "10"],
        ["--seed", "2"],
        ["--start", "min"],
        ["--flight", "other.jsonl"],
    ] {
        let output = spillgate(&[&["replay", "flight.jsonl"], &option[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{option:?}: {}", said(&output));
    }
}

#[test]
fn an_expectation_that_cannot_be_read_costs_no_run() {
    let (policy, trace) = (own(CHAT), trace("expect.csv"));
    let (policy, path) = (text(&policy), text(&trace));
    let output = spillgate(&["replay", "--policy", policy, "--trace", path, "--expect", path]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(output.stdout.is_empty(), "the report of a run that should not have been");
}

#[test]
fn a_fleet_at_zero_wakes_when_the_router_counts_requests() {
    let shipped = std::fs::read_to_string(own(CHAT)).expect("the policy");
    let policy = scratch("zero.yaml");
    std::fs::write(&policy, shipped.replace("minReplicas: 1", "minReplicas: 0")).expect("written");
    let trace = trace("zero.csv");
    let (policy, path) = (text(&policy), text(&trace));
    let output =
        spillgate(&["replay", "--policy", policy, "--trace", path, "--start", "min", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    for pool in ["prefill-h100", "decode-h100"] {
        assert!(report["pools"][pool]["ups"].as_u64() >= Some(1), "{pool} {report:#}");
    }
    // Until then nothing serves, and this policy pays for that.
    assert!(report["overflowed"].as_u64() > Some(50), "{report:#}");
}

#[test]
fn a_missing_trace_is_named_once_with_its_path_and_the_reason() {
    let policy = own(CHAT);
    let output = spillgate(&["replay", "--policy", text(&policy), "--trace", "no/such.csv"]);
    let words = said(&output);
    assert!(words.contains("no/such.csv"), "{words}");
    assert_eq!(words.matches("No such file").count(), 1, "{words}");
}

#[test]
fn a_result_that_does_not_fit_on_the_disk_is_a_failed_run() {
    // Where the system has a disk that is always full.
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let policy = own(CHAT);
    let output = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["check", "-o", "json", text(&policy)])
        .stdout(full)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("could not be written"), "{}", said(&output));
}
