//! The ten rules in one function: what no decision may do, whatever led to it.
//!
//! In production a breach becomes a hold, a reason and a metric; in tests and in the simulator it
//! fails. It looks at the observation before the last decision, at the one decided on, and at the
//! decision, and shares no code with the stages that made it.
//!
//! Worked number: 5 -> 3 with two pods that serve breaks rule 3; with two that have no node it
//! does not.

use crate::decision::{Decision, PoolDecision, Write};
use crate::observation::{DevicesSeen, Observation, PodSeen, PoolSeen, Scrape};
use crate::policy::{GpuPoolPolicy, Policy, PoolPolicy, Role, Supply};
use crate::reason::Reason;
use crate::units::{Gpus, Permille, Replicas};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A rule that a decision broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The rule's number in the design, 1 to 10.
    pub rule: u8,
    /// The pool's place in the policy; `None`: the gate or the whole.
    pub pool: Option<usize>,
    /// What is wrong.
    pub what: &'static str,
}

/// Checks a decision. `previous` is the observation of the tick before, if there was one.
#[must_use]
pub fn audit(
    policy: &Policy,
    gpu_pools: &[GpuPoolPolicy],
    previous: Option<&Observation>,
    seen: &Observation,
    decision: &Decision,
) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut say = |rule: u8, pool: Option<usize>, what: &'static str| {
        broken.push(Broken { rule, pool, what });
    };
    whole(policy, previous, seen, decision, &mut say);
    let absent = PoolSeen::default();
    for (i, (pool, decided)) in policy.pools.iter().zip(&decision.pools).enumerate() {
        let now = seen.pools.get(&pool.name).unwrap_or(&absent);
        let Some(write) = &decided.write else { continue };
        let mut say = |rule, what| say(rule, Some(i), what);
        write_rules(pool, now, write, decided, &mut say);
        if write.to < write.from {
            shrink_rules(policy, seen, pool, now, write, decided, &mut say);
        }
    }
    device_rules(policy, gpu_pools, seen, decision, &mut say);
    partner_rules(policy, seen, decision, &mut say);
    broken
}

