//! The router: which replica, or outside, and what that costs.
//!
//! It never queues. The side of a request depends on the seed and its number only, so that a
//! larger share spills a superset of what a smaller one spills.
//!
//! Worked number: at 0.60 and 2.40 dollars a million tokens a request of 1 000 in and 200 out
//! costs 600 + 480 = 1 080 micro-dollars.

use super::config::{External, Routing};
use super::fleet::Fleet;
use crate::sim::engine::Engine;
use crate::sim::request::{Outcome, Request};
use spillgate_core::policy::Role;
use spillgate_core::units::{Permille, Picos};
use std::collections::VecDeque;

/// Serving replicas of one role, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pods: Vec<usize>,
    turn: usize,
}

/// The router's state and counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Router {
    pub(super) routing: Routing,
    pub(super) seed: u64,
    pub(super) effective: Permille,
    /// Commanded, not yet effective.
    pub(super) commanded: VecDeque<(Picos, Permille)>,
    pub(super) requests: u64,
    pub(super) external: u64,
    pub(super) refused: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) prefill: Lane,
    pub(super) decode: Lane,
    pub(super) mixed: Lane,
}

/// What a replica is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    /// A request that just arrived.
    Entry,
    /// A request whose prompt is computed.
    Decode,
}

impl Router {
    /// The share last commanded, effective or not.
    pub(super) fn ordered(&self) -> Permille {
        self.commanded.back().map_or(self.effective, |&(_, share)| share)
    }

    const fn lane(&mut self, role: Role) -> &mut Lane {
        match role {
            Role::Prefill => &mut self.prefill,
            Role::Decode => &mut self.decode,
            Role::Mixed | Role::Pooling => &mut self.mixed,
        }
    }

    /// A replica serves from now on.
    pub(super) fn add(&mut self, fleet: &Fleet, pod: usize) {
        let role = fleet.pools[fleet.pods[pod].pool].config.policy.role;
        let lane = self.lane(role);
        let name = &fleet.pods[pod].name;
        let at = lane.pods.partition_point(|other| fleet.pods[*other].name < *name);
        lane.pods.insert(at, pod);
    }

    /// A replica takes no more work.
    pub(super) fn take_out(&mut self, fleet: &Fleet, pod: usize) {
        let role = fleet.pools[fleet.pods[pod].pool].config.policy.role;
        self.lane(role).pods.retain(|other| *other != pod);
    }

    /// A replica for this leg. A request enters where a prefill and a decode replica both serve,
    /// else at one that does both.
    pub(super) fn pick(&mut self, fleet: &Fleet, leg: Leg) -> Option<usize> {
        let pair = !self.prefill.pods.is_empty() && !self.decode.pods.is_empty();
        let (lane, load): (&mut Lane, fn(&Engine) -> u64) = match leg {
            Leg::Decode => (&mut self.decode, Engine::kv_load),
            Leg::Entry if pair => (&mut self.prefill, Engine::backlog),
            Leg::Entry => (&mut self.mixed, Engine::in_flight),
        };
        if self.routing == Routing::RoundRobin {
            let turn = lane.turn % lane.pods.len().max(1);
            lane.turn = turn + 1;
            return lane.pods.get(turn).copied();
        }
        let busy = |pod: &usize| fleet.pods[*pod].engine.as_ref().map_or(u64::MAX, load);
        lane.pods.iter().copied().min_by_key(busy)
    }

    /// Whether the share in force sends this request outside.
    pub(super) fn spills(&self, request: usize) -> bool {
        let draw = splitmix(self.seed ^ splitmix(request as u64)) >> 32;
        (draw * 1_000) >> 32 < u64::from(self.effective.0)
    }

    /// Sends a request outside.
    pub(super) fn spill(&mut self, external: &External, request: &Request) -> Outcome {
        self.external += 1;
        self.input_tokens += u64::from(request.input);
        self.output_tokens += u64::from(request.output);
        let prompt = external.ttft_per_token.0.saturating_mul(u64::from(request.input));
        let rest = external.itl.0.saturating_mul(u64::from(request.output.saturating_sub(1)));
        let first = request.at + external.ttft + Picos(prompt);
        Outcome::External { first, last: first + Picos(rest) }
    }
}

/// The mixing function of `SplitMix64`.
const fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
