//! Stage 7, balance: from the need of a role to a target a pool, within bounds and devices, with
//! prefill and decode in step.
//!
//! Variants of one role: the cheapest grows first, the dearest shrinks first. Where devices do not
//! reach, the pool that is best served relative to its need gives way first, which leaves the
//! worst-served as well off as can be; a pool gives up running replicas only above its own need.
//! Prefill beyond what decode can take, or decode beyond what prefill feeds, is not bought.
//!
//! Worked number: 12 devices of 2 a replica, needs of 4 prefill and 4 decode: 3 and 3.

use crate::estimate::{Offered, capacity};
use crate::model::Profile;
use crate::observation::{Name, Observation};
use crate::observe::{Observed, PoolView};
use crate::policy::{Policy, PoolPolicy, Role, Supply};
use crate::reason::{Cause, Reason, Reasons};
use crate::share::{Ask, Grant};
use crate::size::{Milli, Sized};
use crate::units::{Gpus, GpusEach, Ratio, Replicas, finite};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What the pool should have, and what stands in the way.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Replicas needed, in thousandths of this pool's own; `None`: unknown.
    pub need: Option<Milli>,
    /// The part of it that is needed for what is offered and late now.
    pub present: Option<Milli>,
    /// What one of its replicas carries, over one of the role's first pool.
    pub weight: f64,
    /// Replicas wanted within the pool's bounds, before devices.
    pub wanted: Replicas,
    /// Replicas that can be asked for now.
    pub reachable: Replicas,
    /// Lowest number that the bounds allow.
    pub floor: Replicas,
    /// Running replicas may be given to the partner, down to this.
    pub donates_to: Option<Replicas>,
    /// What keeps the need from being met.
    pub short: Option<Cause>,
    /// What is to be said.
    pub reasons: Reasons,
}

/// Devices of one GPU pool as this policy may use them.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRoom {
    /// What was granted.
    pub granted: Gpus,
    /// Nobody holds.
    pub free: Gpus,
    /// Below the pool's own limit, whoever holds the rest: what nodes that are not there yet may add.
    pub below_limit: Gpus,
    /// The inventory is known.
    pub known: bool,
    /// Where devices come from.
    pub supply: Supply,
}

/// Targets before devices: need spread over the pools of each role, within their bounds.
#[must_use]
pub fn spread(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    seen: &Observation,
    observed: &Observed,
    offered: &Offered,
    sized: &[Sized],
    slowness: &[Ratio],
) -> Vec<Target> {
    let mut targets: Vec<Target> = policy
        .pools
        .iter()
        .zip(&observed.pools)
        .map(|(pool, view)| bounded_start(pool, view, seen))
        .collect();
    for sized in sized {
        let members: Vec<usize> =
            (0..policy.pools.len()).filter(|&i| policy.pools[i].role == sized.role).collect();
        let weights: Vec<f64> = members
            .iter()
            .map(|&i| weight(policy, profiles, offered, slowness, i, members[0]))
            .collect();
        for (&member, &weight) in members.iter().zip(&weights) {
            targets[member].weight = weight;
        }
        spread_role(policy, &members, &weights, sized, &mut targets);
    }
    targets
}

/// A pool's target while nothing is known: what it has, within its bounds.
fn bounded_start(pool: &PoolPolicy, view: &PoolView, seen: &Observation) -> Target {
    let scheduled = seen.pools.get(&pool.name).map_or(Replicas::ZERO, |p| p.floor);
    let floor = Replicas(pool.min.0.max(scheduled.0).min(pool.max.0));
    let spec = view.spec.unwrap_or(floor);
    let wanted = Replicas(spec.0.clamp(floor.0, pool.max.0));
    Target { weight: 1.0, wanted, reachable: wanted, floor, ..Target::default() }
}

