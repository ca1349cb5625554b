//! Stage 8, govern: up at once, down one by one, and only on proof.
//!
//! A serving replica goes only when every tick of a full window was seen, showed no standing queue
//! and a need that the rest of the fleet carries with room, and nothing contradicts it now: no
//! queue, nothing starting, no spill, no unseen pods, and a named pod that is least busy. A restart,
//! a new leader, an outage or a hole between two ticks begins the window anew. Replicas that never
//! got a node, a bound that was lowered and a donor's gift are not scale-down and do not wait. The
//! last replica goes only where the policy allows zero, nothing runs, and a router would tell of the
//! next request.
//!
//! Worked number: 12 replicas and a window of 5 minutes remove one every
//! clamp(10 * 300 s / 12, 10 s, 60 s) = 60 s; 200 replicas one every 15 s.

use crate::balance::Target;
use crate::observation::{Name, Observation, WriteOutcome};
use crate::observe::{Observed, PodState, PoolView};
use crate::policy::{Mode, Policy, PoolPolicy, ScaleDown};
use crate::reason::{Reason, Reasons};
use crate::units::{Permille, Replicas, Span, Stamp};
use crate::window::Peak;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Requests waiting per serving replica above which a tick is no proof of low load.
const QUEUE_STANDS: u64 = 4;
/// Ticks that may be missed without making a hole in the window.
const TICKS_MISSED: u64 = 10;

/// What this stage remembers, by pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pools: BTreeMap<Name, PoolMemory>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PoolMemory {
    /// Largest need, in thousandths, over the scale-down window.
    peak: Peak,
    /// Since when every tick was seen.
    proof_since: Option<Stamp>,
    /// The last of them.
    proof_last: Option<Stamp>,
    /// The last removal of a serving replica.
    removed: Option<Stamp>,
}

impl Memory {
    /// Since when every tick of a pool has been seen with a known need.
    #[must_use]
    pub fn proof_since(&self, pool: &Name) -> Option<Stamp> {
        self.pools.get(pool).and_then(|p| p.proof_since)
    }
}

/// What is to be done with one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// The number to write; `None`: leave it.
    pub to: Option<Replicas>,
    /// The pod that should go with a removal.
    pub victim: Option<Name>,
    /// Why, or why not.
    pub reasons: Reasons,
}

/// Runs the stage for all pools, in the policy's order. `share` is the larger of the share that is
/// read back and the one last ordered.
pub fn govern(
    policy: &Policy,
    seen: &Observation,
    observed: &Observed,
    targets: &[Target],
    share: Permille,
    memory: &mut Memory,
) -> Vec<Move> {
    let sighted = observed.pools.iter().all(|v| v.sighted && v.spec.is_some());
    let silent = observed.pools.iter().any(|v| v.silent);
    let idle = |v: &PoolView| v.running == 0 && v.waiting == 0 && v.deferred == 0;
    let may_sleep =
        observed.router.is_some_and(|r| r.requests.is_some()) && observed.pools.iter().all(idle);
    let mut moves = Vec::with_capacity(policy.pools.len());
    for ((pool, view), target) in policy.pools.iter().zip(&observed.pools).zip(targets) {
        let known = memory.pools.entry(pool.name.clone()).or_default();
        let judge = Judge {
            policy,
            pool,
            view,
            target,
            now: observed.now,
            share,
            sighted,
            silent,
            may_sleep,
        };
        known.remember(&judge);
        let mut decided = if policy.mode == Mode::Paused {
            Move { reasons: alloc::vec![Reason::Paused], ..Move::default() }
        } else {
            judge.decide(known)
        };
        let last_write = seen.pools.get(&pool.name).and_then(|p| p.last_write);
        if matches!(last_write, Some(w) if w != WriteOutcome::Applied) {
            decided.reasons.insert(0, Reason::WriteFailed);
        }
        moves.push(decided);
    }
    moves
}

impl PoolMemory {
    fn remember(&mut self, judge: &Judge<'_>) {
        let hole = Span(judge.policy.tick.0.saturating_mul(TICKS_MISSED));
        let broken = |last: Stamp| judge.now < last || judge.now.since(last) > hole;
        if self.proof_last.is_some_and(broken) {
            *self = Self { removed: self.removed, ..Self::default() };
        }
        match judge.target.need {
            Some(need) if judge.sighted => {
                self.proof_since.get_or_insert(judge.now);
                self.proof_last = Some(judge.now);
                // While a queue stands, all that serves is needed, whatever the model says.
                let queue = judge.view.waiting > u64::from(judge.view.serving.0) * QUEUE_STANDS;
                let serving = u64::from(judge.view.serving.0) * 1_000;
                let need = if queue { need.0.max(serving) } else { need.0 };
                self.peak.push(judge.now, need, judge.policy.scale_down.window);
            }
            _ => {
                *self = Self { removed: self.removed, ..Self::default() };
            }
        }
    }
}

/// All that a verdict on one pool depends on.
struct Judge<'a> {
    policy: &'a Policy,
    pool: &'a PoolPolicy,
    view: &'a PoolView,
    target: &'a Target,
    now: Stamp,
    share: Permille,
    /// Every pool is seen well enough to count this tick as proof.
    sighted: bool,
    /// Some pool has ready pods that say nothing.
    silent: bool,
    /// Nothing runs or waits in any pool, and the router's counter would tell of a first request:
    /// where the policy allows it, the last replica may go.
    may_sleep: bool,
}

