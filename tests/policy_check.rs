//! The check of policies from outside: known faults, the shipped policies, and hostile files.
//!
//! Files under `tests/policies/` each keep one fault (or ten); goldens keep every word that an
//! operator reads. Worked number: `ten-faults.yaml` gives ten errors in one run.

use proptest::prelude::*;
use spillgate::policy::{
    self, Checked, Manifests, Problem, Profiles, Severity, Source, canonical_json, check,
};
use spillgate_core::model::{Limits, Profile, StepModel};
use spillgate_core::policy as core;
use spillgate_core::units::{Gpus, GpusEach, Micros, Replicas, Span, Tokens};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROFILES: [(&str, u32, u64); 3] = [
    ("llama-3.1-70b-h100-tp4", 4, 15),
    ("qwen3-32b-h100-tp2", 2, 14),
    // Measured in milliseconds and read as seconds: 260 s a step.
    ("slow-by-a-thousand", 2, 260_000),
];

fn profile(name: &str) -> Option<Profile> {
    let (name, gpus, base_ms) = PROFILES.into_iter().find(|(known, ..)| *known == name)?;
    Some(Profile {
        name: name.into(),
        model: StepModel { base: base_ms * 1_000_000_000, ..StepModel::default() },
        limits: Limits { kv_capacity: Tokens(400_000), max_sequences: 256, token_budget: 8_192 },
        kv_bytes_per_token: 262_144,
        transfer_bytes_per_second: 10_000_000_000,
        gpus_each: GpusEach(gpus),
        start_time: Span::secs(110),
    })
}