/// Capacity of a replica of pool `index` over one of the role's first pool.
fn weight(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    offered: &Offered,
    slowness: &[Ratio],
    index: usize,
    first: usize,
) -> f64 {
    if index == first {
        return 1.0;
    }
    let Some(mix) = offered.mix else { return 1.0 };
    let slow = |i: usize| slowness.get(i).copied().unwrap_or(Ratio::ONE);
    let own = capacity(policy, profiles, &policy.pools[index], &mix, slow(index));
    let reference = capacity(policy, profiles, &policy.pools[first], &mix, slow(first));
    if reference.get() > 0.0 { own.get() / reference.get() } else { 1.0 }
}

fn spread_role(
    policy: &Policy,
    members: &[usize],
    weights: &[f64],
    sized: &Sized,
    targets: &mut [Target],
) {
    let need = sized.need;
    if let ([only], [_]) = (members, weights) {
        let pool = &policy.pools[*only];
        set_wanted(pool, need, &mut targets[*only]);
        targets[*only].present = Some(sized.present);
        return;
    }
    // Cheapest capacity first: price of a replica over what it carries.
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|&a, &b| {
        let price = |k: usize| {
            let pool = &policy.pools[members[k]];
            let each = f64::from(pool.gpus_each.0);
            let cost = pool.cost_per_device_hour.map_or(1.0, |c| c.0 as f64);
            cost * each / weights[k].max(1e-6)
        };
        price(a).total_cmp(&price(b)).then(a.cmp(&b))
    });
    let mut left = need.0 as f64 / 1e3;
    for &k in &order {
        left -= f64::from(targets[members[k]].floor.0) * weights[k];
    }
    for &k in &order {
        let (pool, weight) = (&policy.pools[members[k]], weights[k].max(1e-6));
        let target = &mut targets[members[k]];
        let room = f64::from(pool.max.0 - target.floor.0.min(pool.max.0));
        let last = order.last() == Some(&k);
        let take = (left.max(0.0) / weight).min(if last { f64::INFINITY } else { room });
        left -= take * weight;
        set_wanted(pool, Milli::new(f64::from(target.floor.0) + take), target);
        // Each variant has its part of the need of now, as of the need to come.
        let part = target.need.map_or(0, |own| own.0) as f64 / need.0.max(1) as f64;
        target.present = Some(Milli(libm::ceil(sized.present.0 as f64 * finite(part)) as u64));
    }
}

fn set_wanted(pool: &PoolPolicy, need: Milli, target: &mut Target) {
    let wanted = need.replicas();
    target.need = Some(need);
    target.wanted = Replicas(wanted.0.clamp(target.floor.0, pool.max.0));
    target.reachable = target.wanted;
    if wanted > pool.max {
        target.short = Some(Cause::AtMax);
        target.reasons.push(Reason::AtMax { wanted, max: pool.max });
    }
}

/// What the policy asks of each GPU pool.
#[must_use]
pub fn asks(policy: &Policy, observed: &Observed, targets: &[Target]) -> BTreeMap<Name, Ask> {
    let mut asks: BTreeMap<Name, Ask> = BTreeMap::new();
    for ((pool, view), target) in policy.pools.iter().zip(&observed.pools).zip(targets) {
        let ask = asks.entry(pool.gpu_pool.clone()).or_insert_with(|| Ask {
            policy: policy.name.clone(),
            priority: policy.priority,
            guaranteed: Gpus::ZERO,
            wanted: Gpus::ZERO,
            held: Gpus::ZERO,
        });
        let held = committed(view) * pool.gpus_each;
        // Unknown need keeps what it has; a pool that shrinks slowly still holds.
        let wanted = Replicas(target.wanted.0.max(view.spec.map_or(0, |s| s.0)));
        ask.guaranteed = ask.guaranteed + pool.min * pool.gpus_each;
        ask.wanted = ask.wanted + wanted * pool.gpus_each + view.draining * pool.gpus_each;
        ask.held = ask.held + held;
    }
    asks
}

