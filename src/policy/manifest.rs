//! Both kinds as types, with every default that is safe to run.
//!
//! The walk has checked a document before it becomes one of these; from a cluster they come by
//! serde alone, with the same names and the same defaults. Why each default is the careful one:
//! `mode: Shadow` touches nothing; `overflow.policy: Never` sends no prompt to a third party that
//! nobody agreed to; `minReplicas: 1` never scales to zero; `timeZone: UTC` means the same
//! everywhere.
//!
//! Worked number: a policy of `objectives` and one pool with target and profile is complete; all
//! else is 99 % attainment, 5 min of low need before a replica goes, 10 min to drain it.

use super::values::{Count, Money, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One `InferenceAutoscaler`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autoscaler {
    /// Its name and namespace.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: AutoscalerSpec,
}

/// One `GPUPool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPool {
    /// Its name; it has no namespace.
    pub metadata: Metadata,
    /// What it is.
    pub spec: GpuPoolSpec,
}

/// What of an object's metadata counts here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name in its namespace.
    pub name: String,
    /// Namespace; `default` if none is given.
    #[serde(default = "default_namespace")]
    pub namespace: String,
}

fn default_namespace() -> String {
    "default".into()
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$each])* $variant),+ }
    };
}

choice!(/** What is done with decisions. */ Mode {
    /** Decide and say, touch nothing. */ #[default] Shadow,
    /** Decide and act. */ Active,
    /** Neither scale nor spill. */ Paused,
});
choice!(/** What a pool does for a request. */ Role {
    /** Prompts only. */ Prefill,
    /** Tokens from pulled KV. */ Decode,
    /** Both. */ #[default] Mixed,
    /** Embeddings and rerankers. */ Pooling,
});
choice!(/** Where a profile is kept. */ ProfileKind {
    /** In the program or its `profiles/` folder. */ #[default] BuiltIn,
    /** In a ConfigMap of the policy's namespace. */ ConfigMap,
});
choice!(/** Which engine runs in the pods. */ EngineType {
    /** vLLM. */ #[default] #[serde(rename = "VLLM")] Vllm,
    /** SGLang. */ #[serde(rename = "SGLang")] SgLang,
    /** TensorRT-LLM. */ #[serde(rename = "TensorRTLLM")] TensorRtLlm,
    /** Another one, taught by `metrics.specs`. */ Custom,
});
choice!(/** Whether a request may leave. */ OverflowChoice {
    /** Every request stays at home. */ #[default] Never,
    /** Excess may go to the destinations. */ Allowed,
});
choice!(/** A cause that opens the gate. */ OpenCause {
    /** No device is free for a replica that is needed. */ #[default] Exhausted,
    /** A pool is at its maximum and needs more. */ AtMax,
    /** Nothing serves. */ Unavailable,
    /** Replicas are on their way. It pays at every scale-up. */ Starting,
});
choice!(/** What the gate does when the controller is gone. */ ControllerLoss {
    /** Stays as it is. */ #[default] Keep,
    /** Closes. */ Close,
});
choice!(/** How ITL is judged. */ ItlStatistic {
    /** The mean over one request. */ #[default] RequestMean,
});
choice!(/** Where devices come from. */ SupplyType {
    /** What is there is all there is. */ #[default] Fixed,
    /** A Pending pod orders a node. */ Elastic,
});
choice!(/** What kind of destination. */ DestinationType {
    /** A paid API. */ #[default] External,
});
choice!(/** What switches the traffic. */ RouterType {
    /** Weights of a Gateway API HTTPRoute. */ #[default] #[serde(rename = "HTTPRoute")] HttpRoute,
});

macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name { $($(#[$each])* pub $field: $type),+ }
    };
}

record!(/** What a policy asks for. */ AutoscalerSpec {
    /** Act, only say, or leave alone. */ #[serde(default)] mode: Mode,
    /** Who gets the next free device. */ #[serde(default)] priority: i32,
    /** Time between two decisions; by the fleet's size if not given. */ #[serde(default)] tick: Option<Time>,
    /** What requests are promised. */ objectives: Objectives,
    /** The pools. */ pools: Vec<Pool>,
    /** How it shrinks. */ #[serde(default)] scale_down: ScaleDown,
    /** What is provisioned for. */ #[serde(default)] forecast: Forecast,
    /** Floors by the clock. */ #[serde(default)] schedules: Vec<Schedule>,
    /** The gate. */ #[serde(default)] overflow: Overflow,
});
record!(/** Targets. */ Objectives {
    /** Share of requests that must meet every target. */ #[serde(default = "attainment")] attainment_percent: u8,
    /** Time to first token. */ #[serde(default)] ttft: Option<Ttft>,
    /** Time between tokens. */ #[serde(default)] itl: Option<Itl>,
    /** The whole request. */ #[serde(default)] e2e: Option<EndToEnd>,
});
record!(/** A target of time to first token. */ Ttft {
    /** For an empty prompt. */ target: Time,
    /** More for each thousand input tokens. */ #[serde(default)] per_thousand_input_tokens: Option<Time>,
});
record!(/** A target of time between tokens. */ Itl {
    /** The target. */ target: Time,
    /** What is compared with it. */ #[serde(default)] statistic: ItlStatistic,
});
record!(/** A target of the whole request. */ EndToEnd {
    /** The target. */ target: Time,
});
record!(/** One pool of identical replicas. */ Pool {
    /** Its name in the policy. */ name: String,
    /** What it does. */ #[serde(default)] role: Role,
    /** What is scaled. */ scale_target_ref: ScaleTarget,
    /** The devices it draws from. */ #[serde(default)] gpu_pool_ref: Option<NameRef>,
    /** Guaranteed. */ #[serde(default = "one")] min_replicas: u32,
    /** Never more; what the GPU pool holds if not given. */ #[serde(default)] max_replicas: Option<u32>,
    /** What one replica can do. */ profile_ref: ProfileRef,
    /** How its engines are read. */ #[serde(default)] engine: Engine,
    /** How long it takes to start. */ #[serde(default)] startup: Startup,
});
record!(/** An object with a scale subresource. */ ScaleTarget {
    /** Its group and version. */ #[serde(default = "apps")] api_version: String,
    /** Its kind. */ kind: String,
    /** Its name, in the policy's namespace. */ name: String,
});
record!(/** A reference by name. */ NameRef {
    /** The name. */ name: String,
});
record!(/** Which profile. */ ProfileRef {
    /** Where it is kept. */ #[serde(default)] kind: ProfileKind,
    /** Its name. */ name: String,
});
record!(/** How engines are read. */ Engine {
    /** Which engine. */ #[serde(default, rename = "type")] engine_type: EngineType,
    /** Engines (data-parallel ranks) in one pod. */ #[serde(default = "one")] engines_per_pod: u32,
    /** Where its numbers are. */ #[serde(default)] metrics: Metrics,
});
record!(/** Where an engine's numbers are. */ Metrics {
    /** Port of the pod. */ #[serde(default = "port")] port: u16,
    /** Path of the page. */ #[serde(default = "path")] path: String,
    /** For type Custom: which metric carries which signal. */ #[serde(default)] specs: Vec<String>,
});
record!(/** How long a replica takes to start. */ #[derive(Default)] Startup {
    /** Until enough starts were seen; the profile's start time if not given. */ #[serde(default)] initial_estimate: Option<Time>,
    /** After this it counts as evidence, not as capacity. */ #[serde(default)] timeout: Option<Time>,
});
record!(/** How a fleet shrinks. */ ScaleDown {
    /** How long low need must be seen. */ #[serde(default = "five_minutes")] stabilization_window: Time,
    /** Time between two removals. */ #[serde(default)] interval: Interval,
    /** How long a replica may finish its work. */ #[serde(default = "ten_minutes")] drain_timeout: Time,
});
record!(/** What is provisioned for. */ Forecast {
    /** Percentile of the forecast. */ #[serde(default = "ninety_five")] percentile: u8,
});
record!(/** Floors by the clock. */ Schedule {
    /** Its name. */ name: String,
    /** When it fires: five fields of cron. */ schedule: String,
    /** How long it stays in force. */ duration: Time,
    /** Whose clock. */ #[serde(default = "utc")] time_zone: String,
    /** The floors. */ min_replicas: Vec<Floor>,
});
record!(/** A floor of one pool. */ Floor {
    /** The pool. */ pool: String,
    /** Its floor. */ replicas: u32,
});
record!(/** The gate. */ Overflow {
    /** Whether a request may leave. */ #[serde(default)] policy: OverflowChoice,
    /** What opens it. */ #[serde(default = "causes")] open_on: Vec<OpenCause>,
    /** How long a cause must last. */ #[serde(default = "ten_seconds")] open_after: Time,
    /** How long causes must be gone. */ #[serde(default = "two_minutes")] close_after: Time,
    /** What it does without a controller. */ #[serde(default)] on_controller_loss: ControllerLoss,
    /** What it may spend. */ #[serde(default)] limits: OverflowLimits,
    /** Where to, first choice first. */ #[serde(default)] destinations: Vec<Destination>,
    /** What switches the traffic. */ #[serde(default)] router: Option<Router>,
});
record!(/** What the gate may spend. */ #[derive(Default)] OverflowLimits {
    /** Dollars an hour. */ #[serde(default)] cost_per_hour: Option<Money>,
    /** Tokens a minute. */ #[serde(default)] tokens_per_minute: Option<Count>,
});
record!(/** Where spilled requests go. */ Destination {
    /** Its name at the router. */ name: String,
    /** What it is. */ #[serde(default, rename = "type")] destination_type: DestinationType,
    /** Its prices. */ #[serde(default)] external: Prices,
});
record!(/** Prices of an external destination. */ #[derive(Default)] Prices {
    /** Of a million input tokens. */ #[serde(default)] input_per_million_tokens: Option<Money>,
    /** Of a million output tokens. */ #[serde(default)] output_per_million_tokens: Option<Money>,
});
record!(/** What switches the traffic. */ Router {
    /** Which kind. */ #[serde(default, rename = "type")] router_type: RouterType,
    /** The route. */ http_route: HttpRoute,
});
record!(/** A Gateway API HTTPRoute. */ HttpRoute {
    /** Its name. */ name: String,
    /** Its namespace; the policy's if not given. */ #[serde(default)] namespace: Option<String>,
    /** Its rule; the only one if not given. */ #[serde(default)] rule_name: Option<String>,
});
record!(/** What a GPU pool is. */ GpuPoolSpec {
    /** The resource that pods ask for. */ #[serde(default)] resource_name: Option<String>,
    /** Or the DRA device class. */ #[serde(default)] device_class_name: Option<String>,
    /** Which nodes. */ #[serde(default)] node_selector: BTreeMap<String, String>,
    /** Where devices come from. */ #[serde(default)] supply: SupplySpec,
    /** Devices that policies may use together. */ max_devices: u32,
    /** Price of a device for an hour. */ #[serde(default)] cost_per_device_hour: Option<Money>,
});
record!(/** Where devices come from. */ #[derive(Default)] SupplySpec {
    /** Which way. */ #[serde(default, rename = "type")] supply_type: SupplyType,
    /** Elastic: how long a node may take, 10 min if not given. */ #[serde(default)] provision_timeout: Option<Time>,
    /** Elastic: pods that may wait for nodes at one time. */ #[serde(default)] max_pending_replicas: Option<u32>,
});

