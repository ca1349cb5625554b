//! Stage 2, learn: how long a start takes here, and how fast replicas really are.
//!
//! Start times are learned from pods that came up before our eyes (from a node to ready); until three
//! were seen, the policy's estimate stands. Speed is the measured mean gap between tokens over the one
//! that the profile predicts for the batch that ran, smoothed, bounded to half and double, with
//! pods in their first minute left out. The profile stays the prior and the fallback.
//!
//! Worked number: a batch of 64 predicted at 18.8 ms a token and measured at 20.7 ms has a
//! slowness of 1.1: capacity is 1/1.1 of what the profile says.

use crate::model::Profile;
use crate::observation::Name;
use crate::observe::{Observed, PodState, PoolView};
use crate::policy::{Policy, PoolPolicy, Role};
use crate::units::{Ratio, Span, Stamp};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Starts that must be seen before they replace the estimate.
const STARTS_NEEDED: usize = 3;
/// Starts remembered.
const STARTS_KEPT: usize = 16;
/// A pod younger than this is warming up.
const WARM_UP: Span = Span::secs(60);
/// Weight of one tick in the smoothed slowness.
const SMOOTHING: f64 = 0.02;
/// Gaps between tokens that make a tick worth learning from.
const GAPS_NEEDED: u64 = 100;

/// What this stage remembers, by pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pools: BTreeMap<Name, PoolMemory>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PoolMemory {
    starts: VecDeque<Span>,
    slowness: Option<f64>,
}

/// What was learned, pools in the policy's order.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// One a pool.
    pub pools: Vec<PoolLearned>,
}

/// One pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLearned {
    /// Time from an order to a serving replica: nine in ten are faster.
    pub lead: Span,
    /// Measured over predicted step time.
    pub slowness: Ratio,
}

/// Runs the stage.
pub fn learn(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    observed: &Observed,
    memory: &mut Memory,
) -> Learned {
    let pools = policy.pools.iter().zip(&observed.pools).map(|(pool, view)| {
        let known = memory.pools.entry(pool.name.clone()).or_default();
        for &start in &view.started {
            known.starts.push_back(start);
            if known.starts.len() > STARTS_KEPT {
                known.starts.pop_front();
            }
        }
        if let Some(profile) = profiles.get(&pool.profile)
            && let Some(ratio) = measured_slowness(pool, profile, observed.now, view)
        {
            let before = known.slowness.unwrap_or(1.0);
            known.slowness = Some((before + SMOOTHING * (ratio - before)).clamp(0.5, 2.0));
        }
        PoolLearned {
            lead: lead_time(pool, &known.starts),
            slowness: Ratio::new(known.slowness.unwrap_or(1.0)),
        }
    });
    Learned { pools: pools.collect() }
}

/// The start time that nine in ten starts stay below, or the estimate.
fn lead_time(pool: &PoolPolicy, starts: &VecDeque<Span>) -> Span {
    if starts.len() < STARTS_NEEDED {
        return pool.startup_estimate;
    }
    let mut sorted: Vec<Span> = starts.iter().copied().collect();
    sorted.sort_unstable();
    sorted[(sorted.len() * 9 / 10).min(sorted.len() - 1)]
}

/// This tick's mean token gap over the predicted step, if the tick can tell.
fn measured_slowness(
    pool: &PoolPolicy,
    profile: &Profile,
    now: Stamp,
    view: &PoolView,
) -> Option<f64> {
    let warm = |served: Option<Stamp>| served.is_some_and(|at| now.since(at) > WARM_UP);
    let all_warm = view
        .pods
        .iter()
        .filter(|p| matches!(p.state, PodState::Serving | PodState::Draining))
        .all(|p| warm(p.served));
    if pool.role != Role::Decode || view.flow.gaps < GAPS_NEEDED || !all_warm {
        return None;
    }
    let serving = u64::from(view.serving.0.max(1));
    let step = profile.model.step(view.running / serving, view.kv_tokens / serving, 0, 0);
    let measured = view.flow.gap_sum as f64 / view.flow.gaps as f64;
    let predicted = step.as_secs() * 1e6;
    (predicted > 0.0 && measured > 0.0).then(|| (measured / predicted).clamp(0.25, 4.0))
}
