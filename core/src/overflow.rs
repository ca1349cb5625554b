//! Stage 9, overflow: how much must spill, and whether the gate is open.
//!
//! The share is the part of demand that what serves now cannot carry, after setting aside what it
//! takes to work off the backlog. A cause that the policy names (nothing serves, no device, at the
//! maximum, opt-in: still starting) has to last `openAfter`; then the share follows the excess up
//! at once and down with its peak of 15 s, and a last hundredth stays open for `closeAfter`, so
//! that the gate does not flap. Nothing is ordered while an earlier order has not been read back.
//!
//! Worked number: demand of 10 busy replicas, 6 serving at a share of 0.85 carry 5.1: 49 % spills.

use crate::balance::Target;
use crate::estimate::Offered;
use crate::observe::{Observed, RouterFlow};
use crate::policy::{Mode, OpenOn, OverflowPolicy, Policy};
use crate::reason::{Cause, Reason, Reasons};
use crate::units::{Permille, Ratio, Replicas, Span, Stamp, finite};
use crate::window::Peak;
use alloc::collections::VecDeque;
use serde::{Deserialize, Serialize};

/// How busy what serves may be before the rest should go elsewhere.
pub const SPILL_ABOVE: f64 = 0.85;
/// Time in which a backlog should be worked off while the gate is open.
const BACKLOG_GONE_IN: Span = Span::secs(20);
/// The share follows the peak of the excess over this.
const STEADY_OVER: Span = Span::secs(15);
/// What stays open until `closeAfter`: a hundredth.
const AJAR: Permille = Permille(10);
/// Changes smaller than this are not worth an order.
const WORTH_MOVING: u32 = 50;
/// A share read back this near to the order is the order.
const READ_BACK_NEAR: u32 = 10;
/// An order that is not read back in this time is given again.
const READ_BACK_IN: Span = Span::secs(30);
/// Spending is watched over this.
const HOUR: Span = Span::mins(60);

/// What this stage remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    open: bool,
    cause_since: Option<Stamp>,
    excess_last: Option<Stamp>,
    peak: Peak,
    ordered: Permille,
    ordered_at: Option<Stamp>,
    /// Micro-dollars that the router said it had spent; falls when it restarts.
    spent_read: Option<u64>,
    /// Micro-dollars spent since the first sight of the router.
    spent: u64,
    /// (minute, micro-dollars spent when it began), the last hour.
    spent_by: VecDeque<(Stamp, u64)>,
}

/// What is to be done with the gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// The share to order; `None`: leave it.
    pub order: Option<Permille>,
    /// Open now.
    pub open: bool,
    /// Share of demand that what serves cannot carry.
    pub excess: Permille,
    /// Why.
    pub reasons: Reasons,
}

/// Runs the stage.
pub fn overflow(
    policy: &Policy,
    observed: &Observed,
    offered: &Offered,
    targets: &[Target],
    memory: &mut Memory,
) -> Gate {
    let Some(router) = observed.router else {
        return Gate { open: memory.open, ..Gate::default() };
    };
    let now = observed.now;
    memory.note_spending(now, router.spent);
    let (excess, cause) = excess(policy, observed, offered, targets);
    let mut gate = Gate { excess, ..Gate::default() };
    let rules = &policy.overflow;
    let barred = policy.mode == Mode::Paused
        || !rules.allowed
        || rules.destinations.is_empty()
        || !router.external_ready;
    if barred {
        if excess > Permille::ZERO && cause.is_some() {
            gate.reasons.push(Reason::GateBarred);
        }
        memory.close(now, router.share, &mut gate);
        return gate;
    }
    memory.turn(rules, now, excess, cause, &mut gate);
    let wanted = memory.wanted(rules, now, excess, &mut gate);
    let allowed = memory.within_limits(rules, now, wanted, offered);
    if allowed < wanted {
        gate.reasons.push(Reason::SpendLimit { wanted, allowed });
    }
    memory.order(now, &router, allowed, allowed < wanted, &mut gate);
    gate.open = memory.open;
    gate
}

