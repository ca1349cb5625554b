//! A fleet told in rates: pods that keep counting while time passes, for tests of whole decisions.

use super::{gpu_pools, profiles};
use spillgate_core::brain::{self, Memory};
use spillgate_core::decision::{Decision, PoolDecision};
use spillgate_core::observation::{
    DevicesSeen, EngineSample, Histogram, Name, Observation, PodSeen, PoolSeen, RouterSeen, Scrape,
};
use spillgate_core::policy::Policy;
use spillgate_core::share::share;
use spillgate_core::units::{Gpus, Ppm, Replicas, Stamp, Tokens};
use std::collections::BTreeMap;

/// One pod and what it does in a second.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) deferred: u64,
    /// Requests finished in a second.
    pub(crate) finishes: u64,
    pub(crate) scrape: Scrape,
    pub(crate) node: bool,
    pub(crate) ready: bool,
    pub(crate) failing: bool,
    pub(crate) deleting: bool,
    pub(crate) surge: bool,
    pub(crate) done: u64,
}

pub(crate) const BUSY: Pod = Pod {
    running: 8,
    waiting: 0,
    deferred: 0,
    finishes: 1,
    scrape: Scrape::Fresh,
    node: true,
    ready: true,
    failing: false,
    deleting: false,
    surge: false,
    done: 0,
};

pub(crate) const IDLE: Pod = Pod { running: 0, finishes: 0, ..BUSY };
pub(crate) const STARTING: Pod = Pod { ready: false, ..IDLE };
pub(crate) const PENDING: Pod = Pod { node: false, ..STARTING };

/// Lengths of all requests of the story.
pub(crate) const INPUT: u64 = 1_000;
pub(crate) const OUTPUT: u64 = 200;

/// The world of a story.
pub(crate) struct Fleet {
    policy: Policy,
    memory: Memory,
    previous: Option<Observation>,
    now: u64,
    pub(crate) pools: BTreeMap<&'static str, Vec<Pod>>,
    /// spec.replicas, where it is not the number of pods.
    pub(crate) spec: BTreeMap<&'static str, u32>,
    /// Requests a second at the router; `None`: there is no router.
    pub(crate) arrivals: Option<u64>,
    arrived: u64,
    /// Pages have a sample of what waits.
    pub(crate) says_waiting: bool,
    /// The router answers.
    pub(crate) router_read: bool,
    pub(crate) devices: Option<u32>,
}

impl Fleet {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            memory: Memory::default(),
            previous: None,
            now: 0,
            pools: BTreeMap::new(),
            spec: BTreeMap::new(),
            arrivals: None,
            arrived: 0,
            says_waiting: true,
            router_read: true,
            devices: Some(64),
        }
    }

    /// Lets seconds pass, one decision each, nothing of it carried out; the last decision.
    pub(crate) fn seconds(&mut self, seconds: u64) -> Decision {
        let mut last = Decision::default();
        for _ in 0..seconds {
            last = self.second();
        }
        last
    }

    /// One second and its decision.
    pub(crate) fn second(&mut self) -> Decision {
        self.now += 1_000;
        for pod in self.pools.values_mut().flatten() {
            pod.done += pod.finishes;
        }
        self.arrived += self.arrivals.unwrap_or(0);
        let seen = self.observe();
        let assessment = brain::assess(&self.policy, &profiles(), &seen, &mut self.memory);
        let total = self.devices.unwrap_or(64);
        let limits = gpu_pools(total);
        let grants = assessment.asks.iter().map(|(gpu_pool, ask)| {
            let unknown = DevicesSeen { allocatable: Gpus(total), ..DevicesSeen::default() };
            let devices = seen.devices.get(gpu_pool).copied().unwrap_or(unknown);
            (gpu_pool.clone(), share(devices, Gpus(total), std::slice::from_ref(ask)))
        });
        let grants = grants.collect();
        let previous = self.previous.as_ref();
        let (decision, broken) = brain::settle(
            &self.policy,
            &limits,
            previous,
            &seen,
            assessment,
            &grants,
            &mut self.memory,
        );
        assert!(broken.is_empty(), "{broken:?}");
        self.previous = Some(seen);
        decision
    }

    fn observe(&self) -> Observation {
        let pools = self.policy.pools.iter().map(|pool| {
            let pods = self.pools.get(&*pool.name).map_or(&[][..], Vec::as_slice);
            let spec = self.spec.get(&*pool.name).copied().unwrap_or(pods.len() as u32);
            let seen = pods.iter().enumerate().map(|(i, pod)| {
                let uid: Name = format!("{}-{}", pool.name, (b'a' + i as u8) as char).into();
                let mut pod = pod.seen();
                if !self.says_waiting {
                    pod.engines.iter_mut().for_each(|engine| engine.waiting = None);
                }
                (uid, pod)
            });
            let pool_seen = PoolSeen {
                spec: Some(Replicas(spec)),
                status: Some(Replicas(spec)),
                pods: seen.collect(),
                ..PoolSeen::default()
            };
            (pool.name.clone(), pool_seen)
        });
        let used = self.pools.values().flatten().filter(|p| p.node).count() as u32 * 2;
        let devices = self.devices.map(|total| DevicesSeen {
            allocatable: Gpus(total),
            used_by_us: Gpus(used),
            used_by_others: Gpus(0),
        });
        Observation {
            now: Stamp(self.now),
            pools: pools.collect(),
            router: self.arrivals.filter(|_| self.router_read).map(|_| RouterSeen {
                requests: Some(self.arrived),
                external_ready: true,
                ..RouterSeen::default()
            }),
            devices: devices.map(|d| ("h100".into(), d)).into_iter().collect(),
        }
    }
}

impl Pod {
    fn seen(&self) -> PodSeen {
        let reached = |stage: bool| stage.then_some(Stamp(0));
        let fresh = self.ready && self.scrape == Scrape::Fresh;
        PodSeen {
            created: Stamp(0),
            scheduled: reached(self.node),
            ready: reached(self.ready),
            deleting: reached(self.deleting),
            failing: self.failing,
            surge: self.surge,
            scrape: if self.ready { self.scrape } else { Scrape::Untried },
            engines: if fresh { vec![self.engine()] } else { Vec::new() },
        }
    }

    fn engine(&self) -> EngineSample {
        let histogram = |count: u64, each: u64| {
            Some(Histogram {
                bounds: [1_000_u64, 100_000].into(),
                cumulative: vec![count, count, count],
                sum: count * each,
            })
        };
        EngineSample {
            epoch: 1,
            waiting: Some(self.waiting),
            deferred: Some(self.deferred),
            running: Some(self.running),
            kv_used: Some(Ppm(100_000)),
            kv_capacity: Some(Tokens(270_000)),
            prompt_tokens: Some(self.done * INPUT),
            computed_tokens: Some(self.done * INPUT),
            generation_tokens: Some(self.done * OUTPUT),
            finished: Some(self.done),
            ttft: histogram(self.done, 100_000),
            prompt_lengths: histogram(self.done, INPUT),
            ..EngineSample::default()
        }
    }
}

/// The decision on one pool.
pub(crate) fn on<'a>(decision: &'a Decision, pool: &str) -> &'a PoolDecision {
    decision.pools.iter().find(|p| &*p.pool == pool).expect("the pool is in the decision")
}

/// What is written to one pool, if anything.
pub(crate) fn to(decision: &Decision, pool: &str) -> Option<u32> {
    on(decision, pool).write.as_ref().map(|w| w.to.0)
}
