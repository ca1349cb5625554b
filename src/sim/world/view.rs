//! What others can see of the world: the API server's pods, the inventory, the router's counters
//! and the engines' scrapes. Looking changes nothing.
//!
//! Worked number: a pod that got its node at 10 s and starts in 180 s shows `scheduled` 10 000 ms
//! and no `ready`, and refuses a scrape, until 190 s.

use super::World;
use super::fleet::stamp;
use crate::sim::engine::Engine;
use spillgate_core::observation::{
    DevicesSeen, EngineSample, Name, PodSeen, PoolSeen, RouterSeen, Scrape,
};
use spillgate_core::units::{Gpus, Replicas};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a watch of the cluster shows: pools, device pools and the router.
pub type Watched = (BTreeMap<Name, PoolSeen>, BTreeMap<Name, DevicesSeen>, RouterSeen);

impl World {
    /// Everything but the engines' own words. Floors are the caller's.
    #[must_use]
    pub fn watch(&self) -> Watched {
        let fleet = &self.fleet;
        let mut pools: BTreeMap<Name, PoolSeen> = BTreeMap::new();
        for (index, pool) in fleet.pools.iter().enumerate() {
            let seen = PoolSeen {
                spec: Some(pool.spec),
                status: Some(Replicas(fleet.staying(index).count() as u32)),
                version: pool.version,
                last_write: pool.last_write,
                floor: Replicas::ZERO,
                pods: BTreeMap::new(),
            };
            pools.insert(Arc::clone(&pool.config.policy.name), seen);
        }
        for pod in fleet.live.iter().map(|number| &fleet.pods[*number]) {
            let seen = PodSeen {
                created: stamp(pod.created),
                scheduled: pod.scheduled.map(stamp),
                ready: pod.ready.map(stamp),
                deleting: pod.deleting.map(stamp),
                ..PodSeen::default()
            };
            if let Some(pool) = pools.get_mut(&fleet.pools[pod.pool].config.policy.name) {
                pool.pods.insert(Arc::clone(&pod.name), seen);
            }
        }
        let devices = fleet.devices.iter().map(|devices| {
            let seen = DevicesSeen {
                allocatable: Gpus(devices.total),
                used_by_us: Gpus(devices.used),
                used_by_others: Gpus::ZERO,
            };
            (Arc::clone(&devices.name), seen)
        });
        (pools, devices.collect(), self.router_seen())
    }

    fn router_seen(&self) -> RouterSeen {
        RouterSeen {
            requests: Some(self.router.requests),
            external: Some(self.router.external),
            refused: Some(self.router.refused),
            share: self.router.effective,
            ordered: self.router.ordered(),
            external_ready: self.config.external.is_some(),
            spent: self.external_cost().map_or(0, |cost| cost.0),
        }
    }

    /// A scrape of one pod, as the network would answer it.
    #[must_use]
    pub fn scrape(&self, pool: &str, uid: &str) -> (Scrape, Vec<EngineSample>) {
        let fleet = &self.fleet;
        let found =
            fleet.live.iter().map(|number| &fleet.pods[*number]).find(|pod| {
                &*pod.name == uid && &*fleet.pools[pod.pool].config.policy.name == pool
            });
        match found {
            Some(pod) if pod.scheduled.is_none() => (Scrape::Untried, Vec::new()),
            Some(pod) => match pod.engine.as_ref().map(Engine::sample) {
                Some(sample) => (Scrape::Fresh, vec![sample]),
                None => (Scrape::Refused, Vec::new()),
            },
            None => (Scrape::Refused, Vec::new()),
        }
    }
}