/// The share of demand that what serves cannot carry, and what keeps it from being carried.
fn excess(
    policy: &Policy,
    observed: &Observed,
    offered: &Offered,
    targets: &[Target],
) -> (Permille, Option<Cause>) {
    let (mut worst, mut why) = (Permille::ZERO, None);
    for role in &offered.roles {
        let members = || (0..policy.pools.len()).filter(|&i| policy.pools[i].role == role.role);
        // Pods that are not seen serve all the same: a metrics outage must not open the gate.
        let there = |i: usize| observed.pools[i].serving + observed.pools[i].unseen;
        let carries = |i: usize| f64::from(there(i).0) * targets[i].weight;
        let serving: f64 = members().map(carries).sum();
        let nothing = members()
            .all(|i| there(i) == Replicas::ZERO && observed.pools[i].frozen == Replicas::ZERO);
        let dormant = |i: usize| targets[i].floor.max(targets[i].wanted) == Replicas::ZERO;
        if nothing && !members().all(dormant) {
            return (Permille(1_000), Some(Cause::Unavailable));
        }
        let Some(load) = role.load else { continue };
        let spare = serving * SPILL_ABOVE - role.backlog / BACKLOG_GONE_IN.as_secs();
        let share = if load.get() > 0.0 { 1.0 - finite(spare) / load.get() } else { 0.0 };
        let share = Ratio::new(share).permille();
        if share == Permille::ZERO {
            continue;
        }
        let short = members().filter_map(|i| targets[i].short).min();
        let coming = members().any(|i| observed.pools[i].coming > Replicas::ZERO);
        let growing = members().any(|i| Some(targets[i].reachable) > observed.pools[i].spec);
        let cause = short.or((coming || growing).then_some(Cause::Starting));
        // One side that cannot grow is reason enough, even if the other is worse for the moment.
        why = [why, cause].into_iter().flatten().min();
        worst = worst.max(share);
    }
    (worst, why)
}

const fn may_open(open_on: OpenOn, cause: Cause) -> bool {
    match cause {
        Cause::Unavailable => open_on.unavailable,
        Cause::Exhausted => open_on.exhausted,
        Cause::AtMax => open_on.at_max,
        Cause::Starting => open_on.starting,
    }
}

impl Memory {
    fn note_spending(&mut self, now: Stamp, spent: u64) {
        let before = self.spent_read.replace(spent).unwrap_or(spent);
        let more = if spent < before { spent } else { spent - before };
        if self.spent_by.back().is_none_or(|&(at, _)| now.since(at) >= Span::mins(1)) {
            self.spent_by.push_back((now, self.spent));
        }
        self.spent = self.spent.saturating_add(more);
        while self.spent_by.len() > 1
            && self.spent_by.front().is_some_and(|&(at, _)| now.since(at) > HOUR)
        {
            self.spent_by.pop_front();
        }
    }

    fn close(&mut self, now: Stamp, share: Permille, gate: &mut Gate) {
        let was_open = self.open || self.ordered > Permille::ZERO || share > Permille::ZERO;
        let told = self.ordered == Permille::ZERO
            && self.ordered_at.is_some_and(|at| now.since(at) < READ_BACK_IN);
        self.open = false;
        self.cause_since = None;
        self.peak = Peak::default();
        if was_open && !told {
            gate.reasons.push(Reason::GateClosed);
            gate.order = Some(Permille::ZERO);
            self.ordered = Permille::ZERO;
            self.ordered_at = Some(now);
        }
    }

    /// Opens the gate when a cause has lasted.
    fn turn(
        &mut self,
        rules: &OverflowPolicy,
        now: Stamp,
        excess: Permille,
        cause: Option<Cause>,
        gate: &mut Gate,
    ) {
        self.peak.push(now, u64::from(excess.0), STEADY_OVER);
        if excess > Permille::ZERO {
            self.excess_last = Some(now);
        }
        let cause = cause.filter(|&c| excess > Permille::ZERO && may_open(rules.open_on, c));
        let Some(cause) = cause else {
            self.cause_since = None;
            return;
        };
        let since = *self.cause_since.get_or_insert(now);
        if self.open {
            return;
        }
        if now.since(since) < rules.open_after {
            gate.reasons.push(Reason::GateWaits { cause, until: since + rules.open_after });
            return;
        }
        self.open = true;
        gate.reasons.push(Reason::GateOpened { cause, share: excess });
    }

    /// The share that the excess asks for, and the end of it.
    fn wanted(
        &mut self,
        rules: &OverflowPolicy,
        now: Stamp,
        excess: Permille,
        gate: &mut Gate,
    ) -> Permille {
        if !self.open {
            return Permille::ZERO;
        }
        let steady = Permille(u32::try_from(self.peak.max()).unwrap_or(1_000)).max(excess);
        let until = self.excess_last.unwrap_or(now) + rules.close_after;
        if steady == Permille::ZERO && now >= until {
            self.open = false;
            self.cause_since = None;
            gate.reasons.push(Reason::GateClosed);
            return Permille::ZERO;
        }
        if excess == Permille::ZERO {
            gate.reasons.push(Reason::GateHeld { until });
        }
        steady.max(AJAR)
    }

