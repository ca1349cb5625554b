//! The brain of Spillgate: pure, total and deterministic.
//!
//! Nine stages, a file each, in the order in which they run: [`observe`] (what happened, and who is
//! believed), [`learn`] (start times, real speed), [`estimate`] (work offered), [`forecast`] (an
//! upper quantile at the lead time), [`size`] (replicas), [`share`] (devices among policies),
//! [`balance`] (pools of a policy), [`govern`] (up at once, down one by one), [`overflow`] (what
//! must spill). [`brain`] strings them together, [`audit`] checks the result against the ten rules.
//! A stage reads earlier stages' results only; what a later stage did comes back through the world.
//!
//! No clock, no I/O, no randomness, no unordered map: `#![no_std]` sees to it that none compiles.
#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
extern crate alloc;

pub mod audit;
pub mod balance;
pub mod brain;
pub mod decision;
pub mod estimate;
pub mod flow;
pub mod forecast;
pub mod govern;
pub mod learn;
pub mod model;
pub mod observation;
pub mod observe;
pub mod overflow;
pub mod policy;
pub mod reason;
pub mod share;
pub mod size;
pub mod units;
mod window;
