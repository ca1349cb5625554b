//! The loop as a state machine: what comes in, what is to be done, and no I/O.
//!
//! A body (the simulated world, a live process) calls [`Driver::on`] with an [`Input`] and carries
//! out the [`Effect`]s it returns. A tick opens a round: every pod that should answer is scraped;
//! when the last answer is in (or the next tick finds some missing: they count as timed out) all
//! policies are decided together, since the last free device can go to one of them only.
//!
//! Worked number: a tick over 12 pods is 1 + 12 inputs; the 13th returns the writes.

pub mod flight;
mod round;

use round::Round;
use spillgate_core::audit::Broken;
use spillgate_core::brain::{self, Memory};
use spillgate_core::decision::{Decision, Write};
use spillgate_core::model::Profile;
use spillgate_core::observation::{
    DevicesSeen, EngineSample, Name, Observation, PoolSeen, RouterSeen, Scrape, WriteOutcome,
};
use spillgate_core::policy::{GpuPoolPolicy, Mode, Policy, Supply};
use spillgate_core::share::{Ask, Grant, share};
use spillgate_core::units::{Gpus, Permille, Stamp};
use std::collections::BTreeMap;

/// What reaches the driver.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time for a decision.
    Tick,
    /// What is now known of one policy's pools, devices and router.
    Watched {
        /// The policy's place in the driver.
        policy: usize,
        /// What was read.
        watched: Watched,
    },
    /// One pod's answer to a scrape.
    Scraped {
        /// The policy's place in the driver.
        policy: usize,
        /// The pool.
        pool: Name,
        /// The pod's uid.
        pod: Name,
        /// When it was asked, as the effect said: an answer to an earlier round comes too late.
        asked: Stamp,
        /// How it went.
        scrape: Scrape,
        /// What its engines said; empty unless fresh.
        engines: Vec<EngineSample>,
    },
    /// How a write ended.
    Wrote {
        /// The policy's place in the driver.
        policy: usize,
        /// The pool.
        pool: Name,
        /// The outcome.
        outcome: WriteOutcome,
    },
    /// End: nothing is scraped or written any more.
    Stop,
}

/// Everything about a policy that does not come from a scrape. Pods carry no samples here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Pools by name.
    pub pools: BTreeMap<Name, PoolSeen>,
    /// Device pools by name.
    pub devices: BTreeMap<Name, DevicesSeen>,
    /// The router.
    pub router: Option<RouterSeen>,
}

/// What the body is to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read a pod's metrics and answer with [`Input::Scraped`], whatever happens.
    Scrape {
        /// The policy's place in the driver.
        policy: usize,
        /// The pool.
        pool: Name,
        /// The pod's uid.
        pod: Name,
        /// The round that asks; to be handed back with the answer.
        asked: Stamp,
    },
    /// Write `spec.replicas`, if what was read still stands; answer with [`Input::Wrote`].
    Write {
        /// The policy's place in the driver.
        policy: usize,
        /// The pool.
        pool: Name,
        /// The write and its precondition.
        write: Write,
    },
    /// Order a share of traffic to go outside.
    Route {
        /// The policy's place in the driver.
        policy: usize,
        /// The share.
        share: Permille,
    },
    /// A decision was made: show it.
    Publish {
        /// The policy's place in the driver.
        policy: usize,
        /// The decision.
        decision: Decision,
        /// Rules it broke (its writes are withdrawn).
        broken: Vec<Broken>,
    },
    /// Append a line to the flight record.
    Record(Box<flight::Line>),
}

/// The loop's state.
#[derive(Debug)]
pub struct Driver {
    policies: Vec<Policy>,
    gpu_pools: Vec<GpuPoolPolicy>,
    profiles: BTreeMap<Name, Profile>,
    tenants: Vec<Tenant>,
    round: Option<Round>,
    recorder: Option<flight::Recorder>,
    stopped: bool,
}

/// What the driver keeps of one policy.
#[derive(Debug, Default)]
struct Tenant {
    memory: Memory,
    watched: Option<Watched>,
    previous: Option<Observation>,
    outcomes: BTreeMap<Name, WriteOutcome>,
}

/// One policy's decision with what led to it.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The decision.
    pub decision: Decision,
    /// Rules it broke.
    pub broken: Vec<Broken>,
    /// Devices granted, by GPU pool.
    pub grants: BTreeMap<Name, Gpus>,
}

