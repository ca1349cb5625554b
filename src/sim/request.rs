//! One request of a trace, and how it ended.
//!
//! Worked number: a request that arrives at 2 s, gets its first token at 2.4 s and its 101st and
//! last at 4.4 s has a TTFT of 400 ms and an ITL of 2 s / 100 = 20 ms.

use spillgate_core::units::Picos;

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Arrival, from the start of the trace.
    pub at: Picos,
    /// Prompt tokens, at least one.
    pub input: u32,
    /// Tokens to generate; 0 for rows that generated nothing.
    pub output: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Still somewhere (at the end of a run: failed).
    #[default]
    Open,
    /// The pool served it.
    Local {
        /// First token at the client.
        first: Picos,
        /// Last token at the client.
        last: Picos,
    },
    /// The external API served it.
    External {
        /// First token at the client.
        first: Picos,
        /// Last token at the client.
        last: Picos,
    },
    /// Nobody served it.
    Failed(Failure),
}

/// Why nobody served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No backend was there, or the engine refused it (larger than its KV cache).
    Refused,
    /// Its pod went away.
    PodDied,
    /// The client gave up after ten minutes.
    TimedOut,
}
