//! One simulated replica: a pure state machine that batches as vLLM V1 does.
//!
//! A step gives each decoding sequence one token, goes on with the prompt that the last step cut
//! off, and admits from the queue, first come first served, while the token budget, the sequence
//! limit and the KV cache allow. Its length is the step model's; tokens leave at its end, and what
//! arrives during it waits for that end. Time is integer picoseconds, and nothing depends on how
//! often anybody looks: `advance_to` in one jump or a thousand gives the same bits.
//!
//! A step costs O(1), however large the batch: batch size, KV and step number are scalars, and a
//! sequence that made its first token in step s is known to end in step s + output - 1.
//!
//! Worked number: with a = 13.6 ms and d = 0.046 ms a lone prompt of 1 000 tokens takes one step of
//! 13.6 + 46 = 59.6 ms (and b for one sequence), and so has its first token.

mod metrics;
#[cfg(test)]
mod reference;
mod slab;
mod step;
#[cfg(test)]
mod tests;

pub use slab::Ticket;

use metrics::{Gauges, Metrics};
use slab::{List, Sequence, Slab, State};
use spillgate_core::model::Profile;
use spillgate_core::observation::EngineSample;
use spillgate_core::policy::Role;
use spillgate_core::units::Picos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A request as an engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The caller's number for it; events carry it.
    pub request: u32,
    /// Prompt tokens; zero counts as one.
    pub input: u32,
    /// Tokens to generate; zero counts as one, the prefill's own.
    pub output: u32,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its first token left.
    FirstToken {
        /// Which.
        request: u32,
        /// When.
        at: Picos,
    },
    /// A prefill engine is done with it and holds its KV until [`Engine::release`].
    Prefilled {
        /// Which.
        request: u32,
        /// When.
        at: Picos,
    },
    /// A decode engine has its KV: the prefill engine may let go of it.
    Pulled {
        /// Which.
        request: u32,
        /// When.
        at: Picos,
    },
    /// Its last token left.
    Finished {
        /// Which.
        request: u32,
        /// Its first token.
        first: Picos,
        /// When.
        at: Picos,
    },
}

/// Why an engine did not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not even an empty engine could hold it.
    #[error(
        "request {request} needs {need} tokens of KV cache and the engine has {capacity}: send it to a larger replica"
    )]
    TooLarge {
        /// Which.
        request: u32,
        /// KV at its end.
        need: u64,
        /// KV of the engine.
        capacity: u64,
    },
    /// The engine is on its way out.
    #[error("request {request} came to an engine that is draining: route it elsewhere")]
    Draining {
        /// Which.
        request: u32,
    },
}

/// What the engine does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing, until somebody comes.
    Idle,
    /// A step begins then, with whoever is there by then.
    Due(Picos),
    /// A step is running.
    Step { began: Picos, ends: Picos },
}

/// One replica.
#[derive(Clone, Debug)]
pub struct Engine {
    role: Role,
    profile: Arc<Profile>,
    epoch: u64,
    capacity: u64,
    max_sequences: u32,
    token_budget: u64,
    draining: bool,
    phase: Phase,
    sequences: Slab,
    /// Without KV, in order of service.
    queue: List,
    /// With KV reserved, in order of admission.
    admitted: List,
    /// The one prompt that the token budget cut off.
    partial: Option<u32>,
    /// Pulled, in order; they join the next step. (slot, admission)
    ready: Vec<(u32, u64)>,
    /// Pulls on their way; the top is never stale. (time, admission, slot)
    pulls: BinaryHeap<Reverse<(Picos, u64, u32)>>,
    /// Last steps of decoding sequences; may be stale. (step, admission, slot)
    endings: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Whose first token, or first after a preemption, this step makes. (slot, admission)
    firsts: Vec<(u32, u64)>,
    /// Number of the running step, or else of the last one.
    step: u64,
    admissions: u64,
    decoding: u64,
    /// Of the decoding ones, those with a token from the step before.
    steady: u64,
    /// KV that the decoding sequences attend to.
    kv_decoding: u64,
    kv_used: u64,
    /// Admitted, but their KV is not here or not yet in a step.
    deferred: u64,
    held: u64,
    /// KV that the queue will ask for.
    waiting_kv: u64,
    /// Prompt tokens queued or being computed.
    backlog: u64,
    metrics: Metrics,
}

impl Engine {
    /// An empty engine. `epoch` is its process start in milliseconds, as its scrapes say it.
    #[must_use]
    pub fn new(role: Role, profile: Arc<Profile>, epoch: u64) -> Self {
        let limits = profile.limits;
        let token_budget = limits.token_budget.max(1);
        Self {
            role,
            epoch,
            capacity: limits.kv_capacity.0,
            // Each running sequence takes one token of the budget.
            max_sequences: limits.max_sequences.clamp(1, token_budget),
            token_budget: u64::from(token_budget),
            profile,
            draining: false,
            phase: Phase::Idle,
            sequences: Slab::default(),
            queue: List::default(),
            admitted: List::default(),
            partial: None,
            ready: Vec::new(),
            pulls: BinaryHeap::new(),
            endings: BinaryHeap::new(),
            firsts: Vec::new(),
            step: 0,
            admissions: 0,
            decoding: 0,
            steady: 0,
            kv_decoding: 0,
            kv_used: 0,
            deferred: 0,
            held: 0,
            waiting_kv: 0,
            backlog: 0,
            metrics: Metrics::default(),
        }
    }

