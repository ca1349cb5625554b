//! What a world is made of: pools with their profiles, devices, a router and a paid API.
//!
//! Worked number: with the standard external model a prompt of 2 000 tokens has its first token
//! after 600 + 2 000 * 0.05 = 700 ms and one more every 20 ms.

use spillgate_core::model::Profile;
use spillgate_core::observation::Name;
use spillgate_core::policy::{Destination, GpuPoolPolicy, PoolPolicy};
use spillgate_core::units::{MicroUsd, Micros, Picos, Replicas, Span};
use std::sync::Arc;

/// One pool at the start of the run.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Its policy: name, role, device pool, devices a replica.
    pub policy: PoolPolicy,
    /// What one replica can do.
    pub profile: Arc<Profile>,
    /// Replicas that serve from the first moment, as far as devices reach.
    pub initial: Replicas,
    /// From a node to the first request served.
    pub start_time: Span,
}

/// The API outside. It never fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// First token of an empty prompt.
    pub ttft: Picos,
    /// More for each prompt token.
    pub ttft_per_token: Picos,
    /// Between two tokens.
    pub itl: Picos,
    /// Price of a million input tokens, if known.
    pub input_per_million: Option<MicroUsd>,
    /// Price of a million output tokens, if known.
    pub output_per_million: Option<MicroUsd>,
}

impl External {
    /// The standard model at a destination's price.
    #[must_use]
    pub const fn standard(destination: &Destination) -> Self {
        Self {
            ttft: Micros(600_000).picos(),
            ttft_per_token: Micros(50).picos(),
            itl: Micros(20_000).picos(),
            input_per_million: destination.input_per_million,
            output_per_million: destination.output_per_million,
        }
    }
}

/// How the router picks a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// Prefill by queued prompt tokens, decode by KV, mixed by requests in flight.
    #[default]
    LeastLoaded,
    /// Each in its turn.
    RoundRobin,
}

/// The whole world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Pools, in any order.
    pub pools: Vec<PoolConfig>,
    /// Device pools. Supply is taken as fixed at `max_devices`.
    pub devices: Vec<GpuPoolPolicy>,
    /// Devices of a node.
    pub node_devices: u32,
    /// How the router picks.
    pub routing: Routing,
    /// From a commanded share to an effective one.
    pub router_lag: Span,
    /// How long a client waits for its last token.
    pub client_timeout: Span,
    /// How long a replica on its way out may take for what it has.
    pub drain_timeout: Span,
    /// Where spilled requests go; `None`: nothing spills, whatever is commanded.
    pub external: Option<External>,
}

impl WorldConfig {
    /// The built-in world around these pools: nodes of eight, a router lag of 2 s, clients that
    /// wait ten minutes, drains of ten minutes, nothing outside.
    #[must_use]
    pub const fn new(pools: Vec<PoolConfig>, devices: Vec<GpuPoolPolicy>) -> Self {
        Self {
            pools,
            devices,
            node_devices: 8,
            routing: Routing::LeastLoaded,
            router_lag: Span::secs(2),
            client_timeout: Span::mins(10),
            drain_timeout: Span::mins(10),
            external: None,
        }
    }
}

/// Why there is no such world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// A pool draws from a device pool that is not there.
    #[error(
        "pool {pool} draws from device pool {devices}, which is not defined: add a GPUPool of that name"
    )]
    NoSuchDevices {
        /// The pool.
        pool: Name,
        /// What it asks for.
        devices: Name,
    },
    /// Two pools of one name.
    #[error("pool {pool} is there twice: give each pool a name of its own")]
    TwicePool {
        /// The name.
        pool: Name,
    },
    /// A replica larger than a node.
    #[error(
        "a replica of pool {pool} takes {gpus} devices and a node has {node}: it could never be placed"
    )]
    LargerThanNode {
        /// The pool.
        pool: Name,
        /// Devices a replica.
        gpus: u32,
        /// Devices a node.
        node: u32,
    },
    /// Arrivals out of order.
    #[error("request {index} arrives before the one ahead of it: sort the trace by arrival")]
    OutOfOrder {
        /// Index in the trace.
        index: usize,
    },
    /// More requests than can be numbered.
    #[error("{requests} requests are more than one run can number: split the trace")]
    TooMany {
        /// How many.
        requests: usize,
    },
}
