//! The simulated world: requests, engines, pods, devices, a router and a paid API, in integer
//! picoseconds of virtual time.

pub mod engine;
pub mod request;
pub mod world;