/// Replicas that hold or will hold devices: asked for, and draining ones.
fn committed(view: &PoolView) -> Replicas {
    let living = view.pods.len().saturating_sub(view.draining.0 as usize);
    let spec = view.spec.unwrap_or(Replicas::ZERO).0;
    Replicas(spec.max(u32::try_from(living).unwrap_or(u32::MAX))) + view.draining
}

/// Fits the targets to the devices granted, and keeps prefill and decode in step.
pub fn balance(
    policy: &Policy,
    observed: &Observed,
    rooms: &BTreeMap<Name, DeviceRoom>,
    targets: &mut [Target],
) {
    for (gpu_pool, room) in rooms {
        fit_grant(policy, observed, gpu_pool, room, targets);
    }
    couple(policy, observed, targets);
    for (gpu_pool, room) in rooms {
        limit_growth(policy, observed, gpu_pool, room, targets);
    }
    // What devices did not allow one side is of no use to the other.
    couple(policy, observed, targets);
}

fn members<'a>(policy: &'a Policy, gpu_pool: &'a Name) -> impl Iterator<Item = usize> + 'a {
    (0..policy.pools.len()).filter(move |&i| policy.pools[i].gpu_pool == *gpu_pool)
}

/// How well a target serves its need; without bound where the need is unknown or nothing.
fn served(target: &Target, replicas: Replicas) -> f64 {
    match target.need {
        Some(need) if need.0 > 0 => f64::from(replicas.0) * 1e3 / need.0 as f64,
        _ => f64::INFINITY,
    }
}

/// Takes from the best-served pool, one replica at a time, until the grant suffices.
fn fit_grant(
    policy: &Policy,
    observed: &Observed,
    gpu_pool: &Name,
    room: &DeviceRoom,
    targets: &mut [Target],
) {
    let draining: Gpus = members(policy, gpu_pool)
        .map(|i| observed.pools[i].draining * policy.pools[i].gpus_each)
        .sum();
    let budget = room.granted.less(draining);
    let lowest = |i: usize, target: &Target| {
        let spec = observed.pools[i].spec.unwrap_or(Replicas::ZERO);
        let own_need = target.need.map_or(spec, Milli::replicas);
        Replicas(target.floor.0.max(spec.0.min(own_need.0)))
    };
    loop {
        let used: Gpus = members(policy, gpu_pool)
            .map(|i| targets[i].reachable * policy.pools[i].gpus_each)
            .sum();
        if used <= budget {
            break;
        }
        let giver = members(policy, gpu_pool)
            .filter(|&i| targets[i].reachable > lowest(i, &targets[i]))
            .max_by(|&a, &b| {
                let after = |i: usize| served(&targets[i], targets[i].reachable.less(Replicas(1)));
                after(a).total_cmp(&after(b)).then(b.cmp(&a))
            });
        let Some(giver) = giver else { break };
        targets[giver].reachable = targets[giver].reachable.less(Replicas(1));
    }
    let free = room.free;
    for i in members(policy, gpu_pool) {
        let (target, spec) = (&mut targets[i], observed.pools[i].spec.unwrap_or(Replicas::ZERO));
        if target.reachable < target.wanted && target.wanted > spec {
            let (wanted, possible) = (target.wanted, target.reachable);
            target.short = Some(target.short.unwrap_or(Cause::Exhausted).min(Cause::Exhausted));
            target.reasons.push(Reason::Exhausted { wanted, possible, free });
        }
    }
    for i in members(policy, gpu_pool) {
        believe_nodes(&observed.pools[i], free, &mut targets[i]);
    }
}

/// Devices may be free in number while no node takes the replica: one that waited for its whole
/// start budget says so, whatever the count.
fn believe_nodes(view: &PoolView, free: Gpus, target: &mut Target) {
    let possible = view.spec.unwrap_or(Replicas::ZERO).less(view.unplaceable);
    let lacking = target.need.is_some() && target.wanted > possible;
    if view.unplaceable > Replicas::ZERO && lacking && target.short.is_none() {
        target.short = Some(Cause::Exhausted);
        target.reasons.push(Reason::Exhausted { wanted: target.wanted, possible, free });
    }
}

