//! Stage 6, share: who may use how many devices of one pool.
//!
//! What a policy holds stays with it, unless a guarantee of another is unmet; guarantees come first
//! (in priority, then name order), and what is left goes to wishes in the same order. The sum of
//! grants never exceeds the devices there are, unless more than that is already held: nothing is
//! killed, it only cannot grow.
//!
//! Worked number: 8 devices; `a` (priority 10) is guaranteed 2 and wants 6, `b` is guaranteed 2,
//! holds 4 and wants 4. `b` keeps 4, `a` gets 4.

use crate::observation::{DevicesSeen, Name};
use crate::units::Gpus;
use alloc::vec::Vec;

/// What one policy asks of one device pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The policy.
    pub policy: Name,
    /// Its priority; the higher comes first.
    pub priority: i32,
    /// Devices of its minimum.
    pub guaranteed: Gpus,
    /// Devices that it would use now.
    pub wanted: Gpus,
    /// Devices that its pods hold, draining ones included.
    pub held: Gpus,
}

/// What one policy may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The policy.
    pub policy: Name,
    /// Devices.
    pub devices: Gpus,
}

/// Runs the stage for one device pool. Grants come in the order of the asks.
#[must_use]
pub fn share(devices: DevicesSeen, limit: Gpus, asks: &[Ask]) -> Vec<Grant> {
    let total = Gpus(devices.allocatable.0.min(limit.0)).less(devices.used_by_others).0;
    let mut order: Vec<usize> = (0..asks.len()).collect();
    order.sort_by(|&a, &b| {
        let key = |i: usize| (core::cmp::Reverse(asks[i].priority), asks[i].policy.clone());
        key(a).cmp(&key(b))
    });
    let mut granted = alloc::vec![0_u32; asks.len()];
    let mut left = total;
    // Guarantees first, then what is held already, then wishes: each in the same order.
    let wishes: [fn(&Ask) -> u32; 3] = [
        |ask| ask.guaranteed.0.min(ask.wanted.0),
        |ask| ask.held.0.min(ask.wanted.0),
        |ask| ask.wanted.0,
    ];
    for wish in wishes {
        for &i in &order {
            let more = wish(&asks[i]).saturating_sub(granted[i]).min(left);
            granted[i] += more;
            left -= more;
        }
    }
    asks.iter()
        .zip(granted)
        .map(|(ask, devices)| Grant { policy: ask.policy.clone(), devices: Gpus(devices) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(policy: &str, priority: i32, guaranteed: u32, wanted: u32, held: u32) -> Ask {
        Ask {
            policy: policy.into(),
            priority,
            guaranteed: Gpus(guaranteed),
            wanted: Gpus(wanted),
            held: Gpus(held),
        }
    }

    fn devices(total: u32, others: u32) -> DevicesSeen {
        DevicesSeen {
            allocatable: Gpus(total),
            used_by_others: Gpus(others),
            ..DevicesSeen::default()
        }
    }

    #[test]
    fn what_is_held_stays_unless_a_guarantee_needs_it() {
        let asks = [ask("a", 10, 2, 6, 2), ask("b", 0, 2, 4, 4)];
        let grants = share(devices(8, 0), Gpus(8), &asks);
        assert_eq!(grants[0].devices, Gpus(4));
        assert_eq!(grants[1].devices, Gpus(4));
        let asks = [ask("a", 10, 4, 6, 0), ask("b", 0, 2, 8, 8)];
        let grants = share(devices(8, 0), Gpus(8), &asks);
        assert_eq!((grants[0].devices, grants[1].devices), (Gpus(4), Gpus(4)));
    }

    /// Every world of two policies, up to five devices: 2 * 6^6 of them.
    #[test]
    fn every_small_world_keeps_the_rules_of_sharing() {
        let upto = 5_u32;
        for code in 0..6_u32.pow(6) * 2 {
            let digit = |n: u32| code / 2 / 6_u32.pow(n) % 6;
            let asks = [
                ask("a", (code % 2) as i32, digit(0), digit(1), digit(2).min(digit(1))),
                ask("b", 0, digit(3), digit(4), 0),
            ];
            let others = digit(5);
            let grants = share(devices(upto, others), Gpus(upto), &asks);
            let total = upto - others.min(upto);
            let sum: u32 = grants.iter().map(|g| g.devices.0).sum();
            assert!(sum <= total, "{asks:?} {grants:?}");
            let wanted: u32 = asks.iter().map(|a| a.wanted.0).sum();
            assert_eq!(sum, wanted.min(total), "nothing wanted is left lying: {asks:?} {grants:?}");
            let guaranteed: u32 = asks.iter().map(|a| a.guaranteed.0.min(a.wanted.0)).sum();
            for (ask, grant) in asks.iter().zip(&grants) {
                assert!(grant.devices <= ask.wanted);
                if guaranteed <= total {
                    assert!(grant.devices.0 >= ask.guaranteed.0.min(ask.wanted.0));
                }
            }
        }
    }
}
