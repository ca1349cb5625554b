//! What the brain decided: writes with their precondition, the gate's share, and the reasons.
//!
//! Worked number: `Write { from: 4, to: 6, version: 17, .. }` raises a pool by two, if
//! resourceVersion is still 17.

use crate::observation::Name;
use crate::reason::Reasons;
use crate::units::{Permille, Replicas, Stamp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One policy, one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub at: Stamp,
    /// Pools in the policy's order.
    pub pools: Vec<PoolDecision>,
    /// The share to spill, if it is to change.
    pub route: Option<Permille>,
    /// Share of demand that what serves cannot carry.
    pub excess: Permille,
    /// The gate is open.
    pub open: bool,
    /// Why the gate does what it does.
    pub gate: Reasons,
}

/// One pool, one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDecision {
    /// The pool.
    pub pool: Name,
    /// Need in thousandths of a replica; `None`: unknown.
    pub need_milli: Option<u64>,
    /// Since when every tick has been seen.
    pub proof_since: Option<Stamp>,
    /// What to write, if anything.
    pub write: Option<Write>,
    /// Why, or why not.
    pub reasons: Reasons,
}

/// A write of `spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// What was read.
    pub from: Replicas,
    /// What to write.
    pub to: Replicas,
    /// Only if the resourceVersion is still this.
    pub version: u64,
    /// The pod that should go.
    pub victim: Option<Name>,
}