/// Keeps prefill from growing past what decode can take, and the reverse.
fn couple(policy: &Policy, observed: &Observed, targets: &mut [Target]) {
    for (role, partner) in [(Role::Prefill, Role::Decode), (Role::Decode, Role::Prefill)] {
        let partner_share = (0..targets.len())
            .filter(|&i| policy.pools[i].role == partner)
            .map(|i| {
                // A pool that somebody parked at zero stays there.
                let parked = observed.pools[i].spec == Some(Replicas::ZERO);
                let parked = parked && policy.pools[i].min > Replicas::ZERO;
                let has = if parked { Replicas::ZERO } else { targets[i].reachable };
                served(&targets[i], has)
            })
            .reduce(f64::max)
            .unwrap_or(f64::INFINITY);
        if partner_share >= 1.0 {
            continue;
        }
        for i in (0..targets.len()).filter(|&i| policy.pools[i].role == role) {
            let (target, spec) =
                (&mut targets[i], observed.pools[i].spec.unwrap_or(Replicas::ZERO));
            let Some(need) = target.need else { continue };
            let useful = Milli(libm::ceil(need.0 as f64 * partner_share) as u64).replicas();
            let useful = Replicas(useful.0.max(spec.0).max(target.floor.0));
            if target.reachable > useful {
                target.reasons.push(Reason::PartnerLimits { wanted: target.reachable, useful });
                target.reachable = useful;
            }
        }
    }
}

/// Growth needs devices that are free now: a donor or a draining pod must let go first.
fn limit_growth(
    policy: &Policy,
    observed: &Observed,
    gpu_pool: &Name,
    room: &DeviceRoom,
    targets: &mut [Target],
) {
    let held: Gpus = members(policy, gpu_pool)
        .map(|i| committed(&observed.pools[i]) * policy.pools[i].gpus_each)
        .sum();
    let queue = |i: usize| {
        let view = &observed.pools[i];
        let pods = Replicas(u32::try_from(view.pods.len()).unwrap_or(u32::MAX));
        view.unscheduled + committed(view).less(pods)
    };
    let queued: Replicas = members(policy, gpu_pool).map(queue).sum();
    let due: Gpus = members(policy, gpu_pool).map(|i| queue(i) * policy.pools[i].gpus_each).sum();
    let mut growth_left = Growth::new(room, held, queued, due);
    let mut order: Vec<usize> = members(policy, gpu_pool).collect();
    order.sort_by(|&a, &b| {
        let now = |i: usize| served(&targets[i], observed.pools[i].spec.unwrap_or(Replicas::ZERO));
        now(a).total_cmp(&now(b)).then(a.cmp(&b))
    });
    for i in order {
        let (pool, target) = (&policy.pools[i], &mut targets[i]);
        let spec = observed.pools[i].spec.unwrap_or(Replicas::ZERO);
        let growth = target.reachable.less(spec);
        let possible = growth_left.take(growth, pool.gpus_each);
        if possible < growth {
            let wanted = target.reachable;
            if target.short.is_none() {
                target.short = Some(Cause::Exhausted);
                target.reasons.push(Reason::AwaitsDevice { wanted });
            }
            target.reachable = spec + possible;
        }
    }
    name_donors(policy, observed, gpu_pool, targets);
}

/// While one pool waits for devices, replicas that another needs no more are given at once.
fn name_donors(policy: &Policy, observed: &Observed, gpu_pool: &Name, targets: &mut [Target]) {
    let starved = members(policy, gpu_pool)
        .any(|i| targets[i].short == Some(Cause::Exhausted) && targets[i].need.is_some());
    if !starved {
        return;
    }
    for i in members(policy, gpu_pool) {
        let spec = observed.pools[i].spec.unwrap_or(Replicas::ZERO);
        let target = &mut targets[i];
        let Some(need) = target.need else { continue };
        if target.short.is_none() && spec > target.floor && need.fits(spec.less(Replicas(1))) {
            target.donates_to = Some(spec.less(Replicas(1)));
        }
    }
}

