//! The flight record: JSON lines from which every decision can be made again.
//!
//! A `header` (schema, build, policies and profiles with their hashes, bucket layouts), `keyframe`s
//! (the whole memory and the last observations: at the start and every five minutes) and a `tick`
//! each decision (the observation as changes since the last one, grants, decision, hash of the
//! memory afterwards). Any file replays from its first keyframe. Values in a delta are absolute:
//! what is not named has not changed, what is listed under `~gone` (no name that Kubernetes takes) has gone.
//!
//! Worked number: an hour of 1 s ticks is 3 600 tick lines and 12 keyframes.

mod delta;
mod read;

pub use read::{Difference, FlightError, Verdict, replay};

use super::Decided;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use spillgate_core::brain::Memory;
use spillgate_core::decision::Decision;
use spillgate_core::model::Profile;
use spillgate_core::observation::{Name, Observation};
use spillgate_core::policy::{GpuPoolPolicy, Policy};
use spillgate_core::units::{Gpus, Span, Stamp};
use std::collections::BTreeMap;

/// The schema that this build writes.
pub const SCHEMA: u32 = 1;
/// Time between two keyframes.
const KEYFRAME_EVERY: Span = Span::mins(5);

/// One line of a flight.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Header(Header),
    /// Everything that the next ticks build on.
    Keyframe(Keyframe),
    /// One decision round.
    Tick(Tick),
}

impl<'de> Deserialize<'de> for Line {
    /// By its `type`. Through a tree, since what serde buffers behind a tag forgets that keys of
    /// JSON objects may be numbers.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut value = Value::deserialize(deserializer)?;
        let kind = value.as_object_mut().and_then(|map| map.remove("type"));
        let line = match kind.as_ref().and_then(Value::as_str) {
            Some("header") => serde_json::from_value(value).map(Self::Header),
            Some("keyframe") => serde_json::from_value(value).map(Self::Keyframe),
            Some("tick") => serde_json::from_value(value).map(Self::Tick),
            _ => return Err(D::Error::custom("`type` must be header, keyframe or tick")),
        };
        line.map_err(D::Error::custom)
    }
}

/// What was decided with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Version of this format.
    pub schema: u32,
    /// Program and version that wrote it.
    pub build: String,
    /// Policies, resolved.
    pub policies: Vec<Policy>,
    /// Device pools, resolved.
    pub gpu_pools: Vec<GpuPoolPolicy>,
    /// Profiles by name.
    pub profiles: BTreeMap<Name, Profile>,
    /// SHA-256 of policies and profiles as written here.
    pub sha256: String,
    /// Bucket layouts by number, as the first observation shows them.
    pub layouts: Vec<Vec<u64>>,
}

/// The state between two ticks, one entry a policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keyframe {
    /// When.
    pub at: Stamp,
    /// All bucket layouts so far, so that a flight cut off before here still reads.
    #[serde(default)]
    pub layouts: Vec<Vec<u64>>,
    /// Memories after the last tick; empty ones at the start.
    pub memories: Vec<Memory>,
    /// Observations of the last tick, encoded; `null` before the first.
    pub observations: Vec<Value>,
}

/// One round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tick {
    /// When.
    pub at: Stamp,
    /// Bucket layouts that appear for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layouts: Vec<Vec<u64>>,
    /// One a policy.
    pub policies: Vec<PolicyTick>,
}

/// One policy in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyTick {
    /// What changed since the last observation.
    pub observation: Value,
    /// Devices granted, by GPU pool.
    pub grants: BTreeMap<Name, Gpus>,
    /// The decision.
    pub decision: Decision,
    /// SHA-256 of the memory after it.
    pub memory: String,
}

/// What the header is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) policies: &'a [Policy],
    pub(crate) gpu_pools: &'a [GpuPoolPolicy],
    pub(crate) profiles: &'a BTreeMap<Name, Profile>,
}

/// Writes lines, keeping what the next delta refers to.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    last_keyframe: Option<Stamp>,
    layouts: delta::Layouts,
    before: Vec<Value>,
}

impl Recorder {
    /// The lines of one round. `memories` are those after the decision.
    pub(crate) fn record(
        &mut self,
        setup: &Setup<'_>,
        seen: &[Observation],
        decided: &[Decided],
        memories: &[&Memory],
    ) -> Vec<Line> {
        let at = seen.first().map_or(Stamp(0), |o| o.now);
        let known = self.layouts.len();
        let now: Vec<Value> = seen.iter().map(|o| self.layouts.encode(o)).collect();
        let mut lines = Vec::new();
        let mut fresh = self.layouts.all()[known..].to_vec();
        if self.last_keyframe.is_none() {
            self.before = vec![Value::Null; seen.len()];
            lines.push(Line::Header(header(setup, self.layouts.all())));
            fresh.clear();
            lines.push(self.keyframe(at, vec![Memory::default(); seen.len()]));
        }
        let policies = now.iter().zip(&self.before).zip(decided).zip(memories);
        let policies = policies.map(|(((now, before), decided), memory)| PolicyTick {
            observation: delta::between(before, now),
            grants: decided.grants.clone(),
            decision: decided.decision.clone(),
            memory: sha256_of(*memory),
        });
        lines.push(Line::Tick(Tick { at, layouts: fresh, policies: policies.collect() }));
        self.before = now;
        if self.last_keyframe.is_some_and(|last| at.since(last) >= KEYFRAME_EVERY) {
            let memories = memories.iter().map(|&m| m.clone()).collect();
            lines.push(self.keyframe(at, memories));
        }
        lines
    }

    /// A keyframe of the state as it is now: after the last tick.
    fn keyframe(&mut self, at: Stamp, memories: Vec<Memory>) -> Line {
        self.last_keyframe = Some(at);
        let layouts = self.layouts.all().to_vec();
        Line::Keyframe(Keyframe { at, layouts, memories, observations: self.before.clone() })
    }
}

fn header(setup: &Setup<'_>, layouts: &[Vec<u64>]) -> Header {
    Header {
        schema: SCHEMA,
        build: build(),
        policies: setup.policies.to_vec(),
        gpu_pools: setup.gpu_pools.to_vec(),
        profiles: setup.profiles.clone(),
        sha256: sha256_of(&(setup.policies, setup.gpu_pools, setup.profiles)),
        layouts: layouts.to_vec(),
    }
}

/// This program and its version, as headers and reports name it.
#[must_use]
pub fn build() -> String {
    format!("spillgate {}", env!("CARGO_PKG_VERSION"))
}

/// SHA-256, in hex, of a value's JSON.
pub(crate) fn sha256_of<T: Serialize + ?Sized>(value: &T) -> String {
    let mut hasher = Hasher(Sha256::new());
    // Writing into a hasher cannot fail, and everything hashed here has string keys.
    let _ = serde_json::to_writer(&mut hasher, value);
    hex(&hasher.0.finalize())
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Hasher(Sha256);

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
