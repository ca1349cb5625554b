//! From manifests to what the brain reads: defaults filled in, units as integers.
//!
//! Worked number: `attainmentPercent: 99` is 990 000 ppm; a fleet that may reach 450 engines is
//! decided on every 3 s, as one second serves 200.

use super::manifest::{
    Autoscaler, GpuPool, Interval, Mode, OpenCause, Overflow, OverflowChoice, Pool, Role,
    SupplyType,
};
use super::values::{Money, Time};
use spillgate_core::model::Profile;
use spillgate_core::observation::Name;
use spillgate_core::policy as core;
use spillgate_core::units::{Gpus, MicroUsd, Micros, Ppm, Replicas, Span};
use std::collections::BTreeMap;

/// Why manifests do not add up to a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A profile is not known.
    #[error(
        "policy {policy}: pool {pool} names profile {profile}, which is not known; give its file, or `spillgate check` names the near miss"
    )]
    UnknownProfile {
        /// The policy.
        policy: String,
        /// The pool.
        pool: String,
        /// The profile.
        profile: String,
    },
    /// A GPU pool is not known.
    #[error(
        "policy {policy}: pool {pool} names GPUPool {gpu_pool}, which is not in the files; give the file that defines it"
    )]
    UnknownGpuPool {
        /// The policy.
        policy: String,
        /// The pool.
        pool: String,
        /// The GPU pool.
        gpu_pool: String,
    },
    /// Nothing bounds a pool.
    #[error("policy {policy}: pool {pool} has neither maxReplicas nor gpuPoolRef; set one of them")]
    Unbounded {
        /// The policy.
        policy: String,
        /// The pool.
        pool: String,
    },
}

/// A policy and the GPU pools that it draws from, as the brain reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The policy.
    pub policy: core::Policy,
    /// Its GPU pools, sorted by name.
    pub gpu_pools: Vec<core::GpuPoolPolicy>,
}

/// Engines that one second of tick serves.
const ENGINES_A_SECOND: u64 = 200;

/// Resolves one policy. Pools without a `gpuPoolRef` share a GPU pool of the policy's own name that
/// holds exactly what their maxima ask for: there only `maxReplicas` bounds them.
pub fn resolve(
    autoscaler: &Autoscaler,
    gpu_pools: &[GpuPool],
    find_profile: &dyn Fn(&str) -> Option<Profile>,
) -> Result<Resolved, ResolveError> {
    let spec = &autoscaler.spec;
    let full_name = full_name(autoscaler);
    let mut used = BTreeMap::new();
    let mut pools = Vec::new();
    for pool in &spec.pools {
        pools.push(resolve_pool(&full_name, pool, gpu_pools, find_profile, &mut used)?);
    }
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    let engines: u64 =
        pools.iter().map(|p| u64::from(p.max.0).saturating_mul(p.engines_each.into())).sum();
    let tick = match spec.tick {
        Some(tick) => tick.span(),
        None => Span::secs(engines.div_ceil(ENGINES_A_SECOND).clamp(1, 60)),
    };
    let policy = core::Policy {
        name: Name::from(full_name.as_str()),
        mode: match spec.mode {
            Mode::Shadow => core::Mode::Shadow,
            Mode::Active => core::Mode::Active,
            Mode::Paused => core::Mode::Paused,
        },
        priority: spec.priority,
        objectives: core::Objectives {
            attainment: Ppm(u32::from(spec.objectives.attainment_percent) * 10_000),
            ttft: spec.objectives.ttft.as_ref().map(|ttft| core::TtftTarget {
                base: ttft.target.0,
                per_kilotoken: ttft.per_thousand_input_tokens.map_or(Micros::ZERO, |time| time.0),
            }),
            itl: spec.objectives.itl.as_ref().map(|itl| itl.target.0),
            e2e: spec.objectives.e2e.as_ref().map(|e2e| e2e.target.0),
        },
        pools,
        scale_down: core::ScaleDown {
            window: spec.scale_down.stabilization_window.span(),
            interval: match spec.scale_down.interval {
                Interval::Auto => None,
                Interval::Every(time) => Some(time.span()),
            },
            drain_timeout: spec.scale_down.drain_timeout.span(),
        },
        forecast_percentile: spec.forecast.percentile,
        overflow: resolve_overflow(&spec.overflow),
        tick,
    };
    Ok(Resolved { policy, gpu_pools: used.into_values().collect() })
}

/// `namespace/name`.
#[must_use]
pub fn full_name(autoscaler: &Autoscaler) -> String {
    format!("{}/{}", autoscaler.metadata.namespace, autoscaler.metadata.name)
}

/// One text for one meaning, for hashing: every default filled in, durations and money in one
/// spelling, pools and schedules in the order of their names.
#[must_use]
pub fn canonical_json(autoscaler: &Autoscaler) -> String {
    let mut canonical = autoscaler.clone();
    canonical.spec.pools.sort_by(|a, b| a.name.cmp(&b.name));
    canonical.spec.schedules.sort_by(|a, b| a.name.cmp(&b.name));
    canonical.spec.overflow.open_on.sort_unstable();
    for schedule in &mut canonical.spec.schedules {
        schedule.min_replicas.sort_by(|a, b| a.pool.cmp(&b.pool));
    }
    // Maps with text keys and no floats: this cannot fail.
    serde_json::to_string(&canonical).unwrap_or_default()
}

