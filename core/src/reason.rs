//! The one vocabulary of reasons: what `explain`, Events, conditions, metric labels and reports say.
//!
//! A reason is data; its [`Reason::code`] is stable and goes into labels and decision hashes, its
//! `Display` is for people. Numbers are integers, so that reasons compare exactly.
//!
//! Worked number: `Need { replicas_milli: 3_400, .. }` prints as "needs 3.40 replicas".

use crate::observation::{Name, Scrape};
use crate::units::{Gpus, Permille, Replicas, Span, Stamp};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Why something was done or left undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// A pod that should answer does not, or not usefully.
    Unseen {
        /// Pod uid.
        pod: Name,
        /// How the scrape went.
        how: Scrape,
        /// Since when.
        since: Stamp,
    },
    /// A pod shows work and makes none: its gauges are not believed.
    Frozen {
        /// Pod uid.
        pod: Name,
        /// For how long nothing has moved.
        age: Span,
    },
    /// A pod shows fewer engines than it has.
    Partial {
        /// Pod uid.
        pod: Name,
        /// Engines seen.
        seen: u32,
        /// Engines expected.
        expected: u32,
    },
    /// No node took the pod within its start budget.
    Unplaceable {
        /// Pod uid.
        pod: Name,
    },
    /// The pod has a node, and its container fails or does not come up within its budget.
    StartFailed {
        /// Pod uid.
        pod: Name,
    },
    /// Too many pods of the pool are unseen to know its load.
    Blind {
        /// Pods seen.
        seen: Replicas,
        /// Pods not seen.
        unseen: Replicas,
    },
    /// `spec.replicas` could not be read.
    SpecUnread,
    /// Demand could not be estimated: what is missing.
    NoDemand,
    /// The size of the need.
    Need {
        /// Replicas needed, in thousandths.
        replicas_milli: u64,
        /// Replicas serving.
        serving: Replicas,
        /// Replicas on their way.
        coming: Replicas,
    },
    /// Need is above `maxReplicas`.
    AtMax {
        /// Wanted.
        wanted: Replicas,
        /// The bound.
        max: Replicas,
    },
    /// No device for a replica that is needed.
    Exhausted {
        /// Wanted.
        wanted: Replicas,
        /// What the devices allow.
        possible: Replicas,
        /// Devices free now.
        free: Gpus,
    },
    /// More would be of no use: the partner pool cannot follow.
    PartnerLimits {
        /// Wanted.
        wanted: Replicas,
        /// Useful.
        useful: Replicas,
    },
    /// Waiting for a device that a donor gives up.
    AwaitsDevice {
        /// Wanted.
        wanted: Replicas,
    },
    /// Below a bound (`minReplicas`, a schedule's floor), or above `maxReplicas`: brought back.
    Bound {
        /// From.
        from: Replicas,
        /// To.
        to: Replicas,
    },
    /// Grown.
    Up {
        /// From.
        from: Replicas,
        /// To.
        to: Replicas,
    },
    /// Shrunk by one.
    Down {
        /// From.
        from: Replicas,
        /// To.
        to: Replicas,
        /// The pod to go: the least busy of those proven so.
        victim: Option<Name>,
    },
    /// Replicas that never started are no longer wanted.
    Cancelled {
        /// From.
        from: Replicas,
        /// To.
        to: Replicas,
    },
    /// Given to the partner pool.
    Donated {
        /// From.
        from: Replicas,
        /// To.
        to: Replicas,
    },
    /// Low need not yet seen for the whole window.
    HeldByWindow {
        /// When the window is full.
        until: Stamp,
    },
    /// The last removal is too recent.
    HeldByInterval {
        /// When the next may come.
        until: Stamp,
    },
    /// Load is not known well enough to remove anything.
    HeldBlind,
    /// Requests wait.
    HeldByQueue {
        /// How many.
        waiting: u64,
    },
    /// Replicas are starting.
    HeldByMove,
    /// Traffic is spilling, or is about to.
    HeldByOverflow,
    /// No pod that is proven idle enough can be named.
    HeldNoVictim,
    /// More would be twice what demand needs now: not ordered on a forecast alone.
    DemandFell,
    /// The last write did not take.
    WriteFailed,
    /// Somebody set zero replicas, and the policy does not allow zero: treated as a pause.
    PausedAtZero,
    /// The policy is paused.
    Paused,
    /// A cause to spill exists, and has to last.
    GateWaits {
        /// What.
        cause: Cause,
        /// When it opens.
        until: Stamp,
    },
    /// The gate opens.
    GateOpened {
        /// What for.
        cause: Cause,
        /// Share to spill.
        share: Permille,
    },
    /// The share changes.
    GateMoved {
        /// From.
        from: Permille,
        /// To.
        to: Permille,
    },
    /// The gate closes.
    GateClosed,
    /// Nothing more to spill; open a while longer, so that it does not flap.
    GateHeld {
        /// When it closes.
        until: Stamp,
    },
    /// A spending limit holds the share down.
    SpendLimit {
        /// The share that need asked for.
        wanted: Permille,
        /// The share allowed.
        allowed: Permille,
    },
    /// Spilling would help, but the policy or the destination does not allow it.
    GateBarred,
    /// A rule of the audit was broken by the decision, which was withdrawn.
    RuleBroken {
        /// Its number.
        rule: u8,
    },
}

