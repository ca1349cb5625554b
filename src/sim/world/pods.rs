//! What a write to a pool sets going: pods come, serve, drain and go.
//!
//! Worked number: a pool of five with one pod Pending and one starting, written down to two, loses
//! the Pending one, the starting one and the least busy of the three that serve.

use super::fleet::{Pool, stamp};
use super::{NEVER, World};
use crate::sim::engine::Engine;
use crate::sim::request::Failure;
use spillgate_core::observation::{Name, WriteOutcome};
use spillgate_core::units::Replicas;
use std::sync::Arc;

impl World {
    /// A pod is ready: its engine starts and the router knows it.
    pub(super) fn serve(&mut self, pod: usize) {
        let now = self.now;
        let config = &self.fleet.pools[self.fleet.pods[pod].pool].config;
        let (role, profile) = (config.policy.role, Arc::clone(&config.profile));
        let started = self.fleet.pods[pod].scheduled.unwrap_or(now);
        // One more, since zero means that the engine does not say it.
        let engine = Engine::new(role, profile, stamp(started).0 + 1);
        self.fleet.pods[pod].ready = Some(now);
        self.fleet.pods[pod].engine = Some(engine);
        let index = self.engines.partition_point(|other| *other < pod);
        self.engines.insert(index, pod);
        self.moves.insert(index, NEVER);
        self.router.add(&self.fleet, pod);
    }

    /// The drain took too long: what is left dies with its pod.
    pub(super) fn cut_off(&mut self, pod: usize) {
        let left: Vec<u32> = match &self.fleet.pods[pod].engine {
            Some(engine) => engine.requests().collect(),
            None => Vec::new(),
        };
        for request in left {
            self.fail(request as usize, Failure::PodDied);
        }
        self.remove(pod);
    }

    pub(super) fn remove(&mut self, pod: usize) {
        if let Ok(index) = self.engines.binary_search(&pod) {
            self.engines.remove(index);
            self.moves.remove(index);
        }
        // A pod that failed its last request may have gone with it.
        if self.fleet.live.contains(&pod) {
            self.fleet.remove(pod, self.now);
        }
        self.turn = self.fleet.next_turn();
    }

    /// Writes a pool's replicas, if its version is still the one that was read.
    pub fn write(
        &mut self,
        pool: &str,
        to: Replicas,
        if_version: u64,
        victim: Option<&Name>,
    ) -> WriteOutcome {
        let named = |p: &Pool| &*p.config.policy.name == pool;
        let Some(pool) = self.fleet.pools.iter().position(named) else {
            return WriteOutcome::Failed;
        };
        let owner = &mut self.fleet.pools[pool];
        if owner.version != if_version {
            owner.last_write = Some(WriteOutcome::Conflict);
            return WriteOutcome::Conflict;
        }
        owner.version += 1;
        owner.spec = to;
        owner.last_write = Some(WriteOutcome::Applied);
        let present = Replicas(self.fleet.staying(pool).count() as u32);
        for _ in 0..to.less(present).0 {
            self.fleet.create(pool, self.now);
        }
        self.fleet.place_pending(self.now);
        for _ in 0..present.less(to).0 {
            if let Some(pod) = self.fleet.leaver(pool, victim) {
                self.dismiss(pod);
            }
        }
        self.turn = self.fleet.next_turn();
        WriteOutcome::Applied
    }

    /// A pod is told to go: at once if it never served, else when its work is done.
    fn dismiss(&mut self, pod: usize) {
        self.fleet.pods[pod].deleting = Some(self.now);
        self.router.take_out(&self.fleet, pod);
        match &mut self.fleet.pods[pod].engine {
            Some(engine) => {
                engine.drain();
                self.settle(pod);
            }
            None => self.remove(pod),
        }
    }
}