/// Time between two removals: the word `Auto` or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interval {
    /// clamp(10 * window / replicas, 10 s, 60 s).
    #[default]
    Auto,
    /// This long.
    Every(Time),
}

impl Serialize for Interval {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("Auto"),
            Self::Every(time) => time.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "Auto" {
            return Ok(Self::Auto);
        }
        Time::deserialize(serde::de::value::StringDeserializer::new(text)).map(Self::Every)
    }
}

const fn attainment() -> u8 {
    99
}
const fn one() -> u32 {
    1
}
fn apps() -> String {
    "apps/v1".into()
}
const fn port() -> u16 {
    8000
}
fn path() -> String {
    "/metrics".into()
}
const fn five_minutes() -> Time {
    Time::secs(300)
}
const fn ten_minutes() -> Time {
    Time::secs(600)
}
const fn two_minutes() -> Time {
    Time::secs(120)
}
const fn ten_seconds() -> Time {
    Time::secs(10)
}
const fn ninety_five() -> u8 {
    95
}
fn utc() -> String {
    "UTC".into()
}
fn causes() -> Vec<OpenCause> {
    vec![OpenCause::Exhausted, OpenCause::AtMax, OpenCause::Unavailable]
}

macro_rules! default_of {
    ($($name:ident { $($field:ident: $value:expr),+ $(,)? })+) => {
        $(impl Default for $name {
            fn default() -> Self {
                Self { $($field: $value),+ }
            }
        })+
    };
}

default_of! {
    Metrics { port: port(), path: path(), specs: Vec::new() }
    Forecast { percentile: ninety_five() }
    ScaleDown {
        stabilization_window: five_minutes(),
        interval: Interval::Auto,
        drain_timeout: ten_minutes(),
    }
    Overflow {
        policy: OverflowChoice::Never,
        open_on: causes(),
        open_after: ten_seconds(),
        close_after: two_minutes(),
        on_controller_loss: ControllerLoss::Keep,
        limits: OverflowLimits::default(),
        destinations: Vec::new(),
        router: None,
    }
    Engine { engine_type: EngineType::Vllm, engines_per_pod: one(), metrics: Metrics::default() }
}
