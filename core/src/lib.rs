//! The brain of Spillgate: pure, total and deterministic.
//!
//! No clock, no I/O, no randomness, no unordered map: `#![no_std]` sees to it that none compiles.
#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
extern crate alloc;

pub mod model;
pub mod observation;
pub mod policy;
pub mod units;