impl Judge<'_> {
    fn decide(&self, memory: &mut PoolMemory) -> Move {
        let Some(spec) = self.view.spec else { return held(Reason::SpecUnread) };
        if spec == Replicas::ZERO && self.pool.min > Replicas::ZERO {
            return held(Reason::PausedAtZero);
        }
        let (floor, max) = (self.target.floor, self.pool.max);
        if spec > max {
            return moved(max, Reason::Bound { from: spec, to: max });
        }
        let to = self.reach(spec);
        if to > spec {
            let forced = self.target.need.is_none() || to == floor;
            let why = if forced && spec < floor {
                Reason::Bound { from: spec, to }
            } else {
                Reason::Up { from: spec, to }
            };
            return moved(to, why);
        }
        if self.target.reachable > spec {
            return held(Reason::DemandFell);
        }
        let Some(need) = self.target.need else {
            return if spec > floor { held(Reason::HeldBlind) } else { Move::default() };
        };
        let present = self.target.present.unwrap_or(need).min(need);
        if let Some(cancel) = self.cancel(spec, present.replicas()) {
            return cancel;
        }
        if spec <= floor || !need.fits(spec.less(Replicas(1))) {
            return Move::default();
        }
        self.remove_one(spec, memory)
    }

    /// What may be asked for: a forecast may double what is needed now, not more.
    fn reach(&self, spec: Replicas) -> Replicas {
        let reachable = self.target.reachable;
        let Some(now) = self.target.present.or(self.target.need) else { return reachable };
        let double = Replicas(u32::try_from(now.0.saturating_mul(2) / 1_000).unwrap_or(u32::MAX));
        // The first replica is needed however little comes.
        reachable.min(double.max(now.replicas()).max(spec).max(self.target.floor))
    }

    /// Demand now is well below half of what is asked for. (Half would order again what was just
    /// cancelled.)
    fn fell(&self, spec: Replicas) -> bool {
        let now = self.target.present.or(self.target.need);
        now.is_some_and(|now| now.0.saturating_mul(5) < u64::from(spec.0) * 2_000)
    }

    /// Replicas that never got a node go as soon as nobody needs them.
    fn cancel(&self, spec: Replicas, present: Replicas) -> Option<Move> {
        let view = self.view;
        let with_node = spec.less(view.unscheduled);
        let needed = present.max(self.target.floor).max(with_node);
        // One stays Pending where devices have run out: it is the first to know of a free one.
        let hopeful = (spec.less(view.unplaceable) + Replicas(1)).max(self.target.floor);
        let to = if self.fell(spec) { needed.min(hopeful) } else { hopeful };
        (view.unscheduled > Replicas::ZERO && to < spec)
            .then(|| moved(to, Reason::Cancelled { from: spec, to }))
    }

    /// One serving replica, if everything speaks for it.
    fn remove_one(&self, spec: Replicas, memory: &mut PoolMemory) -> Move {
        let to = spec.less(Replicas(1));
        let donor = self.target.donates_to.is_some_and(|least| to >= least);
        if let Some(reason) = self.objection(to, donor, memory) {
            return held(reason);
        }
        let Some(victim) = self.victim() else { return held(Reason::HeldNoVictim) };
        memory.removed = Some(self.now);
        let reason = if donor {
            Reason::Donated { from: spec, to }
        } else {
            Reason::Down { from: spec, to, victim: Some(victim.clone()) }
        };
        Move { to: Some(to), victim: Some(victim), reasons: alloc::vec![reason] }
    }

    /// The first thing that speaks against a removal.
    fn objection(&self, to: Replicas, donor: bool, memory: &PoolMemory) -> Option<Reason> {
        let view = self.view;
        if !self.sighted || self.silent {
            return Some(Reason::HeldBlind);
        }
        let last = view.serving <= Replicas(1);
        if last && !(to == Replicas::ZERO && self.may_sleep) {
            return Some(Reason::HeldNoVictim);
        }
        if view.coming > Replicas::ZERO {
            return Some(Reason::HeldByMove);
        }
        if view.waiting.saturating_mul(2) > u64::from(view.serving.0) {
            return Some(Reason::HeldByQueue { waiting: view.waiting });
        }
        let interval = interval(&self.policy.scale_down, view.serving);
        if let Some(at) = memory.removed
            && self.now.since(at) < interval
        {
            return Some(Reason::HeldByInterval { until: at + interval });
        }
        if donor {
            return None;
        }
        if self.share > Permille::ZERO {
            return Some(Reason::HeldByOverflow);
        }
        let window = self.policy.scale_down.window;
        let since = memory.proof_since.unwrap_or(self.now);
        if self.now.since(since) < window {
            return Some(Reason::HeldByWindow { until: since + window });
        }
        let peak = crate::size::Milli(memory.peak.max());
        (!peak.fits(to)).then(|| Reason::HeldByWindow { until: self.now + window })
    }

    /// The least busy of the pods that are seen to serve; the youngest of equals.
    fn victim(&self) -> Option<Name> {
        let serving = self.view.pods.iter().filter(|p| p.state == PodState::Serving);
        serving
            .min_by(|a, b| {
                (a.busy, core::cmp::Reverse(a.served), &a.uid).cmp(&(
                    b.busy,
                    core::cmp::Reverse(b.served),
                    &b.uid,
                ))
            })
            .map(|p| p.uid.clone())
    }
}

/// Time between two removals.
#[must_use]
pub fn interval(down: &ScaleDown, replicas: Replicas) -> Span {
    down.interval.unwrap_or_else(|| {
        let auto = down.window.0.saturating_mul(10) / u64::from(replicas.0.max(1));
        Span(auto.clamp(10_000, 60_000))
    })
}

fn held(reason: Reason) -> Move {
    Move { reasons: alloc::vec![reason], ..Move::default() }
}

fn moved(to: Replicas, reason: Reason) -> Move {
    Move { to: Some(to), victim: None, reasons: alloc::vec![reason] }
}
