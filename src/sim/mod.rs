//! The simulated world: requests, engines, pods, devices, a router and a paid API, in integer
//! picoseconds of virtual time; and the replay that runs the brain on it.

pub mod engine;
pub mod floor;
pub mod replay;
pub mod request;
pub mod rng;
pub mod score;
pub mod trace;
pub mod world;
