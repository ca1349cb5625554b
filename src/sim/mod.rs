//! The simulated world: requests, engines, pods, devices, a router and a paid API, in integer
//! picoseconds of virtual time.

pub mod floor;
pub mod request;
pub mod rng;
pub mod score;
pub mod trace;
