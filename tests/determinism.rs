//! Same inputs, same decisions: whoever looks on, in whatever order files are given, in whichever
//! build.
//!
//! Worked number: the shipped trace is 2 407 decisions, and one hash.

mod support;

use serde_json::Value;
use support::{own, report, scratch, text};

const CHAT: &str = "policies/chat-disaggregated.yaml";
const SHIPPED: &str = "replay/diurnal-burst.csv";
/// Decisions of the shipped trace under the shipped policy. Debug and release builds of any machine
/// must agree on it, so this test is to be run in both.
const GOLDEN: &str = "c8a838b9c8b093cb72fedf51d980ee1f33860ea464f4c51768bfd1016f140bb6";

fn hash(more: &[&str]) -> String {
    let (policy, trace) = (own(CHAT), own(SHIPPED));
    let mut arguments = vec!["replay", "--trace", text(&trace), "-o", "json"];
    if !more.contains(&"--policy") {
        arguments.extend(["--policy", text(&policy)]);
    }
    arguments.extend(more);
    let report: Value = report(&arguments);
    report["decisions_sha256"].as_str().expect("a hash").to_owned()
}

#[test]
fn the_shipped_trace_gives_the_decisions_that_are_written_down_here() {
    let now = hash(&[]);
    assert_eq!(
        now, GOLDEN,
        "the decisions of the shipped trace are others than before. If the brain, the profile, the \
         policy or the trace was changed on purpose, put the new hash into GOLDEN of \
         tests/determinism.rs and run this test in debug and in release; if not, or if the two \
         builds differ, something is not deterministic"
    );
}

#[test]
fn a_seed_decides_and_recording_does_not() {
    let first = hash(&["--seed", "7"]);
    let flight = scratch("determinism.flight.jsonl");
    assert_eq!(hash(&["--seed", "7", "--flight", text(&flight)]), first, "recorded");
    assert_ne!(hash(&["--seed", "8"]), first, "another seed draws otherwise");
    std::fs::remove_file(flight).expect("the flight was written");
}

#[test]
fn the_order_of_policy_files_does_not_matter() {
    let whole = std::fs::read_to_string(own(CHAT)).expect("the shipped policy");
    let (pool, policy) = whole.split_once("\n---\n").expect("two documents");
    let (first, second) = (scratch("order-pool.yaml"), scratch("order-policy.yaml"));
    std::fs::write(&first, pool).expect("a scratch file");
    std::fs::write(&second, policy).expect("a scratch file");
    let (first, second) = (text(&first), text(&second));
    let one = hash(&["--policy", first, "--policy", second]);
    assert_eq!(one, hash(&["--policy", second, "--policy", first]));
    assert_eq!(one, GOLDEN, "in two files as in one");
}
