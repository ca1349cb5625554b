//! A fleet, its devices, a router and a trace, in virtual time.
//!
//! Events happen in the order of (time, class, number): at one moment the router's share changes
//! first, then pods become ready or are cut off, then clients give up, then requests arrive, then
//! engines move, the older pod first. Nothing else decides, so the same inputs give the same
//! outcome however often somebody looks.
//!
//! A request that the pool serves goes to a prefill replica and then, with its KV, to a decode
//! replica that is chosen when the prompt is done; or to a mixed replica for both.
//!
//! Worked number: one hour of traffic at 108 requests a second on seven prefill and three decode
//! replicas is about 390 000 requests and 700 000 steps, and takes a fraction of a second.

mod config;
mod fleet;
mod pods;
mod router;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
mod view;

pub use config::{External, PoolConfig, Routing, WorldConfig, WorldError};
pub use fleet::PoolUsage;
pub use view::Watched;

use crate::sim::engine::{Event, Job, Ticket};
use crate::sim::request::{Failure, Outcome, Request};
use fleet::{Fleet, Turn, picos};
use router::{Leg, Router};
use spillgate_core::units::{MicroUsd, Permille, Picos};
use std::sync::Arc;

const NEVER: Picos = Picos::MAX;

/// Where a request is: the replica that works on it, and the one that holds its KV.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: Option<(u32, Ticket)>,
    held: Option<(u32, Ticket)>,
}

/// What happens next, in the order of ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    Share,
    Turn(Turn),
    GiveUp,
    Arrival,
    Engine(usize),
}

/// The simulated world.
#[derive(Clone, Debug)]
pub struct World {
    config: WorldConfig,
    now: Picos,
    requests: Arc<[Request]>,
    outcomes: Vec<Outcome>,
    places: Vec<Place>,
    /// The next request to arrive.
    arriving: usize,
    /// No request before this one is open: they give up in order of arrival.
    waiting_longest: usize,
    open: usize,
    last_completion: Picos,
    fleet: Fleet,
    router: Router,
    /// Pods with an engine, oldest first, and when each moves next.
    engines: Vec<usize>,
    moves: Vec<Picos>,
    turn: Option<(Picos, Turn)>,
    events: Vec<Event>,
}

impl World {
    /// A world at the first moment of a trace, its initial replicas serving. `requests` must be in
    /// order of arrival.
    pub fn new(
        config: WorldConfig,
        requests: impl Into<Arc<[Request]>>,
        seed: u64,
    ) -> Result<Self, WorldError> {
        let requests: Arc<[Request]> = requests.into();
        if requests.len() >= u32::MAX as usize {
            return Err(WorldError::TooMany { requests: requests.len() });
        }
        if let Some(before) = requests.windows(2).position(|pair| pair[1].at < pair[0].at) {
            return Err(WorldError::OutOfOrder { index: before + 1 });
        }
        let fleet = Fleet::new(&config)?;
        let router = Router { routing: config.routing, seed, ..Router::default() };
        let mut world = Self {
            config,
            now: Picos::ZERO,
            outcomes: vec![Outcome::Open; requests.len()],
            places: vec![Place::default(); requests.len()],
            requests,
            arriving: 0,
            waiting_longest: 0,
            open: 0,
            last_completion: Picos::ZERO,
            fleet,
            router,
            engines: Vec::new(),
            moves: Vec::new(),
            turn: None,
            events: Vec::new(),
        };
        for pool in 0..world.fleet.pools.len() {
            for _ in 0..world.fleet.pools[pool].spec.0 {
                world.fleet.create(pool, Picos::ZERO);
            }
        }
        world.fleet.place_pending(Picos::ZERO);
        for pod in world.fleet.live.clone() {
            if world.fleet.pods[pod].scheduled.is_some() {
                world.serve(pod);
            }
        }
        world.turn = world.fleet.next_turn();
        Ok(world)
    }

    /// Lets everything happen up to and at `to`.
    pub fn run_until(&mut self, to: Picos) {
        loop {
            let (at, happening) = self.next();
            if at > to || at == NEVER {
                break;
            }
            self.now = at;
            match happening {
                Happening::Share => {
                    if let Some((_, share)) = self.router.commanded.pop_front() {
                        self.router.effective = share;
                    }
                }
                Happening::Turn(Turn::Ready(pod)) => {
                    self.serve(pod);
                    self.turn = self.fleet.next_turn();
                }
                Happening::Turn(Turn::DrainedTooLong(pod)) => self.cut_off(pod),
                Happening::GiveUp => self.fail(self.waiting_longest, Failure::TimedOut),
                Happening::Arrival => self.arrive(),
                Happening::Engine(index) => self.step(index),
            }
        }
        self.now = self.now.max(to);
    }

    fn next(&mut self) -> (Picos, Happening) {
        let mut next = (NEVER, Happening::Arrival);
        if let Some((at, _)) = self.router.commanded.front() {
            next = (*at, Happening::Share);
        }
        if let Some((at, turn)) = self.turn
            && at < next.0
        {
            next = (at, Happening::Turn(turn));
        }
        let limit = self.arriving.min(self.outcomes.len());
        while self.waiting_longest < limit && self.outcomes[self.waiting_longest] != Outcome::Open {
            self.waiting_longest += 1;
        }
        if self.waiting_longest < limit {
            let patience = picos(self.config.client_timeout);
            let at = self.requests[self.waiting_longest].at + patience;
            if at < next.0 {
                next = (at, Happening::GiveUp);
            }
        }
        if let Some(request) = self.requests.get(self.arriving)
            && request.at < next.0
        {
            next = (request.at, Happening::Arrival);
        }
        for (index, at) in self.moves.iter().enumerate() {
            if *at < next.0 {
                next = (*at, Happening::Engine(index));
            }
        }
        next
    }

