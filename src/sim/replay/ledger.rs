//! What was decided over a run: the hash of all decisions, the changes with their reasons, and how
//! often each pool moved.
//!
//! The hash is SHA-256 over one canonical JSON line a tick: time, writes, share and reason codes,
//! integers and fixed words only.
//!
//! Worked number: a pool written 3, 5, 4, 6 has 2 ups, 1 down and 2 reversals.

use crate::driver::flight::hex;
use serde::Serialize;
use sha2::{Digest, Sha256};
use spillgate_core::audit::Broken;
use spillgate_core::decision::{Decision, PoolDecision};
use spillgate_core::policy::Policy;
use spillgate_core::reason::Reason;
use spillgate_core::units::{Permille, Replicas, Stamp};

/// Breaches that are kept in full.
const BREACHES_KEPT: usize = 100;

/// The record of a run's decisions.
#[derive(Debug)]
pub struct Ledger {
    hasher: Sha256,
    line: Vec<u8>,
    last_arrival: Stamp,
    share: Permille,
    ticks: u64,
    /// Changes in order of time.
    pub changes: Vec<Change>,
    /// Moves by pool, in the policy's order, until the last arrival.
    pub moves: Vec<PoolMoves>,
    /// From nothing ordered outside to something.
    pub opens: u64,
    /// And back.
    pub closes: u64,
    /// Rules that decisions broke.
    pub broken: u64,
    /// The first of them.
    pub breaches: Vec<(Stamp, Broken)>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Stamp,
    /// What changes.
    pub what: String,
    /// Why.
    pub why: String,
}

/// How a pool moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolMoves {
    /// Writes that grew it.
    pub ups: u64,
    /// Writes that shrank it.
    pub downs: u64,
    /// Changes of direction.
    pub reversals: u64,
    last_up: Option<bool>,
}

/// The canonical line of one decision.
#[derive(Serialize)]
struct Canonical<'a> {
    tick: u64,
    writes: Vec<(&'a str, u32, Option<&'a str>)>,
    share: Option<u32>,
    reasons: Vec<&'static str>,
}

impl Ledger {
    /// An empty ledger. Moves count until `last_arrival`.
    #[must_use]
    pub fn new(policy: &Policy, last_arrival: Stamp) -> Self {
        Self {
            hasher: Sha256::new(),
            line: Vec::new(),
            last_arrival,
            share: Permille::ZERO,
            ticks: 0,
            changes: Vec::new(),
            moves: vec![PoolMoves::default(); policy.pools.len()],
            opens: 0,
            closes: 0,
            broken: 0,
            breaches: Vec::new(),
        }
    }

    /// Takes a decision in.
    pub fn note(&mut self, decision: &Decision, broken: &[Broken]) {
        self.hash(decision);
        self.ticks += 1;
        self.broken += broken.len() as u64;
        for breach in broken.iter().take(BREACHES_KEPT.saturating_sub(self.breaches.len())) {
            self.breaches.push((decision.at, breach.clone()));
        }
        for (pool, moves) in decision.pools.iter().zip(&mut self.moves) {
            let Some(write) = &pool.write else { continue };
            if decision.at <= self.last_arrival {
                moves.add(write.from, write.to);
            }
            self.changes.push(Change {
                at: decision.at,
                what: format!("{} {} -> {}", pool.pool, write.from, write.to),
                why: why(pool),
            });
        }
        if let Some(share) = decision.route {
            self.note_share(decision, share);
        }
    }

    fn note_share(&mut self, decision: &Decision, share: Permille) {
        let before = std::mem::replace(&mut self.share, share);
        let verb = match (before, share) {
            (Permille(0), Permille(0)) => "gate stays shut",
            (Permille(0), _) => {
                self.opens += 1;
                "gate opens"
            }
            (_, Permille(0)) => {
                self.closes += 1;
                "gate closes"
            }
            _ => "gate moves",
        };
        let what = format!(
            "{verb}: {}.{} % -> {}.{} %",
            before.0 / 10,
            before.0 % 10,
            share.0 / 10,
            share.0 % 10
        );
        self.changes.push(Change { at: decision.at, what, why: join(&decision.gate) });
    }

    fn hash(&mut self, decision: &Decision) {
        let writes = decision.pools.iter().filter_map(|pool| {
            let write = pool.write.as_ref()?;
            Some((&*pool.pool, write.to.0, write.victim.as_deref()))
        });
        let pools = decision.pools.iter().flat_map(|pool| &pool.reasons);
        let canonical = Canonical {
            tick: decision.at.0,
            writes: writes.collect(),
            share: decision.route.map(|share| share.0),
            reasons: pools.chain(&decision.gate).map(Reason::code).collect(),
        };
        self.line.clear();
        // Writing into a vector cannot fail, and there is no map with other keys than strings.
        let _ = serde_json::to_writer(&mut self.line, &canonical);
        self.line.push(b'\n');
        self.hasher.update(&self.line);
    }

    /// SHA-256 over all decisions so far, in hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex(&self.hasher.clone().finalize())
    }

    /// The first rule that was broken, in words.
    #[must_use]
    pub fn first_breach(&self, policy: &Policy) -> Option<String> {
        let (at, breach) = self.breaches.first()?;
        let pool = breach.pool.and_then(|i| policy.pools.get(i)).map_or("the gate", |p| &p.name);
        let Broken { rule, what, .. } = breach;
        Some(format!("at {} ms, {pool}, rule {rule}: {what}", at.0))
    }

    /// Decisions taken in.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }
}

impl PoolMoves {
    fn add(&mut self, from: Replicas, to: Replicas) {
        let up = to > from;
        if up {
            self.ups += 1;
        } else {
            self.downs += 1;
        }
        if self.last_up.is_some_and(|before| before != up) {
            self.reversals += 1;
        }
        self.last_up = Some(up);
    }
}

/// What led to a write, without the move itself, which the row names already.
fn why(pool: &PoolDecision) -> String {
    let said: Vec<&Reason> =
        pool.reasons.iter().filter(|r| !matches!(r, Reason::Up { .. })).collect();
    said.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn join(reasons: &[Reason]) -> String {
    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
