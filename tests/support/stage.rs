//! The driver on a simulated world, tick by tick, with everything that it saw and decided kept.
//!
//! Worked number: 1 800 s of one pool at a tick of 1 s are 1 801 rows.

use spillgate::driver::{Driver, Effect, Input, Watched};
use spillgate::sim::request::Request;
use spillgate::sim::world::{External, PoolConfig, World, WorldConfig};
use spillgate_core::audit::Broken;
use spillgate_core::decision::Decision;
use spillgate_core::model::Profile;
use spillgate_core::observation::{DevicesSeen, Name, PoolSeen};
use spillgate_core::policy::{GpuPoolPolicy, Policy};
use spillgate_core::reason::Reason;
use spillgate_core::units::{Permille, Picos, Replicas, Span, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One tick.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) at: Stamp,
    /// Pools as they were before the decision.
    pub(crate) pools: BTreeMap<Name, PoolSeen>,
    pub(crate) devices: BTreeMap<Name, DevicesSeen>,
    /// Share in force.
    pub(crate) share: Permille,
    /// Requests waiting, by pool.
    pub(crate) waiting: BTreeMap<Name, u64>,
    pub(crate) decision: Decision,
    pub(crate) broken: Vec<Broken>,
}

impl Row {
    pub(crate) fn spec(&self, pool: &str) -> u32 {
        self.pools[pool].spec.expect("the world always says it").0
    }

    pub(crate) fn ready(&self, pool: &str) -> u32 {
        let pods = self.pools[pool].pods.values();
        pods.filter(|p| p.ready.is_some() && p.deleting.is_none()).count() as u32
    }

    pub(crate) fn waiting(&self, pool: &str) -> u64 {
        self.waiting.get(pool).copied().unwrap_or(0)
    }

    /// All reasons of this tick.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &Reason> {
        self.decision.pools.iter().flat_map(|p| &p.reasons).chain(&self.decision.gate)
    }

    pub(crate) fn second(&self) -> u64 {
        self.at.0 / 1_000
    }
}

/// The stage.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) rows: Vec<Row>,
    driver: Driver,
    tick: Span,
    /// The driver is told what the router counts.
    router: bool,
}

/// The world of a policy, its pools at `initial` replicas.
pub(crate) fn world_of(
    policy: &Policy,
    gpu_pools: &[GpuPoolPolicy],
    profiles: &BTreeMap<Name, Profile>,
    requests: Vec<Request>,
    initial: &[u32],
    seed: u64,
) -> World {
    let pools = policy.pools.iter().zip(initial).map(|(pool, &initial)| PoolConfig {
        policy: pool.clone(),
        profile: Arc::new(profiles[&pool.profile].clone()),
        initial: Replicas(initial),
        start_time: pool.startup_estimate,
    });
    let mut config = WorldConfig::new(pools.collect(), gpu_pools.to_vec());
    config.external = policy.overflow.destinations.first().map(External::standard);
    World::new(config, requests, seed).expect("a world")
}

impl Stage {
    pub(crate) fn new(
        policy: &Policy,
        gpu_pools: &[GpuPoolPolicy],
        profiles: &BTreeMap<Name, Profile>,
        requests: Vec<Request>,
        initial: &[u32],
        router: bool,
    ) -> Self {
        let world = world_of(policy, gpu_pools, profiles, requests, initial, 1);
        let (policies, tick) = (vec![policy.clone()], policy.tick);
        let driver = Driver::new(policies, gpu_pools.to_vec(), profiles.clone(), false);
        Self { world, rows: Vec::new(), driver, tick, router }
    }

    /// Runs from the first moment until `seconds`, included.
    pub(crate) fn run(&mut self, seconds: u64) {
        let mut now = Stamp(0);
        while now.0 <= seconds * 1_000 {
            self.world.run_until(Picos(now.0 * 1_000_000_000));
            self.tick(now);
            now = now + self.tick;
        }
    }

    fn tick(&mut self, now: Stamp) {
        let (pools, devices, router) = self.world.watch();
        let mut row = Row {
            at: now,
            pools: pools.clone(),
            devices: devices.clone(),
            share: router.share,
            waiting: BTreeMap::new(),
            decision: Decision::default(),
            broken: Vec::new(),
        };
        let watched = Watched { pools, devices, router: self.router.then_some(router) };
        self.driver.on(now, Input::Watched { policy: 0, watched });
        let mut effects = VecDeque::from(self.driver.on(now, Input::Tick));
        while let Some(effect) = effects.pop_front() {
            effects.extend(self.carry_out(now, effect, &mut row));
        }
        self.rows.push(row);
    }

    fn carry_out(&mut self, now: Stamp, effect: Effect, row: &mut Row) -> Vec<Effect> {
        match effect {
            Effect::Scrape { policy, pool, pod, asked } => {
                let (scrape, engines) = self.world.scrape(&pool, &pod);
                let waiting: u64 = engines.iter().filter_map(|e| e.waiting).sum();
                *row.waiting.entry(pool.clone()).or_default() += waiting;
                self.driver.on(now, Input::Scraped { policy, pool, pod, asked, scrape, engines })
            }
            Effect::Write { policy, pool, write } => {
                let victim = write.victim.as_ref();
                let outcome = self.world.write(&pool, write.to, write.version, victim);
                self.driver.on(now, Input::Wrote { policy, pool, outcome })
            }
            Effect::Route { share, .. } => {
                self.world.route(share);
                Vec::new()
            }
            Effect::Publish { decision, broken, .. } => {
                row.decision = decision;
                row.broken = broken;
                Vec::new()
            }
            Effect::Record(_) => Vec::new(),
        }
    }

    /// No tick broke a rule.
    pub(crate) fn assert_rules_hold(&self) {
        for row in &self.rows {
            assert!(row.broken.is_empty(), "at {} s: {:?}", row.second(), row.broken);
        }
    }

    /// Writes to a pool: (second, from, to).
    pub(crate) fn writes(&self, pool: &str) -> Vec<(u64, u32, u32)> {
        let of = |row: &Row| {
            let decided = row.decision.pools.iter().find(|p| &*p.pool == pool)?;
            decided.write.as_ref().map(|w| (row.second(), w.from.0, w.to.0))
        };
        self.rows.iter().filter_map(of).collect()
    }

    /// Orders of a share: (second, permille).
    pub(crate) fn orders(&self) -> Vec<(u64, u32)> {
        let of = |row: &Row| row.decision.route.map(|share| (row.second(), share.0));
        self.rows.iter().filter_map(of).collect()
    }
}