    /// One engine moves, and what follows from it.
    fn step(&mut self, index: usize) {
        let pod = self.engines[index];
        let mut events = std::mem::take(&mut self.events);
        if let Some(engine) = &mut self.fleet.pods[pod].engine {
            engine.fire(&mut events);
        }
        for event in events.drain(..) {
            match event {
                Event::FirstToken { .. } => {}
                Event::Prefilled { request, .. } => self.hand_over(request as usize),
                Event::Pulled { request, .. } => self.let_go(request as usize),
                Event::Finished { request, first, at } => {
                    let request = request as usize;
                    self.outcomes[request] = Outcome::Local { first, last: at };
                    self.places[request] = Place::default();
                    self.open -= 1;
                    self.last_completion = self.last_completion.max(at);
                }
            }
        }
        self.events = events;
        self.settle(pod);
    }

    /// Notes when a pod moves next; a drained one that has nothing left is gone.
    fn settle(&mut self, pod: usize) {
        let Ok(index) = self.engines.binary_search(&pod) else { return };
        let Some(engine) = &self.fleet.pods[pod].engine else { return };
        self.moves[index] = engine.next_event().unwrap_or(NEVER);
        if self.fleet.pods[pod].deleting.is_some() && engine.is_idle() {
            self.remove(pod);
        }
    }

    fn arrive(&mut self) {
        let index = self.arriving;
        let request = self.requests[index];
        self.arriving += 1;
        self.router.requests += 1;
        self.open += 1;
        let external = self.config.external.filter(|_| self.router.effective > Permille::ZERO);
        if external.is_some() && self.router.spills(index) {
            return self.spill(index);
        }
        match self.router.pick(&self.fleet, Leg::Entry) {
            Some(pod) => self.submit(index, pod),
            None if external.is_some() => self.spill(index),
            None => {
                self.router.refused += 1;
                self.fail(index, Failure::Refused);
            }
        }
        debug_assert!(self.now == request.at);
    }

    fn spill(&mut self, index: usize) {
        let Some(external) = &self.config.external else { return };
        let outcome = self.router.spill(external, &self.requests[index]);
        if let Outcome::External { last, .. } = outcome {
            self.last_completion = self.last_completion.max(last);
        }
        self.outcomes[index] = outcome;
        self.open -= 1;
    }

    fn submit(&mut self, index: usize, pod: usize) {
        let Request { input, output, .. } = self.requests[index];
        let job = Job { request: index as u32, input, output };
        let now = self.now;
        match self.fleet.pods[pod].engine.as_mut().map(|engine| engine.submit(job, now)) {
            Some(Ok(ticket)) => {
                self.places[index].at = Some((pod as u32, ticket));
                self.settle(pod);
            }
            _ => self.fail(index, Failure::Refused),
        }
    }

    /// A prompt is computed: on to a decode replica, with its KV held until that has pulled it.
    fn hand_over(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.held = place.at.take();
        match self.router.pick(&self.fleet, Leg::Decode) {
            Some(pod) => self.submit(index, pod),
            None => {
                self.router.refused += 1;
                self.fail(index, Failure::Refused);
            }
        }
    }

    /// The prefill replica may forget a request.
    fn let_go(&mut self, index: usize) {
        if let Some((pod, ticket)) = self.places[index].held.take() {
            let now = self.now;
            if let Some(engine) = &mut self.fleet.pods[pod as usize].engine {
                engine.release(ticket, now);
            }
            self.settle(pod as usize);
        }
    }

    /// Nobody serves this request any more.
    fn fail(&mut self, index: usize, failure: Failure) {
        self.let_go(index);
        if let Some((pod, ticket)) = self.places[index].at.take() {
            let now = self.now;
            if let Some(engine) = &mut self.fleet.pods[pod as usize].engine {
                engine.abort(ticket, now);
            }
            self.settle(pod as usize);
        }
        self.outcomes[index] = Outcome::Failed(failure);
        self.open -= 1;
    }

    /// Commands the share of traffic that goes outside; it is effective after the router's lag.
    pub fn route(&mut self, share: Permille) {
        let share = share.min(Permille(1_000));
        self.router.commanded.push_back((self.now + picos(self.config.router_lag), share));
    }

    /// How each request ended, by its index in the trace.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The present moment.
    #[must_use]
    pub const fn now(&self) -> Picos {
        self.now
    }

    /// All requests have arrived and ended.
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.open == 0 && self.arriving == self.outcomes.len()
    }

    /// The last token of all that left so far, outside ones included (theirs may be yet to come).
    #[must_use]
    pub const fn last_completion(&self) -> Picos {
        self.last_completion
    }

    /// What a pool held up to `until`, which must not lie before its last change.
    #[must_use]
    pub fn usage(&self, pool: &str, until: Picos) -> Option<PoolUsage> {
        let index = self.fleet.pools.iter().position(|p| &*p.config.policy.name == pool)?;
        Some(self.fleet.usage(index, until))
    }

    /// Input and output tokens served outside.
    #[must_use]
    pub const fn external_tokens(&self) -> (u64, u64) {
        (self.router.input_tokens, self.router.output_tokens)
    }

    /// Money spent outside; `None` where it has no price.
    #[must_use]
    pub fn external_cost(&self) -> Option<MicroUsd> {
        let external = self.config.external.as_ref()?;
        let cost = |tokens: u64, price: MicroUsd| u128::from(tokens) * u128::from(price.0);
        let (input, output) = self.external_tokens();
        let total =
            cost(input, external.input_per_million?) + cost(output, external.output_per_million?);
        Some(MicroUsd(u64::try_from(total / 1_000_000).unwrap_or(u64::MAX)))
    }
}
