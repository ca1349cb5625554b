//! One round of scrapes: what was known when it opened, completed by what pods answer.
//!
//! Worked number: with 12 ready pods a round is complete at the 12th answer; a second answer of
//! the same pod, or an answer to the round before, changes nothing.

use super::{Effect, Watched};
use spillgate_core::observation::{EngineSample, Name, Observation, Scrape};
use spillgate_core::units::Stamp;
use std::collections::BTreeSet;

/// An open round.
#[derive(Debug)]
pub(super) struct Round {
    opened: Stamp,
    seen: Vec<Observation>,
    /// (policy, pod) that have not answered yet.
    missing: BTreeSet<(usize, Name)>,
}

impl Round {
    /// Opens a round and asks for every pod that should answer: ready ones, also while they drain.
    pub(super) fn open(now: Stamp, watched: Vec<Watched>) -> (Self, Vec<Effect>) {
        let mut scrapes = Vec::new();
        let mut missing = BTreeSet::new();
        let mut seen = Vec::with_capacity(watched.len());
        for (policy, watched) in watched.into_iter().enumerate() {
            let Watched { mut pools, devices, router } = watched;
            for (name, pool) in &mut pools {
                for (uid, pod) in &mut pool.pods {
                    pod.engines.clear();
                    pod.scrape = Scrape::Untried;
                    if pod.ready.is_some() && missing.insert((policy, uid.clone())) {
                        // Until it answers it has timed out.
                        pod.scrape = Scrape::Timeout;
                        let (pool, pod) = (name.clone(), uid.clone());
                        scrapes.push(Effect::Scrape { policy, pool, pod, asked: now });
                    }
                }
            }
            seen.push(Observation { now, pools, router, devices });
        }
        (Self { opened: now, seen, missing }, scrapes)
    }

    /// Takes an answer; one that nobody waits for is dropped.
    pub(super) fn answer(
        &mut self,
        policy: usize,
        pool: &Name,
        pod: &Name,
        scrape: Scrape,
        engines: Vec<EngineSample>,
    ) {
        if !self.missing.remove(&(policy, pod.clone())) {
            return;
        }
        let pools = self.seen.get_mut(policy).map(|o| &mut o.pools);
        let seen = pools.and_then(|p| p.get_mut(pool)).and_then(|p| p.pods.get_mut(pod));
        if let Some(seen) = seen {
            seen.scrape = scrape;
            if scrape == Scrape::Fresh {
                seen.engines = engines;
            }
        }
    }

    pub(super) const fn opened(&self) -> Stamp {
        self.opened
    }

    pub(super) fn complete(&self) -> bool {
        self.missing.is_empty()
    }

    pub(super) fn into_observations(self) -> Vec<Observation> {
        self.seen
    }
}