fn resolve_pool(
    policy: &str,
    pool: &Pool,
    gpu_pools: &[GpuPool],
    find_profile: &dyn Fn(&str) -> Option<Profile>,
    used: &mut BTreeMap<Name, core::GpuPoolPolicy>,
) -> Result<core::PoolPolicy, ResolveError> {
    let profile = find_profile(&pool.profile_ref.name).ok_or_else(|| {
        let profile = pool.profile_ref.name.clone();
        ResolveError::UnknownProfile { policy: policy.into(), pool: pool.name.clone(), profile }
    })?;
    let named = match &pool.gpu_pool_ref {
        Some(reference) => {
            Some(gpu_pools.iter().find(|known| known.metadata.name == reference.name).ok_or_else(
                || ResolveError::UnknownGpuPool {
                    policy: policy.into(),
                    pool: pool.name.clone(),
                    gpu_pool: reference.name.clone(),
                },
            )?)
        }
        None => None,
    };
    let max = match (pool.max_replicas, named) {
        (Some(max), _) => Replicas(max),
        (None, Some(known)) => Gpus(known.spec.max_devices) / profile.gpus_each,
        (None, None) => {
            let pool = pool.name.clone();
            return Err(ResolveError::Unbounded { policy: policy.into(), pool });
        }
    };
    let gpu_pool = match named {
        Some(known) => resolve_gpu_pool(known),
        None => core::GpuPoolPolicy {
            name: Name::from(policy),
            max_devices: Gpus::ZERO,
            supply: core::Supply::Fixed,
            cost_per_device_hour: None,
        },
    };
    let kept = used.entry(gpu_pool.name.clone()).or_insert(gpu_pool);
    if named.is_none() {
        kept.max_devices = kept.max_devices + max * profile.gpus_each;
    }
    let estimate = pool.startup.initial_estimate.map_or(profile.start_time, Time::span);
    // A slow profile must not turn every start into a failed one.
    let timeout = Span(Span::mins(15).0.max(estimate.0.saturating_mul(2)));
    Ok(core::PoolPolicy {
        name: Name::from(pool.name.as_str()),
        role: match pool.role {
            Role::Prefill => core::Role::Prefill,
            Role::Decode => core::Role::Decode,
            Role::Mixed => core::Role::Mixed,
            Role::Pooling => core::Role::Pooling,
        },
        gpu_pool: kept.name.clone(),
        min: Replicas(pool.min_replicas),
        max,
        profile: Name::from(pool.profile_ref.name.as_str()),
        gpus_each: profile.gpus_each,
        cost_per_device_hour: kept.cost_per_device_hour,
        startup_estimate: estimate,
        startup_timeout: pool.startup.timeout.map_or(timeout, Time::span),
        engines_each: pool.engine.engines_per_pod,
    })
}

/// One GPU pool as the brain reads it.
#[must_use]
pub fn resolve_gpu_pool(pool: &GpuPool) -> core::GpuPoolPolicy {
    let supply = &pool.spec.supply;
    core::GpuPoolPolicy {
        name: Name::from(pool.metadata.name.as_str()),
        max_devices: Gpus(pool.spec.max_devices),
        supply: match supply.supply_type {
            SupplyType::Fixed => core::Supply::Fixed,
            SupplyType::Elastic => core::Supply::Elastic {
                provision_timeout: supply.provision_timeout.map_or(Span::mins(10), Time::span),
                // One at a time is the careful reading of an object that skipped the check.
                max_pending: Replicas(supply.max_pending_replicas.unwrap_or(1)),
            },
        },
        cost_per_device_hour: dollars(pool.spec.cost_per_device_hour),
    }
}

fn resolve_overflow(overflow: &Overflow) -> core::OverflowPolicy {
    let on = |cause: OpenCause| overflow.open_on.contains(&cause);
    core::OverflowPolicy {
        allowed: overflow.policy == OverflowChoice::Allowed,
        open_on: core::OpenOn {
            exhausted: on(OpenCause::Exhausted),
            at_max: on(OpenCause::AtMax),
            unavailable: on(OpenCause::Unavailable),
            starting: on(OpenCause::Starting),
        },
        open_after: overflow.open_after.span(),
        close_after: overflow.close_after.span(),
        cost_per_hour: dollars(overflow.limits.cost_per_hour),
        tokens_per_minute: overflow.limits.tokens_per_minute.map(|count| count.0),
        destinations: overflow
            .destinations
            .iter()
            .map(|destination| core::Destination {
                name: Name::from(destination.name.as_str()),
                input_per_million: dollars(destination.external.input_per_million_tokens),
                output_per_million: dollars(destination.external.output_per_million_tokens),
            })
            .collect(),
    }
}

fn dollars(money: Option<Money>) -> Option<MicroUsd> {
    money.map(|money| money.0)
}