/// Rules 8, 9 and 10, as far as they concern the whole decision.
fn whole(
    policy: &Policy,
    previous: Option<&Observation>,
    seen: &Observation,
    decision: &Decision,
    say: &mut impl FnMut(u8, Option<usize>, &'static str),
) {
    let names = policy.pools.iter().map(|p| &p.name);
    if decision.at != seen.now || !names.eq(decision.pools.iter().map(|p| &p.pool)) {
        say(10, None, "not a function of this observation: time or pools differ");
    }
    if previous.is_some_and(|p| p.now > seen.now)
        && decision.pools.iter().any(|p| p.write.is_some())
    {
        say(10, None, "acts although the clock went back");
    }
    if let Some(share) = decision.route {
        if share > Permille(1_000) {
            say(9, None, "spills more than everything");
        }
        let barred = !policy.overflow.allowed || policy.overflow.destinations.is_empty();
        if share > Permille::ZERO && barred {
            say(9, None, "spills although the policy forbids it");
        }
        if decision.gate.is_empty() {
            say(8, None, "moves the gate without a word");
        }
    }
}

/// Rules 2, 7 and 8 for any write.
fn write_rules(
    pool: &PoolPolicy,
    now: &PoolSeen,
    write: &Write,
    decided: &PoolDecision,
    say: &mut impl FnMut(u8, &'static str),
) {
    if now.spec != Some(write.from) || now.version != write.version {
        say(7, "writes on something else than what was read");
    }
    if write.to > pool.max || (write.to < pool.min && write.to <= write.from) {
        say(2, "leaves the pool's bounds");
    }
    if write.to == write.from || decided.reasons.is_empty() {
        say(8, "writes without a change or without a word");
    }
}

/// Rules 1, 3, 4, 6 and 9 for a write that lowers.
fn shrink_rules(
    policy: &Policy,
    seen: &Observation,
    pool: &PoolPolicy,
    now: &PoolSeen,
    write: &Write,
    decided: &PoolDecision,
    say: &mut impl FnMut(u8, &'static str),
) {
    if write.from > pool.max {
        // A person lowered the bound.
        return;
    }
    let nodeless = count(now, |pod| pod.scheduled.is_none());
    let unborn = write.from.less(count(now, |_| true));
    let never_started = nodeless + unborn;
    let goes = write.from.less(write.to);
    if goes <= never_started {
        return;
    }
    if goes > Replicas(1) {
        say(3, "takes more than one replica that has a node");
    }
    let donated = decided.reasons.iter().any(|r| matches!(r, Reason::Donated { .. }));
    let blind = policy.pools.iter().any(|p| seen.pools.get(&p.name).is_none_or(is_blind));
    if blind {
        say(1, "shrinks although too few pods are seen to prove low load");
    }
    let starting = count(now, |pod| pod.scheduled.is_some() && pod.ready.is_none() && !pod.failing);
    if starting > Replicas::ZERO && !donated {
        say(4, "shrinks while replicas asked for are still starting");
    }
    let proven =
        decided.proof_since.is_some_and(|since| seen.now.since(since) >= policy.scale_down.window);
    if !proven && !donated {
        say(6, "shrinks before one full window was seen");
    }
    if seen.router.as_ref().is_some_and(|r| r.share > Permille::ZERO) && !donated {
        say(9, "shrinks while traffic spills");
    }
}

fn count(pool: &PoolSeen, test: impl Fn(&PodSeen) -> bool) -> Replicas {
    let living = pool.pods.values().filter(|pod| pod.deleting.is_none() && test(pod));
    Replicas(u32::try_from(living.count()).unwrap_or(u32::MAX))
}

/// More than a twentieth of the pods that are ready do not answer.
fn is_blind(pool: &PoolSeen) -> bool {
    let ready = count(pool, |pod| pod.ready.is_some());
    let unseen = count(pool, |pod| pod.ready.is_some() && pod.scrape != Scrape::Fresh);
    u64::from(unseen.0) * 20 > u64::from(ready.0)
}

/// Rule 2: growth only onto devices that are there, or may come.
fn device_rules(
    policy: &Policy,
    gpu_pools: &[GpuPoolPolicy],
    seen: &Observation,
    decision: &Decision,
    say: &mut impl FnMut(u8, Option<usize>, &'static str),
) {
    for gpu_pool in gpu_pools {
        let Some(devices) = seen.devices.get(&gpu_pool.name) else { continue };
        let (grows, asked) = asked_for(policy, seen, decision, gpu_pool);
        let limit = match gpu_pool.supply {
            Supply::Fixed => Gpus(devices.allocatable.0.min(gpu_pool.max_devices.0)),
            // Nodes may come; the pool's own limit stays.
            Supply::Elastic { .. } => gpu_pool.max_devices,
        };
        let room = limit.less(devices.used_by_others);
        if grows && asked > room.less(held_by_siblings(policy, seen, *devices, gpu_pool)) {
            say(2, None, "asks for more devices than there are");
        }
    }
}

/// Whether the decision grows in this GPU pool, and all it would then hold there.
fn asked_for(
    policy: &Policy,
    seen: &Observation,
    decision: &Decision,
    gpu_pool: &GpuPoolPolicy,
) -> (bool, Gpus) {
    let (mut grows, mut asked) = (false, Gpus::ZERO);
    for (pool, decided) in policy.pools.iter().zip(&decision.pools) {
        let Some(now) = seen.pools.get(&pool.name) else { continue };
        if pool.gpu_pool != gpu_pool.name {
            continue;
        }
        let spec = now.spec.unwrap_or(Replicas::ZERO);
        let to = decided.write.as_ref().map_or(spec, |w| w.to);
        // Back to the guaranteed minimum is always allowed: a Pending pod is how it is said.
        grows |= to > spec && to > pool.min;
        let leaving = now.pods.values().filter(|p| p.deleting.is_some() && p.scheduled.is_some());
        let leaving = Replicas(u32::try_from(leaving.count()).unwrap_or(u32::MAX));
        asked = asked + (Replicas(to.0.max(spec.0)) + leaving) * pool.gpus_each;
    }
    (grows, asked)
}

/// Devices of ours that other policies' pods hold.
fn held_by_siblings(
    policy: &Policy,
    seen: &Observation,
    devices: DevicesSeen,
    gpu_pool: &GpuPoolPolicy,
) -> Gpus {
    let own = policy.pools.iter().filter(|p| p.gpu_pool == gpu_pool.name).map(|pool| {
        let placed = seen
            .pools
            .get(&pool.name)
            .map_or(0, |now| now.pods.values().filter(|pod| pod.scheduled.is_some()).count());
        Replicas(u32::try_from(placed).unwrap_or(u32::MAX)) * pool.gpus_each
    });
    devices.used_by_us.less(own.sum())
}

/// Rule 5: no growth past what the partner can take.
fn partner_rules(
    policy: &Policy,
    seen: &Observation,
    decision: &Decision,
    say: &mut impl FnMut(u8, Option<usize>, &'static str),
) {
    let after = |i: usize| -> Option<f64> {
        let need = decision.pools[i].need_milli.filter(|&n| n > 0)?;
        let spec = seen.pools.get(&policy.pools[i].name).and_then(|p| p.spec)?;
        let to = decision.pools[i].write.as_ref().map_or(spec, |w| w.to);
        Some(f64::from(to.0.max(spec.0)) * 1e3 / need as f64)
    };
    for (i, pool) in policy.pools.iter().enumerate().take(decision.pools.len()) {
        let partner = match pool.role {
            Role::Prefill => Role::Decode,
            Role::Decode => Role::Prefill,
            Role::Mixed | Role::Pooling => continue,
        };
        let best = (0..decision.pools.len())
            .filter(|&k| policy.pools[k].role == partner)
            .map(|k| after(k).unwrap_or(f64::INFINITY))
            .fold(0.0_f64, f64::max);
        let decided = &decision.pools[i];
        let (Some(write), Some(need)) = (&decided.write, decided.need_milli) else { continue };
        let useful = need as f64 * best / 1e3 + 1.0;
        // A bound, the policy's or a schedule's, holds whatever the partner has.
        let scheduled = seen.pools.get(&pool.name).map_or(Replicas::ZERO, |p| p.floor);
        let floor = pool.min.max(scheduled);
        if write.to > write.from && f64::from(write.to.0) > useful && write.to > floor {
            say(5, Some(i), "grows past what its partner can take or feed");
        }
    }
}