impl Driver {
    /// A driver for these policies. With `record`, every tick yields a flight line.
    #[must_use]
    pub fn new(
        policies: Vec<Policy>,
        gpu_pools: Vec<GpuPoolPolicy>,
        profiles: BTreeMap<Name, Profile>,
        record: bool,
    ) -> Self {
        let tenants = policies.iter().map(|_| Tenant::default()).collect();
        let recorder = record.then(flight::Recorder::default);
        Self { policies, gpu_pools, profiles, tenants, round: None, recorder, stopped: false }
    }

    /// Takes an input and says what is to be done.
    pub fn on(&mut self, now: Stamp, input: Input) -> Vec<Effect> {
        if self.stopped {
            return Vec::new();
        }
        match input {
            Input::Tick => self.tick(now),
            Input::Watched { policy, watched } => {
                if let Some(tenant) = self.tenants.get_mut(policy) {
                    tenant.watched = Some(watched);
                }
                Vec::new()
            }
            Input::Scraped { policy, pool, pod, asked, scrape, engines } => {
                // Old counters beside newer ones would look like a restart, and a restart like load.
                let Some(round) = self.round.as_mut().filter(|round| round.opened() == asked)
                else {
                    return Vec::new();
                };
                round.answer(policy, &pool, &pod, scrape, engines);
                if round.complete() { self.close_round() } else { Vec::new() }
            }
            Input::Wrote { policy, pool, outcome } => {
                if let Some(tenant) = self.tenants.get_mut(policy) {
                    tenant.outcomes.insert(pool, outcome);
                }
                Vec::new()
            }
            Input::Stop => {
                self.stopped = true;
                Vec::new()
            }
        }
    }

    /// Opens a round; one that is still open ends first, its missing answers timed out.
    fn tick(&mut self, now: Stamp) -> Vec<Effect> {
        let mut effects = self.close_round();
        let watched = self.tenants.iter_mut().map(|tenant| {
            let mut watched = tenant.watched.clone().unwrap_or_default();
            for (name, pool) in &mut watched.pools {
                pool.last_write = tenant.outcomes.get(name).copied();
            }
            watched
        });
        let (round, scrapes) = Round::open(now, watched.collect());
        effects.extend(scrapes);
        let complete = round.complete();
        self.round = Some(round);
        if complete {
            effects.extend(self.close_round());
        }
        effects
    }

    fn close_round(&mut self) -> Vec<Effect> {
        let Some(round) = self.round.take() else { return Vec::new() };
        let seen = round.into_observations();
        let decided = self.decide(&seen);
        let mut effects = Vec::new();
        if let Some(recorder) = &mut self.recorder {
            let memories: Vec<&Memory> = self.tenants.iter().map(|t| &t.memory).collect();
            let setup = flight::Setup {
                policies: &self.policies,
                gpu_pools: &self.gpu_pools,
                profiles: &self.profiles,
            };
            let lines = recorder.record(&setup, &seen, &decided, &memories);
            effects.extend(lines.into_iter().map(|line| Effect::Record(Box::new(line))));
        }
        for (index, (seen, decided)) in seen.into_iter().zip(decided).enumerate() {
            self.tenants[index].previous = Some(seen);
            effects.extend(self.carry_out(index, decided));
        }
        effects
    }

    /// One round on observations that a flight recorded.
    pub(crate) fn rerun(&mut self, seen: Vec<Observation>) -> Vec<Decision> {
        let decided = self.decide(&seen);
        for (tenant, seen) in self.tenants.iter_mut().zip(seen) {
            tenant.previous = Some(seen);
        }
        decided.into_iter().map(|d| d.decision).collect()
    }

    /// Decides all policies on complete observations, in three pure steps.
    fn decide(&mut self, seen: &[Observation]) -> Vec<Decided> {
        let assessed: Vec<_> = self
            .policies
            .iter()
            .zip(&mut self.tenants)
            .zip(seen)
            .map(|((policy, tenant), seen)| {
                brain::assess(policy, &self.profiles, seen, &mut tenant.memory)
            })
            .collect();
        let asks = assessed.iter().map(|a| &a.asks);
        let grants = share_all(&self.gpu_pools, asks, seen);
        let mut decided = Vec::with_capacity(seen.len());
        for (index, assessment) in assessed.into_iter().enumerate() {
            let policy = &self.policies[index];
            let tenant = &mut self.tenants[index];
            let (decision, broken) = brain::settle(
                policy,
                &self.gpu_pools,
                tenant.previous.as_ref(),
                &seen[index],
                assessment,
                &grants,
                &mut tenant.memory,
            );
            let own = grants.keys().map(|gpu_pool| {
                (gpu_pool.clone(), spillgate_core::balance::granted(policy, &grants, gpu_pool))
            });
            decided.push(Decided { decision, broken, grants: own.collect() });
        }
        decided
    }

