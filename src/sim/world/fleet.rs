//! Pods, nodes and devices: who gets a node, who starts, who drains, and what it costs.
//!
//! Worked number: a replica of 2 devices that got its node at 10 s, served from 190 s, was told to
//! go at 600 s and had finished its work at 630 s is billed 2 * 620 device-seconds.

use super::config::{PoolConfig, WorldConfig, WorldError};
use crate::sim::engine::Engine;
use spillgate_core::observation::{Name, WriteOutcome};
use spillgate_core::units::{Picos, Replicas, Span, Stamp};
use std::sync::Arc;

const PICOS_PER_MILLI: u64 = 1_000_000_000;

pub(super) const fn picos(span: Span) -> Picos {
    Picos(span.0.saturating_mul(PICOS_PER_MILLI))
}

pub(super) const fn stamp(at: Picos) -> Stamp {
    Stamp(at.0 / PICOS_PER_MILLI)
}

/// One pod, from creation until it is gone. Its number is its index in [`Fleet::pods`].
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: Name,
    pub(super) pool: usize,
    pub(super) created: Picos,
    pub(super) scheduled: Option<Picos>,
    pub(super) ready: Option<Picos>,
    pub(super) deleting: Option<Picos>,
    /// Its process, while it serves or drains.
    pub(super) engine: Option<Engine>,
    node: Option<usize>,
}

/// What a pool held so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Devices times picoseconds, from node assignment until the pod was gone.
    pub device_picos: u128,
    /// Replicas with a node times picoseconds.
    pub replica_picos: u128,
    /// Most replicas with a node at one time.
    pub most: Replicas,
}

/// One pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) config: PoolConfig,
    pub(super) spec: Replicas,
    pub(super) version: u64,
    pub(super) last_write: Option<WriteOutcome>,
    devices: usize,
    named: u32,
    placed: u32,
    usage: PoolUsage,
    since: Picos,
}

/// One device pool.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    pub(super) name: Name,
    pub(super) total: u32,
    pub(super) used: u32,
    /// Free devices by node.
    free: Vec<u32>,
}

/// All pods and what they stand on.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) pools: Vec<Pool>,
    pub(super) devices: Vec<Devices>,
    pub(super) pods: Vec<Pod>,
    /// Pods that are not gone, oldest first.
    pub(super) live: Vec<usize>,
    drain_timeout: Picos,
}

/// A moment in a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Ready(usize),
    DrainedTooLong(usize),
}

impl Fleet {
    pub(super) fn new(config: &WorldConfig) -> Result<Self, WorldError> {
        let node = config.node_devices.max(1);
        let devices: Vec<Devices> = config
            .devices
            .iter()
            .map(|pool| {
                let total = pool.max_devices.0;
                let mut free = vec![node; (total / node) as usize];
                if total % node > 0 {
                    free.push(total % node);
                }
                Devices { name: Arc::clone(&pool.name), total, used: 0, free }
            })
            .collect();
        let mut pools: Vec<Pool> = Vec::with_capacity(config.pools.len());
        for pool in &config.pools {
            let PoolConfig { policy, initial, .. } = pool;
            if pools.iter().any(|other| other.config.policy.name == policy.name) {
                return Err(WorldError::TwicePool { pool: Arc::clone(&policy.name) });
            }
            if policy.gpus_each.0 > node {
                let (pool, gpus) = (Arc::clone(&policy.name), policy.gpus_each.0);
                return Err(WorldError::LargerThanNode { pool, gpus, node });
            }
            let devices =
                devices.iter().position(|d| d.name == policy.gpu_pool).ok_or_else(|| {
                    let (pool, devices) = (Arc::clone(&policy.name), Arc::clone(&policy.gpu_pool));
                    WorldError::NoSuchDevices { pool, devices }
                })?;
            pools.push(Pool {
                config: pool.clone(),
                spec: *initial,
                version: 1,
                last_write: None,
                devices,
                named: 0,
                placed: 0,
                usage: PoolUsage::default(),
                since: Picos::ZERO,
            });
        }
        let drain_timeout = picos(config.drain_timeout);
        Ok(Self { pools, devices, pods: Vec::new(), live: Vec::new(), drain_timeout })
    }

    /// Pods of a pool that are not on their way out: what `status.replicas` counts.
    pub(super) fn staying(&self, pool: usize) -> impl DoubleEndedIterator<Item = usize> {
        self.live
            .iter()
            .copied()
            .filter(move |pod| self.pods[*pod].pool == pool && self.pods[*pod].deleting.is_none())
    }

