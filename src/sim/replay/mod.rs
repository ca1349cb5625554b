//! Replay: the driver, the brain and all that production runs, on a simulated fleet and a trace.
//!
//! The world moves from tick to tick; at each one the driver is told what a watch shows, asks for
//! scrapes, and its writes are carried out on the simulated fleet. After the last arrival work in
//! flight is drained for at most ten minutes; what is left then has failed.
//!
//! Worked number: an hour of traffic at a tick of 1 s is 3 600 decisions, a few microseconds each.

mod ledger;
mod start;

pub use ledger::{Change, Ledger, PoolMoves};
pub use start::Start;

use crate::driver::flight::Line;
use crate::driver::{Driver, Effect, Input, Watched};
use crate::sim::request::{Outcome, Request};
use crate::sim::world::{External, PoolConfig, PoolUsage, Routing, World, WorldConfig, WorldError};
use spillgate_core::decision::Write;
use spillgate_core::model::Profile;
use spillgate_core::observation::{Name, Scrape};
use spillgate_core::policy::{GpuPoolPolicy, Mode, Policy};
use spillgate_core::units::{Gpus, MicroUsd, Picos, Replicas, Span, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long work in flight may take after the last arrival.
const DRAIN: Span = Span::mins(10);

/// The floor that a schedule puts under each pool at a moment of the replay.
pub type Floors<'a> = dyn Fn(Stamp) -> BTreeMap<Name, Replicas> + 'a;

/// Where the lines of a flight record go.
pub type Recorder<'a> = dyn FnMut(&Line) -> std::io::Result<()> + 'a;

/// What to run.
pub struct Setup<'a> {
    /// The policy. A shadow policy is tried as if it were active.
    pub policy: Policy,
    /// The device pools.
    pub gpu_pools: Vec<GpuPoolPolicy>,
    /// Profiles by name.
    pub profiles: BTreeMap<Name, Profile>,
    /// Requests in order of arrival.
    pub requests: Arc<[Request]>,
    /// Seed of the world's draws.
    pub seed: u64,
    /// Replicas at the first moment.
    pub start: Start,
    /// How the router picks.
    pub routing: Routing,
    /// Floors of schedules.
    pub floors: &'a Floors<'a>,
    /// Where the flight record goes.
    pub record: Option<&'a mut Recorder<'a>>,
}

/// What came of it.
#[derive(Debug)]
pub struct Run {
    /// By request.
    pub outcomes: Vec<Outcome>,
    /// Decisions and moves.
    pub ledger: Ledger,
    /// Device and replica time by pool, in the policy's order.
    pub usage: Vec<PoolUsage>,
    /// Prompt and output tokens that went outside.
    pub external_tokens: (u64, u64),
    /// What they cost, where every destination has a price.
    pub external_cost: Option<MicroUsd>,
    /// From the first arrival to the last completion.
    pub length: Picos,
    /// Replicas at the first moment, in the policy's order.
    pub initial: Vec<Replicas>,
}

/// Why a replay could not run, or could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Policy, profile and devices do not make a world.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The flight record could not be written.
    #[error("the flight record could not be written: {0}")]
    Record(#[from] std::io::Error),
    /// A pool's profile is not there.
    #[error("pool {pool} needs the profile {profile}, which is not known")]
    NoProfile {
        /// The pool.
        pool: Name,
        /// Its profile.
        profile: Name,
    },
}

/// Runs a policy on a trace.
pub fn run(setup: Setup<'_>) -> Result<Run, ReplayError> {
    let Setup { mut policy, gpu_pools, profiles, requests, seed, start, .. } = setup;
    if policy.mode == Mode::Shadow {
        policy.mode = Mode::Active;
    }
    let initial = start::initial(&policy, &gpu_pools, &profiles, &requests, start);
    let mut config =
        WorldConfig::new(pool_configs(&policy, &profiles, &initial)?, gpu_pools.clone());
    config.routing = setup.routing;
    config.drain_timeout = policy.scale_down.drain_timeout;
    config.external = policy.overflow.destinations.first().map(External::standard);
    let last_arrival = requests.last().map_or(Picos::ZERO, |r| r.at);
    let world = World::new(config, requests, seed)?;
    let recording = setup.record.is_some();
    let driver = Driver::new(vec![policy.clone()], gpu_pools, profiles, recording);
    let mut body = Body {
        world,
        driver,
        ledger: Ledger::new(&policy, stamp(last_arrival)),
        record: setup.record,
        floors: setup.floors,
        tick: policy.tick,
    };
    body.run_to_the_end(last_arrival)?;
    let Body { world, ledger, .. } = body;
    let length = world.last_completion().max(last_arrival);
    let usage = policy.pools.iter().filter_map(|pool| world.usage(&pool.name, length)).collect();
    Ok(Run {
        ledger,
        usage,
        external_tokens: world.external_tokens(),
        external_cost: world.external_cost(),
        length,
        initial,
        outcomes: world.outcomes().to_vec(),
    })
}