    /// The share that the spending limits leave.
    fn within_limits(
        &self,
        rules: &OverflowPolicy,
        now: Stamp,
        wanted: Permille,
        offered: &Offered,
    ) -> Permille {
        let mut allowed = wanted;
        if let (Some(limit), Some(&(at, first))) = (rules.cost_per_hour, self.spent_by.front())
            && self.spent.saturating_sub(first) >= limit.0
            && now.since(at) <= HOUR
        {
            allowed = Permille::ZERO;
        }
        if let (Some(limit), Some(rate), Some(mix)) =
            (rules.tokens_per_minute, offered.requests, offered.mix)
        {
            let a_minute = (rate * (mix.context + mix.output)).get() * 60.0;
            if a_minute > 0.0 {
                let share = Ratio::new(limit.0 as f64 / a_minute).get().min(1.0);
                allowed = allowed.min(Permille(libm::floor(share * 1e3) as u32));
            }
        }
        allowed
    }

    /// Orders a new share, if the last order has been read back and the change is worth one.
    fn order(
        &mut self,
        now: Stamp,
        router: &RouterFlow,
        allowed: Permille,
        limited: bool,
        gate: &mut Gate,
    ) {
        // Routers with whole weights come near a share, not to it.
        let near = router.share.0.abs_diff(self.ordered.0) <= READ_BACK_NEAR;
        let both_shut = (router.share == Permille::ZERO) == (self.ordered == Permille::ZERO);
        let effective = near && both_shut;
        let overdue = self.ordered_at.is_none_or(|at| now.since(at) >= READ_BACK_IN);
        if !effective && !overdue {
            return;
        }
        let turning = (allowed == Permille::ZERO) != (self.ordered == Permille::ZERO);
        // A limit is kept to the last permille.
        let moving = allowed.0.abs_diff(self.ordered.0) >= WORTH_MOVING
            || (limited && allowed < self.ordered);
        let drifted = !effective && overdue;
        if !(turning || moving || drifted) {
            return;
        }
        if !turning || gate.reasons.is_empty() {
            let from = if drifted { router.share } else { self.ordered };
            gate.reasons.push(Reason::GateMoved { from, to: allowed });
        }
        gate.order = Some(allowed);
        self.ordered = allowed;
        self.ordered_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MicroUsd;
    use alloc::vec::Vec;

    const FIFTY: u64 = 50_000_000;

    /// Whether a limit of 50 dollars an hour lets the gate spill, after these readings.
    fn may_spill(readings: &[(u64, u64)]) -> bool {
        let rules = OverflowPolicy {
            allowed: true,
            open_on: OpenOn { exhausted: true, at_max: true, unavailable: true, starting: false },
            open_after: Span::ZERO,
            close_after: Span::ZERO,
            cost_per_hour: Some(MicroUsd(FIFTY)),
            tokens_per_minute: None,
            destinations: Vec::new(),
        };
        let mut memory = Memory::default();
        let mut now = Stamp(0);
        for &(at, spent) in readings {
            now = Stamp(at * 1_000);
            memory.note_spending(now, spent);
        }
        let wanted = Permille(500);
        memory.within_limits(&rules, now, wanted, &Offered::default()) == wanted
    }

    #[test]
    fn money_spent_in_the_first_minute_counts() {
        assert!(may_spill(&[(0, 0), (30, FIFTY - 1)]));
        assert!(!may_spill(&[(0, 0), (30, FIFTY)]));
        assert!(!may_spill(&[(0, 0), (30, FIFTY), (90, FIFTY)]));
    }

    #[test]
    fn money_spent_before_the_router_restarted_counts() {
        assert!(!may_spill(&[(0, 0), (30, FIFTY / 2), (90, FIFTY), (150, 0), (210, 5)]));
        assert!(!may_spill(&[(0, 9 * FIFTY), (30, FIFTY / 2), (90, FIFTY)]));
    }

    #[test]
    fn money_spent_more_than_an_hour_ago_does_not_count() {
        assert!(may_spill(&[(0, 0), (30, FIFTY), (3_000, FIFTY), (3_700, FIFTY)]));
        assert!(may_spill(&[(0, 9 * FIFTY), (30, 9 * FIFTY)]));
    }
}