    fn carry_out(&mut self, policy: usize, decided: Decided) -> Vec<Effect> {
        let Decided { decision, broken, .. } = decided;
        let mut effects = Vec::new();
        if self.policies[policy].mode == Mode::Active {
            for pool in &decision.pools {
                if let Some(write) = &pool.write {
                    self.tenants[policy].outcomes.remove(&pool.pool);
                    effects.push(Effect::Write {
                        policy,
                        pool: pool.pool.clone(),
                        write: write.clone(),
                    });
                }
            }
            if let Some(share) = decision.route {
                effects.push(Effect::Route { policy, share });
            }
        }
        effects.push(Effect::Publish { policy, decision, broken });
        effects
    }

    /// Memory of one policy's stages.
    pub(crate) fn memory(&self, policy: usize) -> Option<&Memory> {
        self.tenants.get(policy).map(|t| &t.memory)
    }

    /// Puts a policy's memory and last observation back, as a keyframe has them.
    pub(crate) fn restore(&mut self, policy: usize, memory: Memory, previous: Option<Observation>) {
        if let Some(tenant) = self.tenants.get_mut(policy) {
            tenant.memory = memory;
            tenant.previous = previous;
        }
    }
}

/// Shares every GPU pool among those who ask for it.
fn share_all<'a>(
    gpu_pools: &[GpuPoolPolicy],
    asks: impl Iterator<Item = &'a BTreeMap<Name, Ask>>,
    seen: &[Observation],
) -> BTreeMap<Name, Vec<Grant>> {
    let mut by_pool: BTreeMap<&Name, Vec<Ask>> = BTreeMap::new();
    for asked in asks {
        for (gpu_pool, ask) in asked {
            by_pool.entry(gpu_pool).or_default().push(ask.clone());
        }
    }
    let mut grants = BTreeMap::new();
    for (gpu_pool, asks) in by_pool {
        let rules = gpu_pools.iter().find(|g| g.name == *gpu_pool);
        let limit = rules.map_or(Gpus::MAX, |g| g.max_devices);
        // An unknown inventory limits nothing here: growth is limited to single steps later. Nor do
        // the nodes that are there where a Pending pod orders more.
        let unlimited = DevicesSeen { allocatable: limit, ..DevicesSeen::default() };
        let elastic = rules.is_some_and(|g| matches!(g.supply, Supply::Elastic { .. }));
        let devices = match seen.iter().find_map(|o| o.devices.get(gpu_pool)) {
            Some(known) if elastic => DevicesSeen { allocatable: limit, ..*known },
            Some(known) => *known,
            None => unlimited,
        };
        grants.insert(gpu_pool.clone(), share(devices, limit, &asks));
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillgate_core::units::{Replicas, Span};

    /// What is granted to one policy that wants 12 of 16 devices, 8 of them on nodes by now.
    fn granted(supply: Supply) -> Gpus {
        let (h100, llm) = (Name::from("h100"), Name::from("llm/a"));
        let gpu_pool = GpuPoolPolicy {
            name: h100.clone(),
            max_devices: Gpus(16),
            supply,
            cost_per_device_hour: None,
        };
        let ask =
            Ask { policy: llm, priority: 0, guaranteed: Gpus(2), wanted: Gpus(12), held: Gpus(8) };
        let devices =
            DevicesSeen { allocatable: Gpus(8), used_by_us: Gpus(8), used_by_others: Gpus::ZERO };
        let seen =
            Observation { devices: [(h100.clone(), devices)].into(), ..Observation::default() };
        let asks = BTreeMap::from([(h100.clone(), ask)]);
        share_all(&[gpu_pool], std::iter::once(&asks), &[seen])[&h100][0].devices
    }

    #[test]
    fn nodes_limit_a_fixed_supply_and_not_an_elastic_one() {
        assert_eq!(granted(Supply::Fixed), Gpus(8));
        let (provision_timeout, max_pending) = (Span::mins(10), Replicas(4));
        assert_eq!(granted(Supply::Elastic { provision_timeout, max_pending }), Gpus(12));
    }
}