/// What may be asked for on top of what is held.
struct Growth {
    granted: Gpus,
    /// Devices that nobody holds and nobody is due.
    free: Gpus,
    /// Replicas that may be asked for without a device: a Pending pod orders a node, or shows that
    /// there is none.
    pending: Replicas,
}

impl Growth {
    /// `queued` replicas wait for a node, and are due `due` devices.
    fn new(room: &DeviceRoom, held: Gpus, queued: Replicas, due: Gpus) -> Self {
        let (free, pending) = match room.supply {
            // Unknown inventory: one at a time, and what stays Pending teaches.
            _ if !room.known => (Gpus::ZERO, Replicas(1)),
            Supply::Fixed => (room.free.less(due), Replicas::ZERO),
            Supply::Elastic { max_pending, .. } => (room.free.less(due), max_pending),
        };
        let granted = room.granted.less(held).min(room.below_limit.less(due));
        Self { granted, free, pending: pending.less(queued) }
    }

    /// Takes as many of `wanted` replicas as there may be.
    fn take(&mut self, wanted: Replicas, each: GpusEach) -> Replicas {
        let granted = wanted.0.min((self.granted / each).0);
        let placed = Replicas(granted.min((self.free / each).0));
        let pending = Replicas(granted).less(placed).min(self.pending);
        self.granted = self.granted.less((placed + pending) * each);
        self.free = self.free.less(placed * each);
        self.pending = self.pending.less(pending);
        placed + pending
    }
}

/// The grants of one policy by GPU pool.
#[must_use]
pub fn granted(policy: &Policy, grants: &BTreeMap<Name, Vec<Grant>>, gpu_pool: &Name) -> Gpus {
    grants
        .get(gpu_pool)
        .and_then(|all| all.iter().find(|g| g.policy == policy.name))
        .map_or(Gpus::ZERO, |g| g.devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    fn room(supply: Supply, known: bool) -> DeviceRoom {
        DeviceRoom { granted: Gpus(64), free: Gpus(4), below_limit: Gpus(40), known, supply }
    }

    /// Replicas of two devices that may be asked for while 4 devices are free.
    fn possible(room: &DeviceRoom, queued: u32) -> u32 {
        let queued = Replicas(queued);
        let mut growth = Growth::new(room, Gpus(8), queued, queued * GpusEach(2));
        growth.take(Replicas(20), GpusEach(2)).0
    }

    #[test]
    fn a_fixed_supply_gives_what_is_free_and_not_due() {
        let fixed = room(Supply::Fixed, true);
        assert_eq!([0, 1, 2].map(|queued| possible(&fixed, queued)), [2, 1, 0]);
    }

    #[test]
    fn an_elastic_supply_lets_as_many_replicas_wait_as_the_policy_says() {
        let elastic =
            Supply::Elastic { provision_timeout: Span::mins(10), max_pending: Replicas(3) };
        let elastic = room(elastic, true);
        assert_eq!([0, 1, 3].map(|queued| possible(&elastic, queued)), [5, 3, 0]);
    }

    #[test]
    fn an_unknown_inventory_is_asked_for_one_replica_at_a_time_however_large() {
        let unknown = room(Supply::Fixed, false);
        assert_eq!([0, 1].map(|queued| possible(&unknown, queued)), [1, 0]);
        let mut growth = Growth::new(&unknown, Gpus::ZERO, Replicas::ZERO, Gpus::ZERO);
        assert_eq!(growth.take(Replicas(4), GpusEach(16)), Replicas(1));
    }
}