fn check_texts(sources: &[Source<'_>]) -> Checked {
    let profiles = Profiles {
        find: &profile,
        names: PROFILES.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        read: &|_| Err("column `ttft` has no unit; write ttft_ms or ttft_s".to_owned()),
    };
    check(sources, &profiles)
}

fn check_text(text: &str) -> Checked {
    check_texts(&[Source { label: "policy.yaml", text }])
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn check_file(path: &str) -> Checked {
    check_texts(&[Source { label: path, text: &text_of(path) }])
}

fn printed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Each problem of `path` with severity, code and path.
fn found(path: &str) -> Vec<(Severity, &'static str, String)> {
    let problems = check_file(path).problems;
    for problem in &problems {
        assert!(problem.line > 0 && problem.document > 0 && !problem.file.is_empty(), "{problem}");
        assert!(problem.value.is_some(), "{problem}");
    }
    problems.into_iter().map(|p| (p.severity, p.code, p.path)).collect()
}

#[track_caller]
fn assert_found(path: &str, expected: &[(Severity, &'static str, &str)]) {
    let found = found(path);
    let found: Vec<_> = found.iter().map(|(s, code, at)| (*s, *code, at.as_str())).collect();
    assert_eq!(found, expected, "{path}");
}

use Severity::{Error, Note, Warning};

#[test]
fn targets_without_units_are_both_refused_in_one_run() {
    let path = "tests/policies/m-01-no-units.yaml";
    assert_found(
        path,
        &[
            (Error, "BadDuration", "spec.objectives.ttft.target"),
            (Error, "BadDuration", "spec.objectives.itl.target"),
        ],
    );
    for problem in check_file(path).problems {
        assert!(problem.message.contains("needs a unit, for example 500ms"), "{problem}");
    }
}

#[test]
fn zero_targets_and_negative_intervals_are_refused() {
    let path = "tests/policies/m-02-zero-and-negative.yaml";
    assert_found(
        path,
        &[
            (Error, "BadDuration", "spec.objectives.itl.target"),
            (Error, "BadDuration", "spec.scaleDown.interval"),
        ],
    );
    for problem in check_file(path).problems {
        assert!(problem.message.contains("must be > 0"), "{problem}");
    }
}

#[test]
fn an_unknown_signal_is_refused_with_the_nearest_known_one() {
    let path = "tests/policies/m-03-unknown-signal.yaml";
    let at = "spec.pools[main].engine.metrics.specs[0]";
    assert_found(path, &[(Error, "UnknownSignal", at)]);
    let said = check_file(path).problems[0].to_string();
    assert!(said.contains("num_requests_running") && said.contains("no data"), "{said}");
}

#[test]
fn a_role_in_lower_case_is_one_problem_and_no_broken_pair() {
    let shipped = text_of("policies/chat-disaggregated.yaml");
    let text =
        shipped.replace("role: Prefill", "role: prefill").replace("type: VLLM", "type: vllm");
    let problems = check_text(&text).problems;
    let codes: Vec<&str> = problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["UnknownValue", "UnknownValue", "UnknownValue"], "{}", printed(&problems));
    let said = printed(&problems);
    assert!(
        said.contains("did you mean `Prefill`") && said.contains("did you mean `VLLM`"),
        "{said}"
    );
}

#[test]
fn a_percentage_with_its_sign_is_refused_with_a_mend() {
    let shipped = text_of("policies/chat-disaggregated.yaml");
    let text = shipped.replace("attainmentPercent: 99", "attainmentPercent: 99%");
    let said = printed(&check_text(&text).problems);
    assert!(said.contains("leave out the % sign"), "{said}");
}

#[test]
fn a_minimum_above_the_maximum_names_both() {
    let path = "tests/policies/m-04-min-above-max.yaml";
    assert_found(path, &[(Error, "MinAboveMax", "spec.pools[main].minReplicas")]);
    let said = check_file(path).problems[0].to_string();
    assert!(said.contains("minReplicas 5") && said.contains("maxReplicas 3"), "{said}");
}

#[test]
fn a_maximum_of_zero_is_refused_and_the_message_says_what_to_write() {
    let path = "tests/policies/m-05-max-zero.yaml";
    assert_found(
        path,
        &[
            (Note, "WakeUp", "spec.pools[main].minReplicas"),
            (Error, "MaxZero", "spec.pools[main].maxReplicas"),
        ],
    );
    assert!(check_file(path).problems[1].to_string().contains("mode: Paused"));
}

#[test]
fn a_refused_profile_is_an_error_with_its_document_and_line() {
    // What a profile without units says is the profile reader's; that it arrives is checked here.
    let checked = check_text("# one\n---\napiVersion: spillgate.dev/v1alpha1\nkind: Profile\n");
    let [problem] = checked.problems.as_slice() else { panic!("{:?}", checked.problems) };
    assert_eq!((problem.severity, problem.code), (Error, "BadProfile"));
    assert!(problem.message.contains("ttft_ms") && problem.line == 3, "{problem}");
}

#[test]
fn a_target_far_below_the_smallest_step_is_a_warning_with_its_factor() {
    let path = "tests/policies/m-07-impossible-goal.yaml";
    assert_found(path, &[(Warning, "Infeasible", "spec.objectives.ttft.target")]);
    let checked = check_file(path);
    let said = checked.problems[0].to_string();
    assert!(said.contains("factor of 130") && said.contains("wrong unit"), "{said}");
    assert!(checked.into_manifests().is_ok());
}

#[test]
fn a_kind_that_replicas_cannot_scale_is_refused() {
    let path = "tests/policies/m-08-cannot-scale-this.yaml";
    assert_found(path, &[(Error, "UnsupportedTarget", "spec.pools[main].scaleTargetRef.kind")]);
}

#[test]
fn a_minimum_of_zero_and_odd_but_good_durations_are_accepted() {
    let path = "tests/policies/m-09-fine.yaml";
    assert_found(path, &[(Note, "WakeUp", "spec.pools[main].minReplicas")]);
    let manifests = check_file(path).into_manifests().unwrap();
    let policy = resolve_all(&manifests).remove(0).policy;
    assert_eq!(policy.objectives.itl, Some(Micros(50_000)));
    assert_eq!(policy.objectives.ttft.map(|ttft| ttft.base), Some(Micros(1_500_000)));
}

#[test]
fn of_two_policies_on_one_target_the_later_name_is_refused_whatever_the_order() {
    let path = "tests/policies/m-10-and-11-twins.yaml";
    assert_found(path, &[(Error, "TargetConflict", "spec.pools[main].scaleTargetRef")]);
    let problem = &check_file(path).problems[0];
    assert_eq!(problem.document, 1, "twin-b stands first and loses");
    let said = problem.to_string();
    for part in ["default/twin-a", "default/twin-b", "pool main of default/twin-a keeps it"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn ten_faults_are_ten_errors_of_one_run() {
    let problems = check_file("tests/policies/ten-faults.yaml").problems;
    assert_eq!(problems.iter().filter(|problem| problem.severity == Error).count(), 10);
    insta::assert_snapshot!("ten_faults", printed(&problems));
}

#[test]
fn all_other_faults_read_as_their_golden() {
    insta::assert_snapshot!(
        "more_faults",
        printed(&check_file("tests/policies/more-faults.yaml").problems)
    );
}

#[test]
fn the_line_that_a_problem_names_holds_what_its_path_names() {
    for path in ["tests/policies/ten-faults.yaml", "tests/policies/more-faults.yaml"] {
        let text = text_of(path);
        let lines: Vec<&str> = text.lines().collect();
        for problem in check_file(path).problems {
            let last = problem.path.rsplit('.').next().unwrap_or_default();
            let name = last.split('[').next().unwrap_or_default();
            let missing = matches!(problem.code, "Missing" | "Unbounded" | "NoPrice");
            if !missing {
                let line = lines[problem.line - 1];
                assert!(line.contains(name), "{problem}: line {} is {line:?}", problem.line);
            }
        }
    }
}

fn resolve_all(manifests: &Manifests) -> Vec<policy::Resolved> {
    let pools = &manifests.gpu_pools;
    let one = |a| policy::resolve(a, pools, &profile).unwrap_or_else(|error| panic!("{error}"));
    manifests.autoscalers.iter().map(one).collect()
}

#[test]
fn the_example_of_the_design_is_accepted_without_a_word() {
    assert_found("tests/policies/design-example.yaml", &[]);
}

#[test]
fn the_shipped_policies_are_accepted_without_a_word() {
    for path in ["chat.yaml", "chat-disaggregated.yaml", "long-context.yaml"] {
        assert_found(&format!("policies/{path}"), &[]);
    }
}

#[test]
fn the_disaggregated_policy_resolves_to_what_it_says() {
    let manifests = check_file("policies/chat-disaggregated.yaml").into_manifests().unwrap();
    let resolved = resolve_all(&manifests).remove(0);
    let policy = &resolved.policy;
    assert_eq!(&*policy.name, "llm/qwen3-32b");
    assert_eq!(policy.mode, core::Mode::Active);
    let names: Vec<&str> = policy.pools.iter().map(|pool| &*pool.name).collect();
    assert_eq!(names, ["decode-h100", "prefill-h100"], "sorted by name");
    assert_eq!((policy.pools[1].max, policy.pools[1].gpus_each), (Replicas(12), GpusEach(2)));
    assert_eq!(policy.pools[0].startup_estimate, Span::mins(2));
    assert_eq!(policy.overflow.open_after, Span::secs(5));
    assert!(policy.overflow.open_on.at_max && !policy.overflow.open_on.starting);
    assert_eq!(resolved.gpu_pools[0].max_devices, Gpus(40));
    assert_eq!(policy.tick, Span::secs(1));
}

#[test]
fn every_field_reaches_what_the_brain_reads() {
    assert_found("tests/policies/every-field.yaml", &[]);
    let manifests = check_file("tests/policies/every-field.yaml").into_manifests().unwrap();
    let resolved = resolve_all(&manifests).remove(0);
    let both = (resolved.policy, resolved.gpu_pools);
    insta::assert_snapshot!("every_field", serde_json::to_string_pretty(&both).unwrap());
}

const LEAST: &str = "apiVersion: spillgate.dev/v1alpha1
kind: InferenceAutoscaler
metadata: { name: least }
spec:
  objectives: { itl: { target: 50ms } }
  pools:
  - name: main
    scaleTargetRef: { kind: Deployment, name: web }
    maxReplicas: 4
    profileRef: { name: qwen3-32b-h100-tp2 }
";

#[test]
fn the_least_policy_has_defaults_that_are_safe_to_run() {
    let manifests = check_text(LEAST).into_manifests().unwrap();
    insta::assert_snapshot!("least_canonical", canonical_json(&manifests.autoscalers[0]));
    let resolved = resolve_all(&manifests).remove(0);
    let policy = &resolved.policy;
    assert_eq!(policy.mode, core::Mode::Shadow);
    assert!(!policy.overflow.allowed);
    assert_eq!(policy.pools[0].min, Replicas(1));
    assert_eq!(policy.pools[0].startup_estimate, Span::secs(110), "the profile's start time");
    assert_eq!(policy.pools[0].startup_timeout, Span::mins(15));
    assert_eq!(policy.scale_down.window, Span::mins(5));
    assert_eq!(resolved.gpu_pools[0].max_devices, Gpus(8), "what maxReplicas asks for");
}

#[test]
fn one_meaning_has_one_canonical_text() {
    let other = LEAST.replace("50ms", "0.05s").replace(
        "    maxReplicas: 4\n",
        "    maxReplicas: 4\n    minReplicas: 1\n    role: Mixed\n",
    );
    let text =
        |yaml: &str| canonical_json(&check_text(yaml).into_manifests().unwrap().autoscalers[0]);
    assert_eq!(text(LEAST), text(&other));
    assert_ne!(text(LEAST), text(&LEAST.replace("50ms", "51ms")));
}

#[test]
fn a_schedule_raises_the_floor_of_its_pool_while_it_is_in_force() {
    let manifests = check_file("tests/policies/design-example.yaml").into_manifests().unwrap();
    // Wednesday 2026-07-01, 05:59:59 and 06:00:00 UTC: 08:00 in Rome.
    for (unix_ms, floor) in [(1_782_885_599_999, 1), (1_782_885_600_000, 4)] {
        let floors = policy::floors_at(&manifests.autoscalers[0], unix_ms);
        assert_eq!(floors["decode-h100"], Replicas(floor), "{unix_ms}");
        assert_eq!(floors["prefill-h100"], Replicas(1), "{unix_ms}");
    }
}

#[test]
fn references_resolve_between_files_and_dangle_without() {
    let text = text_of("policies/chat.yaml");
    let (pool, autoscaler) = text.split_once("---\n").unwrap();
    let pool = Source { label: "pool.yaml", text: pool };
    let autoscaler = Source { label: "chat.yaml", text: autoscaler };
    assert!(check_texts(&[autoscaler, pool]).problems.is_empty());
    let alone = check_texts(&[autoscaler]).problems;
    assert_eq!(alone.iter().map(|p| p.code).collect::<Vec<_>>(), ["Dangling"]);
}

#[test]
fn guarantees_that_add_up_to_more_than_there_is_are_refused() {
    let text =
        text_of("policies/chat-disaggregated.yaml").replace("minReplicas: 1", "minReplicas: 8");
    let checked = check_text(&text.replace("maxDevices: 40", "maxDevices: 30"));
    let problem = checked.problems.iter().find(|p| p.code == "TooFewDevices").unwrap();
    assert!(problem.message.contains("guarantee 32 devices and there are 30"), "{problem}");
}

#[test]
fn hostile_files_end_soon_with_an_error() {
    let unknown: String = (0..60_000).map(|n| format!("field{n}: 1\n")).collect();
    let typos = format!("{LEAST}{}", "  scaledown: 1\n".repeat(40_000));
    let lists = format!("{LEAST}  overflow: {{ openOn: [{}] }}\n", "AtMux,".repeat(40_000));
    let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c,*d]\n".to_owned();
    for text in [unknown, typos, lists, bomb, "{".repeat(900_000), "? ".repeat(400_000)] {
        let checked = check_text(&text);
        assert!(checked.has_errors());
        assert!(checked.problems.len() < 1_100, "{}", checked.problems.len());
    }
    assert_eq!(policy::decode("x", vec![0xff]).map_err(|p| p.code), Err("NotText"));
    let large = vec![b' '; policy::MOST_BYTES + 1];
    assert_eq!(policy::decode("x", large).map_err(|p| p.code), Err("TooLarge"));
}

fn spillgate(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_verb_prints_every_problem_and_exits_three_on_errors_only() {
    let (code, text) = spillgate(&["check", "tests/policies/ten-faults.yaml"]);
    assert_eq!(code, Some(3));
    assert!(text.lines().filter(|line| line.contains(": error ")).count() >= 10, "{text}");
    let (code, text) = spillgate(&["check", "-o", "json", "tests/policies/ten-faults.yaml"]);
    let problems: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &problems[0]["code"]), (Some(3), &"ClusterScoped".into()));
    assert_eq!(spillgate(&["check", "tests/policies/pool-only.yaml"]), (Some(0), String::new()));
    assert_eq!(spillgate(&["check", "tests/policies/no-such-file.yaml"]).0, Some(1));
    assert_eq!(spillgate(&["check"]).0, Some(2));
}

/// Words that stand in for others, each good somewhere and wrong elsewhere.
const WORDS: [&str; 24] = [
    "0",
    "1",
    "99",
    "-1",
    "1.5",
    "5m",
    "0s",
    "1M",
    "\"2.50\"",
    "\"\"",
    "null",
    "yes",
    "[]",
    "{}",
    "Mixed",
    "Prefill",
    "Never",
    "Elastic",
    "h100",
    "decode-h100",
    "&a x",
    "*a",
    "1e9",
    "\"*/5 * * * *\"",
];

/// The design's example with some words replaced, lines removed or doubled.
fn mutated() -> impl Strategy<Value = String> {
    let edit = (0_u8..3, any::<prop::sample::Index>(), 0..WORDS.len());
    prop::collection::vec(edit, 1..3).prop_map(|edits| {
        let mut text = text_of("tests/policies/design-example.yaml");
        for (what, place, word) in edits {
            let pieces: Vec<&str> = match what {
                0 => text.split_inclusive([' ', '\n']).collect(),
                _ => text.split_inclusive('\n').collect(),
            };
            if pieces.is_empty() {
                continue;
            }
            let chosen = place.index(pieces.len());
            let mut next = String::new();
            for (index, piece) in pieces.iter().enumerate() {
                match what {
                    0 if index == chosen => {
                        let end = if piece.ends_with('\n') { "\n" } else { " " };
                        next.push_str(WORDS[word]);
                        next.push_str(end);
                    }
                    1 if index == chosen => {}
                    2 if index == chosen => next.push_str(&piece.repeat(2)),
                    _ => next.push_str(piece),
                }
            }
            text = next;
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_in_problems_or_manifests(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(text) = policy::decode("bytes", bytes) {
            let _ = check_text(&text);
        }
    }

    #[test]
    fn any_text_like_yaml_ends(text in "[a-z:{}\\[\\],&*!|>\"'#%@\\- \n?~0-9]{0,300}") {
        let _ = check_text(&text);
    }

    #[test]
    fn what_passes_the_check_resolves_and_table_and_types_agree(text in mutated()) {
        let checked = check_text(&text);
        prop_assert!(checked.problems.iter().all(|p| p.code != "Unreadable"), "{}", printed(&checked.problems));
        if let Ok(manifests) = checked.into_manifests() {
            for autoscaler in &manifests.autoscalers {
                let resolved = policy::resolve(autoscaler, &manifests.gpu_pools, &profile);
                prop_assert!(resolved.is_ok(), "{resolved:?}\n{text}");
                let again: policy::Autoscaler = serde_json::from_str(&canonical_json(autoscaler)).unwrap();
                prop_assert_eq!(canonical_json(&again), canonical_json(autoscaler));
            }
        }
    }
}
