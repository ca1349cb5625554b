//! What crosses the boundary into the brain: canonical cumulative samples, as integers.
//!
//! Not text and not windows: windows are the core's memory. What a source did not say is `None`,
//! never zero. Everything is keyed by name in ordered maps, so that no order of arrival can change
//! a decision, and everything derives `Eq`, so that a flight record is exact.
//!
//! Worked number: a TTFT histogram with finite bounds `[100_000, 500_000]` (0.1 s, 0.5 s) and
//! cumulative counts `[3, 7, 9]` saw nine requests, two of them above half a second.

use crate::units::{Gpus, Permille, Ppm, Replicas, Stamp, Tokens};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A name: of a pool, a pod (its uid), a policy, a device pool.
pub type Name = Arc<str>;

/// Everything one policy's decision may depend on, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// When it was put together.
    pub now: Stamp,
    /// The policy's pools by name.
    pub pools: BTreeMap<Name, PoolSeen>,
    /// The router in front of them, if there is one that can be read.
    pub router: Option<RouterSeen>,
    /// The device pools they draw from, by name. Absent: the inventory is unknown.
    pub devices: BTreeMap<Name, DevicesSeen>,
}

/// One pool: the scale target and its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSeen {
    /// `spec.replicas` as read; `None` if it could not be read.
    pub spec: Option<Replicas>,
    /// `status.replicas` as read.
    pub status: Option<Replicas>,
    /// resourceVersion of what was read: the precondition of the next write.
    pub version: u64,
    /// How the last write went, until the next one.
    pub last_write: Option<WriteOutcome>,
    /// The floor that a schedule puts in force now (0: none).
    pub floor: Replicas,
    /// Pods by uid.
    pub pods: BTreeMap<Name, PodSeen>,
}

/// How a write of `spec.replicas` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// The API accepted it.
    Applied,
    /// Somebody wrote first (409): the next tick sees what is real.
    Conflict,
    /// Refused by quota, admission or RBAC.
    Denied,
    /// No answer, or an error on the way.
    Failed,
}

/// One pod: its life and what its engines said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSeen {
    /// When it was created.
    pub created: Stamp,
    /// When it got a node; `None` while it has none.
    pub scheduled: Option<Stamp>,
    /// When it became ready; `None` while it is not.
    pub ready: Option<Stamp>,
    /// When its deletion began.
    pub deleting: Option<Stamp>,
    /// Its container fails to start (crash loop, image error).
    pub failing: bool,
    /// Extra pod of a rollout.
    pub surge: bool,
    /// How the last scrape went.
    pub scrape: Scrape,
    /// One sample an engine (data-parallel rank). Empty unless `scrape` is `Fresh`.
    pub engines: Vec<EngineSample>,
}

/// How a scrape went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scrape {
    /// Not tried: the pod is not ready, or was just found.
    #[default]
    Untried,
    /// A page with engine families was read, this tick.
    Fresh,
    /// No answer in time.
    Timeout,
    /// Nobody listens.
    Refused,
    /// Another status than 200.
    Http(u16),
    /// 200, but no engine family in it.
    NoSignal,
    /// The body is larger than the limit, or cut short.
    BadBody,
}

/// What one engine says: gauges now, counters and histograms since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSample {
    /// Data-parallel rank (the `engine` label).
    pub rank: u32,
    /// Process start, milliseconds since the epoch; changes at a restart. 0: not said.
    pub epoch: u64,
    /// Awake; `Some(false)` for an engine whose weights are offloaded.
    pub awake: Option<bool>,
    /// Requests waiting, deferred ones included.
    pub waiting: Option<u64>,
    /// Of those, waiting for something other than capacity (KV transfer, adapter).
    pub deferred: Option<u64>,
    /// Requests in the running batch.
    pub running: Option<u64>,
    /// KV cache in use.
    pub kv_used: Option<Ppm>,
    /// KV cache size.
    pub kv_capacity: Option<Tokens>,
    /// Prompt tokens of requests whose prefill is done.
    pub prompt_tokens: Option<u64>,
    /// Of those, computed here (not served by a cache, not pulled from another engine).
    pub computed_tokens: Option<u64>,
    /// Tokens generated.
    pub generation_tokens: Option<u64>,
    /// Requests finished (any reason but abort).
    pub finished: Option<u64>,
    /// Preemptions for lack of KV.
    pub preempted: Option<u64>,
    /// Requests refused at admission.
    pub rejected: Option<u64>,
    /// Requests that the HTTP front end answered, aborted ones included.
    pub http_requests: Option<u64>,
    /// Time to first token, bounds and sum in microseconds.
    pub ttft: Option<Histogram>,
    /// Latency between tokens, bounds and sum in microseconds.
    pub itl: Option<Histogram>,
    /// Time in the engine's queue, bounds and sum in microseconds. Seen at finish.
    pub queue: Option<Histogram>,
    /// Prompt lengths, bounds and sum in tokens. Seen at finish.
    pub prompt_lengths: Option<Histogram>,
    /// Output lengths, bounds and sum in tokens. Seen at finish.
    pub output_lengths: Option<Histogram>,
}

/// A cumulative histogram as Prometheus counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Finite upper bounds, ascending, in whole units of the family.
    pub bounds: Arc<[u64]>,
    /// Observations at or below each bound; one more at the end for `+Inf`, the total.
    pub cumulative: Vec<u64>,
    /// Sum of all observations, in the unit of the bounds.
    pub sum: u64,
}

impl Histogram {
    /// An empty histogram with these finite bounds.
    #[must_use]
    pub fn empty(bounds: Arc<[u64]>) -> Self {
        let cumulative = alloc::vec![0; bounds.len() + 1];
        Self { bounds, cumulative, sum: 0 }
    }

    /// Number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(0)
    }

    /// Mean of the observations, `None` if there are none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64)
    }
}

/// The router's own words. Counters are upstream of any split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterSeen {
    /// Requests that arrived, wherever they went.
    pub requests: Option<u64>,
    /// Of those, sent outside.
    pub external: Option<u64>,
    /// Of those, refused because no backend was there.
    pub refused: Option<u64>,
    /// The share of traffic that the router says it sends outside now.
    pub share: Permille,
    /// The share that it was last told to send outside, and may still be on its way to.
    pub ordered: Permille,
    /// An outside destination answered its last probe.
    pub external_ready: bool,
    /// Money spent outside so far, in micro-dollars.
    pub spent: u64,
}

/// One device pool as seen on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesSeen {
    /// Devices on nodes that can take pods, at most the pool's own limit.
    pub allocatable: Gpus,
    /// Held by this controller's replicas, draining ones included.
    pub used_by_us: Gpus,
    /// Held by anybody else.
    pub used_by_others: Gpus,
}

impl DevicesSeen {
    /// Devices nobody holds.
    #[must_use]
    pub const fn free(self) -> Gpus {
        self.allocatable.less(Gpus(self.used_by_us.0.saturating_add(self.used_by_others.0)))
    }
}
