//! The brain: three pure functions, and the memory that each stage keeps between ticks.
//!
//! [`assess`] once a policy, [`share()`](crate::share::share) once a device pool, [`settle`] once a
//! policy with its grants. Same inputs, same decisions: there is no clock, no randomness and no
//! unordered map in here. Bad input degrades to hold, with the reason.
//!
//! Worked number: 55 requests a second of 1 155 + 211 tokens on a Qwen3-32B profile keep about 3.7
//! prefill and 2.2 decode replicas busy; with a bound of 1.3 and a busy share of 0.7 the decision
//! is 7 and 4.

use crate::audit::{Broken, audit};
use crate::balance::{self, DeviceRoom, Target};
use crate::decision::{Decision, PoolDecision, Write};
use crate::estimate::Offered;
use crate::govern::Move;
use crate::learn::Learned;
use crate::model::Profile;
use crate::observation::{DevicesSeen, Name, Observation, PoolSeen};
use crate::observe::Observed;
use crate::overflow::Gate;
use crate::policy::{GpuPoolPolicy, Policy, Role, Supply};
use crate::reason::Reason;
use crate::share::{Ask, Grant};
use crate::units::{Gpus, Permille, Ratio, Span};
use crate::{estimate, forecast, govern, learn, observe, overflow, size};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// All that one policy's stages remember. Each stage has its own part and touches no other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    observe: observe::Memory,
    learn: learn::Memory,
    estimate: estimate::Memory,
    forecast: forecast::Memory,
    govern: govern::Memory,
    overflow: overflow::Memory,
}

/// What a policy wants, before it is known what it may have.
#[derive(Clone, Debug)]
pub struct Assessment {
    observed: Observed,
    offered: Offered,
    targets: Vec<Target>,
    /// Devices asked of each GPU pool.
    pub asks: BTreeMap<Name, Ask>,
}

/// observe, learn, estimate, forecast, size; and the needs of roles spread over their pools.
pub fn assess(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    seen: &Observation,
    memory: &mut Memory,
) -> Assessment {
    let observed = observe::observe(policy, seen, &mut memory.observe);
    let learned = learn::learn(policy, profiles, &observed, &mut memory.learn);
    let slowness: Vec<Ratio> = learned.pools.iter().map(|p| p.slowness).collect();
    let offered = estimate::estimate(policy, profiles, &observed, &slowness, &mut memory.estimate);
    let lead = |role: Role| lead_of(policy, &learned, role);
    let expected = forecast::forecast(policy, observed.now, &offered, lead, &mut memory.forecast);
    let sized = size::size(policy, &observed, &offered, &expected, lead);
    let targets = balance::spread(policy, profiles, seen, &observed, &offered, &sized, &slowness);
    let asks = balance::asks(policy, &observed, &targets);
    Assessment { observed, offered, targets, asks }
}

/// The lead time of a role: of the variant that arrives soonest.
fn lead_of(policy: &Policy, learned: &Learned, role: Role) -> Span {
    policy
        .pools
        .iter()
        .zip(&learned.pools)
        .filter(|(pool, _)| pool.role == role)
        .map(|(_, known)| known.lead)
        .min()
        .unwrap_or(Span::mins(3))
}

/// balance, govern, overflow; then the audit. A pool whose write breaks a rule holds, and says so.
///
/// `grants` are those of every GPU pool, `previous` the observation of the tick before.
pub fn settle(
    policy: &Policy,
    gpu_pools: &[GpuPoolPolicy],
    previous: Option<&Observation>,
    seen: &Observation,
    assessment: Assessment,
    grants: &BTreeMap<Name, Vec<Grant>>,
    memory: &mut Memory,
) -> (Decision, Vec<Broken>) {
    let Assessment { observed, offered, mut targets, .. } = assessment;
    let rooms = device_rooms(policy, gpu_pools, seen, grants);
    balance::balance(policy, &observed, &rooms, &mut targets);
    let share = observed.router.map_or(Permille::ZERO, |r| r.share.max(r.ordered));
    let moves = govern::govern(policy, seen, &observed, &targets, share, &mut memory.govern);
    let gate = overflow::overflow(policy, &observed, &offered, &targets, &mut memory.overflow);
    let mut decision = compose(policy, seen, &observed, targets, moves, gate, memory);
    let broken = audit(policy, gpu_pools, previous, seen, &decision);
    for breach in &broken {
        withdraw(&mut decision, breach);
    }
    (decision, broken)
}

fn device_rooms(
    policy: &Policy,
    gpu_pools: &[GpuPoolPolicy],
    seen: &Observation,
    grants: &BTreeMap<Name, Vec<Grant>>,
) -> BTreeMap<Name, DeviceRoom> {
    let mut rooms = BTreeMap::new();
    for pool in &policy.pools {
        let devices = seen.devices.get(&pool.gpu_pool);
        let rules = gpu_pools.iter().find(|g| g.name == pool.gpu_pool);
        let limit = rules.map_or(Gpus::MAX, |g| g.max_devices);
        let within =
            |d: &DevicesSeen| DevicesSeen { allocatable: Gpus(d.allocatable.0.min(limit.0)), ..*d };
        let room = DeviceRoom {
            granted: balance::granted(policy, grants, &pool.gpu_pool),
            free: devices.map_or(Gpus::ZERO, |d| within(d).free()),
            below_limit: limit
                .less(devices.map_or(Gpus::ZERO, |d| d.used_by_us + d.used_by_others)),
            known: devices.is_some(),
            supply: rules.map_or(Supply::Fixed, |g| g.supply),
        };
        rooms.insert(pool.gpu_pool.clone(), room);
    }
    rooms
}

/// Puts the stages' results together, pools in the policy's order.
fn compose(
    policy: &Policy,
    seen: &Observation,
    observed: &Observed,
    targets: Vec<Target>,
    moves: Vec<Move>,
    gate: Gate,
    memory: &Memory,
) -> Decision {
    let absent = PoolSeen::default();
    let parts = policy.pools.iter().zip(&observed.pools).zip(targets).zip(moves);
    let pools = parts.map(|(((pool, view), target), moved)| {
        let now = seen.pools.get(&pool.name).unwrap_or(&absent);
        let mut reasons = view.reasons.clone();
        match target.need {
            Some(need) => reasons.push(Reason::Need {
                replicas_milli: need.0,
                serving: view.serving,
                coming: view.coming,
            }),
            None => reasons.push(Reason::NoDemand),
        }
        reasons.extend(target.reasons);
        reasons.extend(moved.reasons);
        let write = moved.to.zip(now.spec).filter(|(to, from)| to != from);
        PoolDecision {
            pool: pool.name.clone(),
            need_milli: target.need.map(|n| n.0),
            proof_since: memory.govern.proof_since(&pool.name),
            write: write.map(|(to, from)| Write {
                from,
                to,
                version: now.version,
                victim: moved.victim,
            }),
            reasons,
        }
    });
    Decision {
        at: seen.now,
        pools: pools.collect(),
        route: gate.order,
        excess: gate.excess,
        open: gate.open,
        gate: gate.reasons,
    }
}

/// Takes back what broke a rule.
fn withdraw(decision: &mut Decision, breach: &Broken) {
    let reason = Reason::RuleBroken { rule: breach.rule };
    match breach.pool.and_then(|i| decision.pools.get_mut(i)) {
        Some(pool) => {
            pool.write = None;
            pool.reasons.push(reason);
        }
        None => {
            for pool in &mut decision.pools {
                pool.write = None;
            }
            if breach.rule != 2 {
                decision.route = None;
            }
            decision.gate.push(reason);
        }
    }
}
