//! Spillgate: an autoscaler for LLM inference on a finite pool of GPUs.
//!
//! One brain (`spillgate_core`), fed with observations by whoever has them: a simulated world
//! ([`sim`]) today, a cluster tomorrow. [`engine`] reads what engines say, [`policy`] what the
//! operator wants, [`profile`] what one replica can do.

pub mod cli;
pub mod driver;
pub mod engine;
pub mod live;
pub mod policy;
pub mod profile;
pub mod report;
pub mod sim;