    /// Takes a request at `now`. Everything before `now` must have been fired: see
    /// [`Engine::advance_to`].
    pub fn submit(&mut self, job: Job, now: Picos) -> Result<Ticket, Refused> {
        debug_assert!(self.next_event().is_none_or(|at| at >= now), "advance to {now} first");
        let Job { request, input, output } = job;
        let (input, tokens) = (input.max(1), output.max(1));
        if self.draining {
            return Err(Refused::Draining { request });
        }
        let generates = matches!(self.role, Role::Mixed | Role::Decode);
        // The last token's KV is never written.
        let need = u64::from(input) + if generates { u64::from(tokens) - 1 } else { 0 };
        if need > self.capacity || need > u64::from(u32::MAX) {
            return Err(Refused::TooLarge { request, need, capacity: self.capacity });
        }
        let (slot, ticket) = self.sequences.insert(Sequence {
            request,
            input,
            tokens,
            need: input,
            computes: self.role != Role::Decode,
            state: State::Waiting,
            arrived: now,
            ..Sequence::default()
        });
        self.sequences.push_back(&mut self.queue, slot);
        self.waiting_kv += u64::from(input);
        if self.role != Role::Decode {
            self.backlog += u64::from(input);
        }
        self.wake(now);
        Ok(ticket)
    }

    /// The client gave up, or nobody wants the rest: takes the request out at `now`. False if it
    /// was not there any more.
    pub fn abort(&mut self, ticket: Ticket, now: Picos) -> bool {
        let Some(slot) = self.sequences.find(ticket) else { return false };
        let Sequence { state, need, computes, .. } = *self.sequences.at(slot);
        if state == State::Held {
            return self.release(ticket, now);
        }
        if state == State::Waiting {
            self.sequences.unlink(&mut self.queue, slot);
            self.waiting_kv -= u64::from(need);
        } else {
            self.evict(slot);
        }
        if computes && matches!(state, State::Waiting | State::Prefilling) {
            self.backlog -= u64::from(need);
        }
        self.sequences.remove(slot);
        self.drop_stale_pulls();
        self.metrics.aborted += 1;
        self.wake_queue(now);
        true
    }

    /// Frees the KV of a prefilled request that was pulled, or that nobody will pull. False if it
    /// is not held here.
    pub fn release(&mut self, ticket: Ticket, now: Picos) -> bool {
        let Some(slot) = self.sequences.find(ticket) else { return false };
        let Sequence { state, need, .. } = *self.sequences.at(slot);
        if state != State::Held {
            return false;
        }
        self.held -= 1;
        self.kv_used -= u64::from(need);
        self.sequences.remove(slot);
        self.wake_queue(now);
        true
    }

    /// Takes no more requests; finishes those that are here.
    pub const fn drain(&mut self) {
        self.draining = true;
    }

    /// Nobody is here: nothing queued, running, on its way or held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sequences.len() == 0
    }

    /// When something happens next, if nobody comes before.
    #[must_use]
    pub fn next_event(&self) -> Option<Picos> {
        let pull = self.pulls.peek().map(|Reverse((at, ..))| *at);
        match self.phase {
            Phase::Idle => pull,
            Phase::Due(at) | Phase::Step { ends: at, .. } => {
                Some(pull.map_or(at, |pull| pull.min(at)))
            }
        }
    }

    /// Lets the one next thing happen, and says what became of whom. A pull that arrives as a step
    /// ends joins the next one.
    pub fn fire(&mut self, events: &mut Vec<Event>) {
        let Some(at) = self.next_event() else { return };
        if self.pulls.peek().is_some_and(|Reverse((pull, ..))| *pull == at) {
            self.pulled(events);
        } else if let Phase::Step { began, ends } = self.phase {
            self.end(began, ends, events);
            self.begin(ends);
        } else {
            self.begin(at);
        }
    }

    /// Lets everything happen that happens before `to`, not at it: who comes at `to` is there in
    /// time for a step that begins then.
    pub fn advance_to(&mut self, to: Picos, events: &mut Vec<Event>) {
        while self.next_event().is_some_and(|at| at < to) {
            self.fire(events);
        }
    }

    /// What a scrape shows now. Changes nothing.
    #[must_use]
    pub fn sample(&self) -> EngineSample {
        self.metrics.sample(self.epoch, self.capacity)
    }

    /// Prompt tokens queued or being computed: what a router balances prefill by.
    #[must_use]
    pub const fn backlog(&self) -> u64 {
        self.backlog
    }

    /// KV reserved and asked for by the queue: what a router balances decode by.
    #[must_use]
    pub const fn kv_load(&self) -> u64 {
        self.kv_used + self.waiting_kv
    }

    /// Requests that are not done here, held KV not counted.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.sequences.len() as u64 - self.held
    }

    /// Numbers of all requests that are here, held ones included.
    pub fn requests(&self) -> impl Iterator<Item = u32> {
        self.sequences.iter().map(|sequence| sequence.request)
    }

    fn wake(&mut self, now: Picos) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Due(now);
        }
    }

    /// Room was made: the queue may move. With nobody queued no step follows, and the gauges stay
    /// as they were.
    fn wake_queue(&mut self, now: Picos) {
        if !self.queue.is_empty() {
            self.wake(now);
        }
    }

    fn drop_stale_pulls(&mut self) {
        while let Some(Reverse((_, admission, slot))) = self.pulls.peek() {
            if self.sequences.at(*slot).admission == *admission {
                break;
            }
            self.pulls.pop();
        }
    }

    fn publish(&mut self) {
        let deferred = self.deferred;
        self.metrics.gauges = Gauges {
            waiting: u64::from(self.queue.len()) + deferred,
            deferred,
            running: u64::from(self.admitted.len()) - deferred,
            kv_used: self.kv_used,
        };
    }
}
