//! The only place that reads time. Everything else is told.
//!
//! Worked number: a stopwatch started before a replay of 193 660 requests that then shows 0.2 s of
//! processor time says 968 300 requests per CPU second.

use std::time::Instant;

/// Wall and processor time since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    processor_s: f64,
}

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn start() -> Self {
        Self { wall: Instant::now(), processor_s: processor_s() }
    }

    /// Seconds on the wall.
    #[must_use]
    pub fn wall_s(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// Seconds of processor time of this process, all threads.
    #[must_use]
    pub fn processor_s(&self) -> f64 {
        (processor_s() - self.processor_s).max(0.0)
    }
}

fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