fn pool_configs(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    initial: &[Replicas],
) -> Result<Vec<PoolConfig>, ReplayError> {
    let pools = policy.pools.iter().zip(initial).map(|(pool, &initial)| {
        let Some(profile) = profiles.get(&pool.profile) else {
            let (pool, profile) = (pool.name.clone(), pool.profile.clone());
            return Err(ReplayError::NoProfile { pool, profile });
        };
        Ok(PoolConfig {
            policy: pool.clone(),
            profile: Arc::new(profile.clone()),
            initial,
            start_time: pool.startup_estimate,
        })
    });
    pools.collect()
}

/// Carries out what the driver asks for, on the simulated world.
struct Body<'a> {
    world: World,
    driver: Driver,
    ledger: Ledger,
    record: Option<&'a mut Recorder<'a>>,
    floors: &'a Floors<'a>,
    tick: Span,
}

impl Body<'_> {
    fn run_to_the_end(&mut self, last_arrival: Picos) -> Result<(), ReplayError> {
        let end = stamp(last_arrival) + DRAIN;
        let mut now = Stamp(0);
        loop {
            self.world.run_until(picos(now));
            if now >= end || (self.world.finished() && picos(now) > last_arrival) {
                return Ok(());
            }
            self.tick_at(now)?;
            now = now + self.tick;
        }
    }

    fn tick_at(&mut self, now: Stamp) -> Result<(), ReplayError> {
        let (mut pools, devices, router) = self.world.watch();
        for (name, floor) in (self.floors)(now) {
            if let Some(pool) = pools.get_mut(&name) {
                pool.floor = floor;
            }
        }
        let watched = Watched { pools, devices, router: Some(router) };
        self.driver.on(now, Input::Watched { policy: 0, watched });
        let mut effects = self.driver.on(now, Input::Tick);
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                next.extend(self.carry_out(now, effect)?);
            }
            effects = next;
        }
        Ok(())
    }

    fn carry_out(&mut self, now: Stamp, effect: Effect) -> Result<Vec<Effect>, ReplayError> {
        match effect {
            Effect::Scrape { policy, pool, pod, asked } => {
                let (scrape, engines): (Scrape, _) = self.world.scrape(&pool, &pod);
                let scraped = Input::Scraped { policy, pool, pod, asked, scrape, engines };
                Ok(self.driver.on(now, scraped))
            }
            Effect::Write { policy, pool, write } => {
                let Write { to, version, victim, .. } = write;
                let outcome = self.world.write(&pool, to, version, victim.as_ref());
                Ok(self.driver.on(now, Input::Wrote { policy, pool, outcome }))
            }
            Effect::Route { share, .. } => {
                self.world.route(share);
                Ok(Vec::new())
            }
            Effect::Publish { decision, broken, .. } => {
                self.ledger.note(&decision, &broken);
                Ok(Vec::new())
            }
            Effect::Record(line) => {
                if let Some(record) = &mut self.record {
                    record(&line)?;
                }
                Ok(Vec::new())
            }
        }
    }
}

/// Devices of one pool of devices that initial replicas may take.
pub(crate) fn devices_of(gpu_pools: &[GpuPoolPolicy], name: &Name) -> Gpus {
    gpu_pools.iter().find(|g| g.name == *name).map_or(Gpus::ZERO, |g| g.max_devices)
}

const fn picos(at: Stamp) -> Picos {
    Picos(at.0.saturating_mul(1_000_000_000))
}

/// The first whole millisecond at or after `at`.
const fn stamp(at: Picos) -> Stamp {
    Stamp(at.0.div_ceil(1_000_000_000))
}