    /// A new pod, without a node yet.
    pub(super) fn create(&mut self, pool: usize, now: Picos) -> usize {
        let owner = &mut self.pools[pool];
        owner.named += 1;
        let name = format!("{}-{:04}", owner.config.policy.name, owner.named);
        self.pods.push(Pod {
            name: name.into(),
            pool,
            created: now,
            scheduled: None,
            ready: None,
            deleting: None,
            engine: None,
            node: None,
        });
        self.live.push(self.pods.len() - 1);
        self.pods.len() - 1
    }

    /// Gives nodes to whoever waits for one and fits, oldest first.
    pub(super) fn place_pending(&mut self, now: Picos) {
        for at in 0..self.live.len() {
            let pod = self.live[at];
            if self.pods[pod].scheduled.is_none() {
                self.place(pod, now);
            }
        }
    }

    /// The fullest node that still has room, so that large replicas find one later.
    fn place(&mut self, pod: usize, now: Picos) {
        let pool = self.pods[pod].pool;
        let each = self.pools[pool].config.policy.gpus_each.0;
        let devices = &mut self.devices[self.pools[pool].devices];
        if each > 0 {
            let rooms = devices.free.iter().enumerate().filter(|(_, free)| **free >= each);
            let Some((node, _)) = rooms.min_by_key(|(node, free)| (**free, *node)) else { return };
            devices.free[node] -= each;
            devices.used += each;
            self.pods[pod].node = Some(node);
        }
        self.pods[pod].scheduled = Some(now);
        self.bill(pool, now);
        let owner = &mut self.pools[pool];
        owner.placed += 1;
        owner.usage.most = owner.usage.most.max(Replicas(owner.placed));
    }

    /// A pod is gone; its devices are free.
    pub(super) fn remove(&mut self, pod: usize, now: Picos) {
        self.live.retain(|other| *other != pod);
        self.pods[pod].engine = None;
        if self.pods[pod].scheduled.is_none() {
            return;
        }
        let pool = self.pods[pod].pool;
        self.bill(pool, now);
        self.pools[pool].placed -= 1;
        if let Some(node) = self.pods[pod].node {
            let each = self.pools[pool].config.policy.gpus_each.0;
            let devices = &mut self.devices[self.pools[pool].devices];
            devices.free[node] += each;
            devices.used -= each;
        }
        self.place_pending(now);
    }

    fn bill(&mut self, pool: usize, now: Picos) {
        self.pools[pool].usage = self.usage(pool, now);
        self.pools[pool].since = now;
    }

    /// What a pool held up to `until`.
    pub(super) fn usage(&self, pool: usize, until: Picos) -> PoolUsage {
        let Pool { usage, since, placed, config, .. } = &self.pools[pool];
        let replicas = u128::from(*placed) * u128::from(until.less(*since).0);
        PoolUsage {
            device_picos: usage.device_picos + replicas * u128::from(config.policy.gpus_each.0),
            replica_picos: usage.replica_picos + replicas,
            most: usage.most,
        }
    }

    /// The next pod to become ready or to be cut off, the older pod first.
    pub(super) fn next_turn(&self) -> Option<(Picos, Turn)> {
        let turns = self.live.iter().filter_map(|&number| {
            let pod = &self.pods[number];
            match (pod.scheduled, pod.ready, pod.deleting) {
                (_, _, Some(since)) => {
                    Some((since + self.drain_timeout, Turn::DrainedTooLong(number)))
                }
                (Some(since), None, None) => {
                    let start = picos(self.pools[pod.pool].config.start_time);
                    Some((since + start, Turn::Ready(number)))
                }
                _ => None,
            }
        });
        turns.min_by_key(|(at, _)| *at)
    }

    /// Who goes when a pool must shrink by one: never-started pods first (without a node, then
    /// starting, youngest first), then the named one, then the least busy, then by name.
    pub(super) fn leaver(&self, pool: usize, named: Option<&Name>) -> Option<usize> {
        let pods = &self.pods;
        let unplaced = self.staying(pool).rev().find(|p| pods[*p].scheduled.is_none());
        let starting = || self.staying(pool).rev().find(|p| pods[*p].ready.is_none());
        let victim = || self.staying(pool).find(|p| Some(&pods[*p].name) == named);
        let busy = |pod: &usize| pods[*pod].engine.as_ref().map_or(0, Engine::in_flight);
        let calmest =
            || self.staying(pool).min_by_key(|pod| (busy(pod), Arc::clone(&pods[*pod].name)));
        unplaced.or_else(starting).or_else(victim).or_else(calmest)
    }
}
