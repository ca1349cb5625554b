//! Stage 5, size: replicas needed, from demand and from what is already late.
//!
//! A replica is planned to be busy for [`BUSY_SHARE`] of its time, so that random arrivals find it
//! free often enough; between this share and a TTFT quantile stands the queue, for which there is
//! no formula, and until profiles carry simulated utilisations the share is a stated 0.7. Work that
//! already waits is to be gone within a lead time. If requests wait nearly everywhere, and will for
//! longer than the TTFT target, although the model sees no need, the model is wrong and a tenth more
//! is asked for.
//!
//! Worked number: an upper bound of 5.2 busy replicas needs 5.2 / 0.7 = 7.43, bought as 8 (a need
//! of 7.35 or less is bought as 7: a twentieth of the whole is not worth a replica).

use crate::estimate::{Offered, RoleLoad, capacity};
use crate::forecast::Expected;
use crate::model::{Mix, Profile};
use crate::observation::Name;
use crate::observe::Observed;
use crate::policy::{Policy, Role};
use crate::units::{Ratio, Replicas, ReqRate, Span, Tokens, finite};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Share of its time that a replica is planned to be busy.
pub const BUSY_SHARE: f64 = 0.7;
/// Part of a need that is not worth one more replica, in thousandths.
const TOLERANCE_MILLI: u64 = 50;
/// Backlog is never planned to be gone sooner than this.
const CATCH_UP_LEAST: Span = Span::secs(60);

/// Need of one role, in thousandths of a replica of the role's first pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sized {
    /// The role.
    pub role: Role,
    /// Replicas needed at the lead time.
    pub need: Milli,
    /// Replicas needed for what is offered and late now.
    pub present: Milli,
}

/// Thousandths of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milli(pub u64);

impl Milli {
    /// From a number of replicas, rounded up.
    #[must_use]
    pub fn new(replicas: f64) -> Self {
        Self(libm::ceil(finite(replicas).min(4e9) * 1e3 - 1e-6) as u64)
    }
    /// Whole replicas to buy for it.
    #[must_use]
    pub fn replicas(self) -> Replicas {
        let bought = (self.0 - self.0 * TOLERANCE_MILLI / 1_000).div_ceil(1_000);
        Replicas(u32::try_from(bought).unwrap_or(u32::MAX))
    }
    /// Whether `replicas` carry it: the test before one goes, made on the peak of a whole window.
    #[must_use]
    pub fn fits(self, replicas: Replicas) -> bool {
        self.replicas() <= replicas
    }
}

/// Runs the stage; one a role whose demand is known.
#[must_use]
pub fn size(
    policy: &Policy,
    observed: &Observed,
    offered: &Offered,
    expected: &[Expected],
    lead: impl Fn(Role) -> Span,
) -> Vec<Sized> {
    offered
        .roles
        .iter()
        .filter_map(|role| {
            let Some(load) = role.load else { return wake(policy, observed, offered, role.role) };
            let upper = expected.iter().find(|e| e.role == role.role).map_or(load, |e| e.upper);
            let planned = upper.get() / BUSY_SHARE;
            let catch_up = lead(role.role).as_secs().max(CATCH_UP_LEAST.as_secs());
            let late = load.get() + role.backlog / catch_up;
            let late = late.max(guard(policy, offered, role));
            let present = Milli::new(late.max(load.get() / BUSY_SHARE));
            Some(Sized { role: role.role, need: Milli::new(planned.max(late)), present })
        })
        .collect()
}

/// One replica for a role that has none, where the router counts requests: lengths are learned from
/// engines, so without this a fleet at zero would refuse everything for ever.
fn wake(policy: &Policy, observed: &Observed, offered: &Offered, role: Role) -> Option<Sized> {
    let asked = offered.requests.is_some_and(|rate| rate.get() > 0.0);
    let mut pools = policy.pools.iter().zip(&observed.pools).filter(|(p, _)| p.role == role);
    let empty = pools.all(|(_, view)| view.spec == Some(Replicas(0)));
    let one = Milli(1_000);
    (asked && empty).then_some(Sized { role, need: one, present: one })
}

/// What the queue alone would ask for: a tenth above what is there, if requests wait nearly
/// everywhere and the last of them will wait for longer than the TTFT target.
fn guard(policy: &Policy, offered: &Offered, load: &RoleLoad) -> f64 {
    let (Some(target), Some(wait)) = (policy.objectives.ttft, load.wait) else { return 0.0 };
    let context = offered.mix.map_or(0.0, |mix| finite(mix.context));
    let bound = target.for_input(Tokens(context as u64)).as_secs();
    let drowning = load.crowd.waiting > load.crowd.there && wait > bound;
    if drowning { load.crowd.there as f64 * 1.1 } else { 0.0 }
}

/// Replicas that carry a steady `rate` of requests like `mix`, a number a pool in the policy's
/// order: the same busy share as above, within each pool's bounds, the role's first pool first.
#[must_use]
pub fn steady(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    rate: ReqRate,
    mix: &Mix,
) -> Vec<Replicas> {
    let mut left: BTreeMap<Role, f64> = BTreeMap::new();
    policy
        .pools
        .iter()
        .map(|pool| {
            let each = capacity(policy, profiles, pool, mix, Ratio::ONE);
            let open = left.entry(pool.role).or_insert(rate.get());
            let need = if each.get() > 0.0 { *open / each.get() / BUSY_SHARE } else { 0.0 };
            let bought =
                Milli::new(need).replicas().0.clamp(pool.min.0, pool.max.0.max(pool.min.0));
            *open = finite(*open - f64::from(bought) * each.get() * BUSY_SHARE);
            Replicas(bought)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_twentieth_is_not_worth_a_replica() {
        assert_eq!(Milli::new(5.2 / 0.7).replicas(), Replicas(8));
        assert_eq!(Milli::new(7.35).replicas(), Replicas(7));
        assert_eq!(Milli::new(0.0).replicas(), Replicas(0));
        assert_eq!(Milli::new(0.01).replicas(), Replicas(1));
    }

    proptest! {
        #[test]
        fn what_is_bought_is_never_let_go_at_once(need in 0_u64..2_000_000) {
            let bought = Milli(need).replicas();
            prop_assume!(bought.0 > 0);
            prop_assert!(!Milli(need).fits(bought.less(Replicas(1))));
        }

        #[test]
        fn more_need_never_buys_less(a in 0_u64..1_000_000, b in 0_u64..1_000_000) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(Milli(low).replicas() <= Milli(high).replicas());
        }
    }
}
