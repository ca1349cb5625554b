//! The policy as the brain reads it: every default filled in, every unit an integer, schedules and
//! time zones left outside. `spillgate::policy` makes it from the manifest.
//!
//! Worked number: with `ttft = { base: 1 s, per_kilotoken: 200 ms }` a prompt of 4 000 tokens may
//! take 1.8 s to its first token.

use crate::observation::Name;
use crate::units::{Gpus, GpusEach, MicroUsd, Micros, Ppm, Replicas, Span, Tokens};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One `InferenceAutoscaler`, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// `namespace/name`.
    pub name: Name,
    /// Act, only say, or leave alone.
    pub mode: Mode,
    /// Who gets the next free device: the higher first, then by name.
    pub priority: i32,
    /// What requests are promised.
    pub objectives: Objectives,
    /// The pools, sorted by name.
    pub pools: Vec<PoolPolicy>,
    /// How it shrinks.
    pub scale_down: ScaleDown,
    /// Percentile of the forecast that is provisioned for, 50 to 99.
    pub forecast_percentile: u8,
    /// When and how it spills.
    pub overflow: OverflowPolicy,
    /// Time between two decisions.
    pub tick: Span,
}

/// What the controller does with its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Decide and act.
    Active,
    /// Decide and say, touch nothing.
    Shadow,
    /// Neither scale nor spill.
    Paused,
}

/// Targets of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objectives {
    /// Share of requests that must meet every target.
    pub attainment: Ppm,
    /// Time to first token.
    pub ttft: Option<TtftTarget>,
    /// Mean time between tokens of one request.
    pub itl: Option<Micros>,
    /// Whole request (pooling models).
    pub e2e: Option<Micros>,
}

/// A TTFT target that grows with the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TtftTarget {
    /// For an empty prompt.
    pub base: Micros,
    /// More for every thousand input tokens.
    pub per_kilotoken: Micros,
}

impl TtftTarget {
    /// The target for a prompt of `input` tokens.
    #[must_use]
    pub const fn for_input(self, input: Tokens) -> Micros {
        Micros(self.base.0.saturating_add(self.per_kilotoken.0.saturating_mul(input.0) / 1_000))
    }
}

/// What a pool does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// Prompts only; hands its KV to a decode pool.
    Prefill,
    /// Generates from pulled KV.
    Decode,
    /// Both.
    Mixed,
    /// Embeddings and rerankers: prompt work only, objective `e2e`.
    Pooling,
}

/// One pool of identical replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPolicy {
    /// Its name in the policy.
    pub name: Name,
    /// What it does.
    pub role: Role,
    /// The device pool it draws from.
    pub gpu_pool: Name,
    /// Guaranteed.
    pub min: Replicas,
    /// Never more.
    pub max: Replicas,
    /// The profile's name, in the order of the `profiles` that `assess` is given.
    pub profile: Name,
    /// Devices that one replica takes.
    pub gpus_each: GpusEach,
    /// Price of one device for one hour, if known.
    pub cost_per_device_hour: Option<MicroUsd>,
    /// Start time until enough starts were seen to know better.
    pub startup_estimate: Span,
    /// After this a replica that is not serving counts as evidence, not as capacity.
    pub startup_timeout: Span,
    /// Engines (data-parallel ranks) that one pod must show; fewer is a partial signal.
    pub engines_each: u32,
}

/// How a fleet shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleDown {
    /// How long low need must be seen before a replica goes.
    pub window: Span,
    /// Time between two removals; `None` is `Auto`: clamp(10 * window / replicas, 10 s, 60 s).
    pub interval: Option<Span>,
    /// How long a replica may take to finish its work.
    pub drain_timeout: Span,
}

/// The gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowPolicy {
    /// False keeps every request at home, whatever happens.
    pub allowed: bool,
    /// What opens it.
    pub open_on: OpenOn,
    /// How long a cause must last.
    pub open_after: Span,
    /// How long nothing must have had to spill before it closes altogether.
    pub close_after: Span,
    /// Spend at most this an hour.
    pub cost_per_hour: Option<MicroUsd>,
    /// Send at most this many tokens a minute.
    pub tokens_per_minute: Option<Tokens>,
    /// Where to, first choice first.
    pub destinations: Vec<Destination>,
}

/// Causes that may open the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOn {
    /// No device is free for a replica that is needed.
    pub exhausted: bool,
    /// A pool is at its `max` and needs more.
    pub at_max: bool,
    /// Nothing serves.
    pub unavailable: bool,
    /// Replicas are on their way but not there yet. Opt-in: it pays at every scale-up.
    pub starting: bool,
}

/// An external destination and its price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// Its name at the router.
    pub name: Name,
    /// Price of a million input tokens.
    pub input_per_million: Option<MicroUsd>,
    /// Price of a million output tokens.
    pub output_per_million: Option<MicroUsd>,
}

/// One `GPUPool`, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPoolPolicy {
    /// Its name.
    pub name: Name,
    /// Devices that policies may use together.
    pub max_devices: Gpus,
    /// Where devices come from.
    pub supply: Supply,
    /// Price of one device for one hour, if known.
    pub cost_per_device_hour: Option<MicroUsd>,
}

/// Where devices come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Supply {
    /// What is there is all there is.
    Fixed,
    /// A Pending pod orders a node.
    Elastic {
        /// How long a node may take.
        provision_timeout: Span,
        /// Pods that may wait for nodes at one time.
        max_pending: Replicas,
    },
}
