//! Policies, profiles and observations that tests build on.
#![allow(dead_code)]

pub(crate) mod fleet;

use spillgate_core::model::{Limits, Profile, StepModel};
use spillgate_core::observation::{Name, Observation, PodSeen, PoolSeen};
use spillgate_core::policy::{
    Destination, GpuPoolPolicy, Mode, Objectives, OpenOn, OverflowPolicy, Policy, PoolPolicy, Role,
    ScaleDown, Supply, TtftTarget,
};
use spillgate_core::units::{Gpus, GpusEach, MicroUsd, Micros, Ppm, Replicas, Span, Stamp, Tokens};
use std::collections::BTreeMap;

pub(crate) fn name(text: &str) -> Name {
    text.into()
}

pub(crate) fn profile() -> Profile {
    Profile {
        name: name("test"),
        model: StepModel {
            base: 13_600_000_000,
            per_sequence: 26_000_000,
            per_kv_token: 43_000,
            per_prefill_token: 46_000_000,
            per_prefill_token_context: 2_300,
        },
        limits: Limits { kv_capacity: Tokens(270_000), max_sequences: 256, token_budget: 8_192 },
        kv_bytes_per_token: 262_144,
        transfer_bytes_per_second: 50_000_000_000,
        gpus_each: GpusEach(2),
        start_time: Span::mins(2),
    }
}

pub(crate) fn profiles() -> BTreeMap<Name, Profile> {
    BTreeMap::from([(name("test"), profile())])
}

pub(crate) fn pool(pool: &str, role: Role, min: u32, max: u32) -> PoolPolicy {
    PoolPolicy {
        name: name(pool),
        role,
        gpu_pool: name("h100"),
        min: Replicas(min),
        max: Replicas(max),
        profile: name("test"),
        gpus_each: GpusEach(2),
        cost_per_device_hour: Some(MicroUsd(2_500_000)),
        startup_estimate: Span::mins(2),
        startup_timeout: Span::mins(10),
        engines_each: 1,
    }
}

pub(crate) fn policy(pools: Vec<PoolPolicy>) -> Policy {
    Policy {
        name: name("llm/test"),
        mode: Mode::Active,
        priority: 0,
        objectives: Objectives {
            attainment: Ppm(990_000),
            ttft: Some(TtftTarget { base: Micros(1_000_000), per_kilotoken: Micros(200_000) }),
            itl: Some(Micros(50_000)),
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
            open_after: Span::secs(10),
            close_after: Span::mins(2),
            cost_per_hour: None,
            tokens_per_minute: None,
            destinations: vec![Destination {
                name: name("api"),
                input_per_million: Some(MicroUsd(600_000)),
                output_per_million: Some(MicroUsd(2_400_000)),
            }],
        },
        tick: Span::secs(1),
    }
}

pub(crate) fn disaggregated() -> Policy {
    policy(vec![pool("decode", Role::Decode, 1, 6), pool("prefill", Role::Prefill, 1, 8)])
}

pub(crate) fn gpu_pools(devices: u32) -> Vec<GpuPoolPolicy> {
    vec![GpuPoolPolicy {
        name: name("h100"),
        max_devices: Gpus(devices),
        supply: Supply::Fixed,
        cost_per_device_hour: Some(MicroUsd(2_500_000)),
    }]
}

pub(crate) fn ready_pod(created: Stamp) -> PodSeen {
    PodSeen { created, scheduled: Some(created), ready: Some(created), ..PodSeen::default() }
}

pub(crate) fn seen(now: Stamp, pools: BTreeMap<Name, PoolSeen>) -> Observation {
    Observation { now, pools, ..Observation::default() }
}
