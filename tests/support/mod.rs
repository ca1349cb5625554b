//! What the end-to-end tests share: where data lies, policies and profiles of their own making,
//! the program as a process, and a [`stage`] on which the driver runs a simulated world in full
//! view.
//!
//! Worked number: [`profile`] at a step of 35 ms and one sequence serves 100 tokens in 3.5 s.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod stage;

use serde_json::Value;
use spillgate::policy::{self, Profiles, Source};
use spillgate::profile::{builtin, builtin_names};
use spillgate::sim::request::Request;
use spillgate_core::model::{Limits, Profile, StepModel};
use spillgate_core::observation::Name;
use spillgate_core::policy::{
    Destination, GpuPoolPolicy, Mode, Objectives, OpenOn, OverflowPolicy, Policy, PoolPolicy, Role,
    ScaleDown, Supply, TtftTarget,
};
use spillgate_core::units::{Gpus, GpusEach, MicroUsd, Micros, Picos, Ppm, Replicas, Span, Tokens};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file of `../shared`, as named by the environment or beside the repository (or beside the
/// folder that holds a work tree of it); says so where it is not there.
#[expect(clippy::disallowed_methods, reason = "a test finds its data")]
#[expect(clippy::print_stdout, reason = "a test that is passed over says so")]
pub(crate) fn shared(file: &str) -> Option<PathBuf> {
    let named = std::env::var("SPILLGATE_SHARED").ok().map(PathBuf::from);
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1).take(2);
    let places = named.into_iter().chain(above.map(|place| place.join("shared")));
    let found = places.map(|place| place.join(file)).find(|place| place.is_file());
    if found.is_none() {
        println!("skipped: ../shared/{file} is not here");
    }
    found
}

/// A file of this repository.
pub(crate) fn own(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// A file that a test writes.
pub(crate) fn scratch(file: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(file)
}

/// Text of a path, for the command line.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// Runs the program.
pub(crate) fn spillgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillgate")).args(arguments).output().expect("it starts")
}

/// Runs the program, which must succeed, and reads its JSON.
pub(crate) fn report(arguments: &[&str]) -> Value {
    let output = spillgate(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}\n{said}", output.status.code());
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

/// A number of a report, by its path in words with dots.
pub(crate) fn number(report: &Value, path: &str) -> f64 {
    let value = report.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("the report has no number {path}"))
}

/// A policy file with all it needs.
pub(crate) struct Loaded {
    pub(crate) policy: Policy,
    pub(crate) gpu_pools: Vec<GpuPoolPolicy>,
    pub(crate) profiles: BTreeMap<Name, Profile>,
}

/// Reads a policy file of this repository.
pub(crate) fn load(file: &str) -> Loaded {
    let text = std::fs::read_to_string(own(file)).expect("a policy of this repository");
    let find = |name: &str| builtin(name).map(|file| file.profile());
    let known = Profiles {
        find: &find,
        names: builtin_names().map(str::to_owned).collect(),
        read: &|_| Err("no profiles among the policies".to_owned()),
    };
    let checked = policy::check(&[Source { label: file, text: &text }], &known);
    let manifests = checked.into_manifests().expect("no problem in it");
    let resolved = policy::resolve(&manifests.autoscalers[0], &manifests.gpu_pools, &find)
        .expect("it resolves");
    let names = resolved.policy.pools.iter().map(|pool| pool.profile.clone());
    let profiles = names.filter_map(|name| find(&name).map(|profile| (name, profile))).collect();
    Loaded { policy: resolved.policy, gpu_pools: resolved.gpu_pools, profiles }
}

/// A made-up profile: steps of a constant length, so many sequences at a time.
pub(crate) fn profile(step_ms: u64, sequences: u32, gpus_each: u32) -> Profile {
    Profile {
        name: "made-up".into(),
        model: StepModel {
            base: step_ms * 1_000_000_000,
            per_prefill_token: 10_000_000,
            ..StepModel::default()
        },
        limits: Limits {
            kv_capacity: Tokens(200_000),
            max_sequences: sequences,
            token_budget: 8_192,
        },
        kv_bytes_per_token: 100_000,
        transfer_bytes_per_second: 50_000_000_000,
        gpus_each: GpusEach(gpus_each),
        start_time: Span::mins(2),
    }
}

/// The one made-up profile, by its name.
pub(crate) fn profiles(profile: Profile) -> BTreeMap<Name, Profile> {
    BTreeMap::from([(profile.name.clone(), profile)])
}

/// A pool of that profile on the device pool `gpus`.
pub(crate) fn pool(name: &str, role: Role, min: u32, max: u32, profile: &Profile) -> PoolPolicy {
    PoolPolicy {
        name: name.into(),
        role,
        gpu_pool: "gpus".into(),
        min: Replicas(min),
        max: Replicas(max),
        profile: profile.name.clone(),
        gpus_each: profile.gpus_each,
        cost_per_device_hour: None,
        startup_estimate: Span::mins(2),
        startup_timeout: Span::mins(10),
        engines_each: 1,
    }
}

/// A policy with a gate that may open on everything but starts.
pub(crate) fn policy_of(mut pools: Vec<PoolPolicy>) -> Policy {
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    Policy {
        name: "test/policy".into(),
        mode: Mode::Active,
        priority: 0,
        objectives: Objectives {
            attainment: Ppm(990_000),
            ttft: Some(TtftTarget { base: Micros(2_000_000), per_kilotoken: Micros(200_000) }),
            itl: Some(Micros(60_000)),
            e2e: None,
        },
        pools,
        scale_down: ScaleDown {
            window: Span::mins(5),
            interval: None,
            drain_timeout: Span::mins(10),
        },
        forecast_percentile: 95,
        overflow: OverflowPolicy {
            allowed: true,
            open_on: OpenOn { exhausted: true, at_max: true, unavailable: true, starting: false },
            open_after: Span::secs(5),
            close_after: Span::mins(2),
            cost_per_hour: None,
            tokens_per_minute: None,
            destinations: vec![Destination {
                name: "api".into(),
                input_per_million: Some(MicroUsd(600_000)),
                output_per_million: Some(MicroUsd(2_400_000)),
            }],
        },
        tick: Span::secs(1),
    }
}

/// The device pool `gpus`, all there is.
pub(crate) fn gpus(devices: u32) -> Vec<GpuPoolPolicy> {
    vec![GpuPoolPolicy {
        name: "gpus".into(),
        max_devices: Gpus(devices),
        supply: Supply::Fixed,
        cost_per_device_hour: None,
    }]
}

/// Requests at an even pace from `from_s` until `to_s`.
pub(crate) fn steady(
    from_s: u64,
    to_s: u64,
    per_second: u64,
    input: u32,
    output: u32,
) -> Vec<Request> {
    let gap = 1_000_000_000_000 / per_second;
    let at = |index: u64| Picos(from_s * 1_000_000_000_000 + index * gap);
    (0..(to_s - from_s) * per_second).map(|i| Request { at: at(i), input, output }).collect()
}