/// What opens the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// Nothing serves.
    Unavailable,
    /// No free device.
    Exhausted,
    /// A pool is at its maximum.
    AtMax,
    /// Replicas are on their way.
    Starting,
}

impl Reason {
    /// A stable code for labels and hashes.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unseen { .. } => "Unseen",
            Self::Frozen { .. } => "Frozen",
            Self::Partial { .. } => "Partial",
            Self::Unplaceable { .. } => "Unplaceable",
            Self::StartFailed { .. } => "StartFailed",
            Self::Blind { .. } => "Blind",
            Self::SpecUnread => "SpecUnread",
            Self::NoDemand => "NoDemand",
            Self::Need { .. } => "Need",
            Self::AtMax { .. } => "AtMax",
            Self::Exhausted { .. } => "Exhausted",
            Self::PartnerLimits { .. } => "PartnerLimits",
            Self::AwaitsDevice { .. } => "AwaitsDevice",
            Self::Bound { .. } => "Bound",
            Self::Up { .. } => "Up",
            Self::Down { .. } => "Down",
            Self::Cancelled { .. } => "Cancelled",
            Self::Donated { .. } => "Donated",
            Self::HeldByWindow { .. } => "HeldByWindow",
            Self::HeldByInterval { .. } => "HeldByInterval",
            Self::HeldBlind => "HeldBlind",
            Self::HeldByQueue { .. } => "HeldByQueue",
            Self::HeldByMove => "HeldByMove",
            Self::HeldByOverflow => "HeldByOverflow",
            Self::HeldNoVictim => "HeldNoVictim",
            Self::DemandFell => "DemandFell",
            Self::WriteFailed => "WriteFailed",
            Self::PausedAtZero => "PausedAtZero",
            Self::Paused => "Paused",
            Self::GateWaits { .. } => "GateWaits",
            Self::GateOpened { .. } => "GateOpened",
            Self::GateMoved { .. } => "GateMoved",
            Self::GateClosed => "GateClosed",
            Self::GateHeld { .. } => "GateHeld",
            Self::SpendLimit { .. } => "SpendLimit",
            Self::GateBarred => "GateBarred",
            Self::RuleBroken { .. } => "RuleBroken",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "nothing serves",
            Self::Exhausted => "no free device",
            Self::AtMax => "a pool is at its maximum",
            Self::Starting => "replicas are still starting",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen { pod, how, since } => {
                write!(f, "{pod} is not seen ({how:?}) since {}", clock(*since))
            }
            Self::Frozen { pod, age } => {
                write!(f, "{pod} shows work but has not moved for {age}: its gauges are stale")
            }
            Self::Partial { pod, seen, expected } => {
                write!(f, "{pod} shows {seen} of {expected} engines")
            }
            Self::Unplaceable { pod } => {
                write!(f, "no node took {pod} within its start budget: no schedulable device")
            }
            Self::StartFailed { pod } => write!(f, "{pod} does not start: look at its container"),
            Self::Blind { seen, unseen } => {
                write!(f, "load unknown: {unseen} pods unseen, {seen} seen")
            }
            Self::SpecUnread => f.write_str("spec.replicas could not be read"),
            Self::NoDemand => f.write_str("demand unknown: no source has said enough yet"),
            Self::Need { replicas_milli, serving, coming } => write!(
                f,
                "needs {}.{:02} replicas, {serving} serve, {coming} are coming",
                replicas_milli / 1_000,
                replicas_milli % 1_000 / 10
            ),
            Self::AtMax { wanted, max } => write!(f, "wants {wanted}, maxReplicas is {max}"),
            Self::Exhausted { wanted, possible, free } => {
                write!(f, "wants {wanted}, devices allow {possible} ({free} free)")
            }
            Self::PartnerLimits { wanted, useful } => {
                write!(f, "wants {wanted}, the partner pool can use {useful}")
            }
            Self::AwaitsDevice { wanted } => {
                write!(f, "wants {wanted}, waits for a device to come free")
            }
            Self::Bound { from, to } => write!(f, "{from} -> {to}: brought within its bounds"),
            Self::Up { from, to } => write!(f, "{from} -> {to}"),
            Self::Down { from, to, victim: Some(pod) } => write!(f, "{from} -> {to}, {pod} goes"),
            Self::Down { from, to, victim: None } => write!(f, "{from} -> {to}"),
            Self::Cancelled { from, to } => {
                write!(f, "{from} -> {to}: replicas that never started are not wanted any more")
            }
            Self::Donated { from, to } => write!(f, "{from} -> {to}: given to the partner pool"),
            Self::HeldByWindow { until } => {
                write!(f, "not down: low need must last until {}", clock(*until))
            }
            Self::HeldByInterval { until } => {
                write!(f, "not down: the last removal is recent, next at {}", clock(*until))
            }
            Self::HeldBlind => f.write_str("not down: the load is not known"),
            Self::HeldByQueue { waiting } => write!(f, "not down: {waiting} requests wait"),
            Self::HeldByMove => f.write_str("not down: replicas are starting"),
            Self::HeldByOverflow => f.write_str("not down: traffic is spilling"),
            Self::HeldNoVictim => f.write_str("not down: no pod is proven idle enough"),
            Self::DemandFell => f.write_str("not up: demand now needs less than half of it"),
            Self::WriteFailed => f.write_str("the last write did not take; decided anew"),
            Self::PausedAtZero => f.write_str("somebody set 0 replicas: taken as a pause"),
            Self::Paused => f.write_str("the policy is paused"),
            Self::GateWaits { cause, until } => {
                write!(f, "gate: {cause}; opens at {} if it lasts", clock(*until))
            }
            Self::GateOpened { cause, share } => {
                write!(f, "gate opens at {}.{} %: {cause}", share.0 / 10, share.0 % 10)
            }
            Self::GateMoved { from, to } => write!(
                f,
                "gate moves from {}.{} % to {}.{} %",
                from.0 / 10,
                from.0 % 10,
                to.0 / 10,
                to.0 % 10
            ),
            Self::GateClosed => f.write_str("gate closes: the pool carries the load"),
            Self::GateHeld { until } => {
                write!(f, "gate: nothing more to spill, closes at {}", clock(*until))
            }
            Self::SpendLimit { wanted, allowed } => {
                write!(f, "gate: a spending limit allows {} of {} permille", allowed.0, wanted.0)
            }
            Self::GateBarred => {
                f.write_str("gate stays shut: overflow is not allowed or no destination answers")
            }
            Self::RuleBroken { rule } => {
                write!(f, "the decision broke rule {rule} and was withdrawn")
            }
        }
    }
}

/// A moment as seconds from the stamp's origin, to the second.
fn clock(at: Stamp) -> impl fmt::Display {
    struct Seconds(u64);
    impl fmt::Display for Seconds {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}.{} s", self.0 / 1_000, self.0 % 1_000 / 100)
        }
    }
    Seconds(at.0)
}

/// Reasons of one pool or of the gate, in the order they arose.
pub type Reasons = Vec<Reason>;
