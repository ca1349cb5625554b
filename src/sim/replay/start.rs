//! Replicas at the first moment of a replay.
//!
//! Worked number: 16 000 requests in the first five minutes are 53.3 a second; at 15 a second and
//! replica, 0.7 busy, that is 53.3 / 10.5 = 5.1 prefill replicas, bought as 5.

use super::devices_of;
use crate::sim::request::Request;
use spillgate_core::model::{Mix, Profile};
use spillgate_core::observation::Name;
use spillgate_core::policy::{GpuPoolPolicy, Policy};
use spillgate_core::size::steady;
use spillgate_core::units::{Gpus, Picos, Replicas, ReqRate};
use std::collections::BTreeMap;

/// How a replay begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With what the first five minutes of the trace need at a steady rate.
    #[default]
    Planned,
    /// Cold: with each pool's minimum.
    Min,
}

/// The first five minutes decide.
const PLANNED_FOR: Picos = Picos(300_000_000_000_000);

/// Initial replicas in the policy's order, as far as devices reach.
pub(super) fn initial(
    policy: &Policy,
    gpu_pools: &[GpuPoolPolicy],
    profiles: &BTreeMap<Name, Profile>,
    requests: &[Request],
    start: Start,
) -> Vec<Replicas> {
    let mut replicas: Vec<Replicas> = match (start, first_minutes(requests)) {
        (Start::Planned, Some((rate, mix))) => steady(policy, profiles, rate, &mix),
        _ => policy.pools.iter().map(|pool| pool.min).collect(),
    };
    for gpu_pool in gpu_pools {
        fit(policy, gpu_pools, &gpu_pool.name, &mut replicas);
    }
    replicas
}

/// Mean rate and lengths of the first five minutes; `None` for an empty trace.
fn first_minutes(requests: &[Request]) -> Option<(ReqRate, Mix)> {
    let first = requests.partition_point(|r| r.at < PLANNED_FOR);
    let requests = &requests[..first];
    let last = requests.last()?;
    let n = requests.len() as f64;
    let mean = |of: fn(&Request) -> f64| requests.iter().map(of).sum::<f64>() / n;
    let input = mean(|r| f64::from(r.input));
    let mix = Mix {
        input,
        input_squared: mean(|r| f64::from(r.input) * f64::from(r.input)),
        context: input,
        output: mean(|r| f64::from(r.output)),
    };
    // A trace shorter than five minutes is as long as it is.
    let seconds = last.at.as_secs().max(1.0).min(PLANNED_FOR.as_secs());
    Some((ReqRate::new(n / seconds), mix))
}

/// Takes from the largest pool above its minimum until the devices suffice.
fn fit(policy: &Policy, gpu_pools: &[GpuPoolPolicy], name: &Name, replicas: &mut [Replicas]) {
    let members = || (0..policy.pools.len()).filter(|&i| policy.pools[i].gpu_pool == *name);
    loop {
        let used: Gpus = members().map(|i| replicas[i] * policy.pools[i].gpus_each).sum();
        if used <= devices_of(gpu_pools, name) {
            return;
        }
        let largest = members()
            .filter(|&i| replicas[i] > policy.pools[i].min)
            .max_by_key(|&i| (replicas[i].less(policy.pools[i].min), std::cmp::Reverse(i)));
        let Some(largest) = largest else { return };
        replicas[largest] = replicas[largest].less(Replicas(1));
    }
}
