//! What touches the real world: today the clock, later sockets.

pub mod clock;
