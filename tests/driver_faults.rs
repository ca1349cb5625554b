//! Bad weather: scrapes that come late, twice, as garbage or not at all, watches that stand still,
//! writes that fail, conflict or take without saying so. Whatever happens, the rules hold, no pool
//! falls below its minimum, and no request is lost by what the driver does.
//!
//! Worked number: 200 worlds of two to three minutes; a quarter of them without any fault.

mod support;

use spillgate::driver::{Driver, Effect, Input, Watched};
use spillgate::sim::request::Outcome;
use spillgate::sim::rng::Rng;
use spillgate::sim::trace::{Arrivals, Burst, Lengths, Traffic};
use spillgate::sim::world::World;
use spillgate_core::decision::Write;
use spillgate_core::observation::{EngineSample, Name, Scrape, WriteOutcome};
use spillgate_core::policy::{GpuPoolPolicy, Policy, Role};
use spillgate_core::units::{Picos, Ppm, Replicas, Span, Stamp, Tokens};
use std::collections::VecDeque;
use support::stage::world_of;
use support::{gpus, policy_of, pool, profile, profiles};

/// Chance in a thousand that a scrape, a write or a watch goes wrong.
const BADNESS: [u64; 4] = [0, 5, 60, 250];

#[derive(Debug, Default)]
struct Tally {
    ticks: u64,
    ups: u64,
    downs: u64,
    dropped: u64,
    late: u64,
    garbage: u64,
    failed_writes: u64,
    conflicts: u64,
    spilled: u64,
}

struct Weather {
    world: World,
    driver: Driver,
    policy: Policy,
    rng: Rng,
    badness: u64,
    /// What arrives later, and when.
    late: Vec<(Stamp, Input)>,
    tally: Tally,
}

fn setup(seed: u64) -> (Policy, Vec<GpuPoolPolicy>, Vec<u32>) {
    let made_up = profile(20, 8, 1);
    let pools = match seed / 4 % 3 {
        0 => vec![pool("web", Role::Mixed, 1, 5, &made_up)],
        1 => vec![
            pool("decode", Role::Decode, 1, 4, &made_up),
            pool("prefill", Role::Prefill, 1, 3, &made_up),
        ],
        _ => vec![pool("a", Role::Mixed, 1, 2, &made_up), pool("b", Role::Mixed, 2, 4, &made_up)],
    };
    let mut policy = policy_of(pools);
    for pool in &mut policy.pools {
        pool.startup_estimate = Span::secs(8 + seed % 5 * 4);
        pool.startup_timeout = Span::secs(60);
    }
    policy.scale_down.window = Span::secs(20);
    let initial = policy.pools.iter().map(|pool| pool.min.0 + (seed % 2) as u32).collect();
    (policy, gpus(4 + seed as u32 % 4), initial)
}

fn weather(seed: u64) -> Weather {
    let (policy, gpu_pools, initial) = setup(seed);
    let traffic = Traffic {
        duration_s: 100.0,
        base_rps: 3.0,
        swing: 0.8,
        period_s: 80.0,
        bursts: vec![Burst { start_s: 30.0, length_s: 30.0, ramp_s: 5.0, factor: 3.0 }],
        arrivals: Arrivals::Poisson,
        input: Lengths { median: 100.0, sigma: 0.5, min: 1, max: 2_000 },
        output: Lengths { median: 60.0, sigma: 0.5, min: 1, max: 300 },
    };
    let made_up = profiles(profile(20, 8, 1));
    let requests = traffic.generate(seed);
    let world = world_of(&policy, &gpu_pools, &made_up, requests, &initial, seed);
    Weather {
        world,
        driver: Driver::new(vec![policy.clone()], gpu_pools, made_up, seed % 20 == 3),
        policy,
        rng: Rng::named(seed, "weather"),
        badness: BADNESS[seed as usize % BADNESS.len()],
        late: Vec::new(),
        tally: Tally::default(),
    }
}

impl Weather {
    fn strikes(&mut self) -> bool {
        self.rng.below(1_000) < self.badness
    }

    fn run(&mut self, seed: u64) {
        let mut now = Stamp(0);
        while now.0 < 160_000 || (!self.world.finished() && now.0 < 800_000) {
            self.world.run_until(Picos(now.0 * 1_000_000_000));
            self.tick(now);
            self.check(seed, now);
            now = now + Span::secs(1);
        }
        self.driver.on(now, Input::Stop);
        let after = self.driver.on(now, Input::Tick);
        assert!(after.is_empty(), "seed {seed}: acts after it was stopped");
    }

    fn tick(&mut self, now: Stamp) {
        self.tally.ticks += 1;
        let mut effects = VecDeque::new();
        let (due, later) =
            std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = later;
        for (_, input) in due {
            effects.extend(self.driver.on(now, input));
        }
        if now == Stamp(0) || !self.strikes() {
            let (pools, devices, router) = self.world.watch();
            let watched = Watched { pools, devices, router: Some(router) };
            effects.extend(self.driver.on(now, Input::Watched { policy: 0, watched }));
        }
        effects.extend(self.driver.on(now, Input::Tick));
        while let Some(effect) = effects.pop_front() {
            effects.extend(self.carry_out(now, effect));
        }
    }

    fn carry_out(&mut self, now: Stamp, effect: Effect) -> Vec<Effect> {
        match effect {
            Effect::Scrape { policy, pool, pod, asked } => {
                let (scrape, engines) = self.world.scrape(&pool, &pod);
                self.answer(now, Input::Scraped { policy, pool, pod, asked, scrape, engines })
            }
            Effect::Write { policy, pool, write } => self.write(now, policy, pool, &write),
            Effect::Route { share, .. } => {
                if !self.strikes() {
                    self.world.route(share);
                }
                Vec::new()
            }
            Effect::Publish { decision, broken, .. } => {
                assert!(broken.is_empty(), "{broken:?} by {decision:?}");
                Vec::new()
            }
            Effect::Record(_) => Vec::new(),
        }
    }

    /// A scrape's answer on its way.
    fn answer(&mut self, now: Stamp, said: Input) -> Vec<Effect> {
        if !self.strikes() {
            return self.driver.on(now, said);
        }
        match self.rng.below(4) {
            0 => {
                self.tally.dropped += 1;
                Vec::new()
            }
            1 => {
                self.tally.late += 1;
                let at = now + Span(500 + self.rng.below(20_000));
                self.late.push((at, said));
                Vec::new()
            }
            2 => {
                let mut effects = self.driver.on(now, said.clone());
                effects.extend(self.driver.on(now, said));
                effects
            }
            _ => {
                self.tally.garbage += 1;
                let garbage = self.garbage(said);
                self.driver.on(now, garbage)
            }
        }
    }

    fn garbage(&mut self, said: Input) -> Input {
        let Input::Scraped { policy, pool, pod, asked, .. } = said else { return said };
        let wild = || EngineSample {
            waiting: Some(u64::MAX),
            running: Some(u64::MAX),
            kv_used: Some(Ppm(u32::MAX)),
            kv_capacity: Some(Tokens(u64::MAX)),
            prompt_tokens: Some(u64::MAX),
            generation_tokens: Some(u64::MAX),
            finished: Some(u64::MAX),
            ..EngineSample::default()
        };
        let (scrape, engines) = match self.rng.below(6) {
            0 => (Scrape::Http(503), Vec::new()),
            1 => (Scrape::NoSignal, Vec::new()),
            2 => (Scrape::BadBody, Vec::new()),
            3 => (Scrape::Fresh, Vec::new()),
            4 => (Scrape::Fresh, vec![EngineSample::default()]),
            _ => (Scrape::Fresh, vec![wild(), wild()]),
        };
        // Now and then it names a pod or a policy that is not there.
        let policy = if self.rng.below(8) == 0 { 7 } else { policy };
        let pod = if self.rng.below(8) == 0 { "nobody".into() } else { pod };
        Input::Scraped { policy, pool, pod, asked, scrape, engines }
    }

    fn write(&mut self, now: Stamp, policy: usize, pool: Name, write: &Write) -> Vec<Effect> {
        if write.to > write.from {
            self.tally.ups += 1;
        } else {
            self.tally.downs += 1;
        }
        let apply =
            |world: &mut World| world.write(&pool, write.to, write.version, write.victim.as_ref());
        let outcome = if !self.strikes() {
            apply(&mut self.world)
        } else {
            self.tally.failed_writes += 1;
            match self.rng.below(4) {
                0 => {
                    // Somebody else writes the same number first.
                    let spec = Replicas(write.from.0);
                    self.world.write(&pool, spec, write.version, None);
                    apply(&mut self.world)
                }
                1 => WriteOutcome::Denied,
                2 => WriteOutcome::Failed,
                _ => {
                    apply(&mut self.world);
                    WriteOutcome::Failed
                }
            }
        };
        self.tally.conflicts += u64::from(outcome == WriteOutcome::Conflict);
        let wrote = Input::Wrote { policy, pool, outcome };
        if self.strikes() {
            self.late.push((now + Span(1_500), wrote));
            return Vec::new();
        }
        self.driver.on(now, wrote)
    }

    fn check(&self, seed: u64, now: Stamp) {
        let (pools, ..) = self.world.watch();
        for pool in &self.policy.pools {
            let spec = pools[&pool.name].spec.unwrap_or_default();
            assert!(
                spec >= pool.min && spec <= pool.max,
                "seed {seed}, {} ms: {} at {spec}",
                now.0,
                pool.name
            );
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "figures for whoever reads the log")]
fn bad_weather_breaks_no_rule_and_loses_no_request() {
    let mut all = Tally::default();
    for seed in 0..200 {
        let mut weather = weather(seed);
        weather.run(seed);
        for (number, outcome) in weather.world.outcomes().iter().enumerate() {
            match outcome {
                Outcome::Local { .. } => {}
                Outcome::External { .. } => all.spilled += 1,
                lost => panic!("seed {seed}: request {number} is {lost:?}"),
            }
        }
        let Tally { ticks, ups, downs, dropped, late, garbage, .. } = weather.tally;
        all.ticks += ticks;
        all.ups += ups;
        all.downs += downs;
        all.dropped += dropped;
        all.late += late;
        all.garbage += garbage;
        all.failed_writes += weather.tally.failed_writes;
        all.conflicts += weather.tally.conflicts;
    }
    println!("{all:?}");
    // Otherwise these worlds would prove nothing.
    assert!(all.ups > 200 && all.downs > 50 && all.spilled > 0, "{all:?}");
    assert!(all.dropped > 500 && all.late > 500 && all.garbage > 500, "{all:?}");
    assert!(all.failed_writes > 20 && all.conflicts > 5, "{all:?}");
}

#[test]
fn an_answer_to_an_earlier_round_is_not_taken_for_this_one() {
    let mut weather = weather(0);
    let ask = |weather: &mut Weather, second: u64| -> Vec<Effect> {
        let now = Stamp(second * 1_000);
        weather.world.run_until(Picos(now.0 * 1_000_000_000));
        let (pools, devices, _) = weather.world.watch();
        let watched = Watched { pools, devices, router: None };
        weather.driver.on(now, Input::Watched { policy: 0, watched });
        weather.driver.on(now, Input::Tick)
    };
    let answer = |effect: &Effect, finished: u64| {
        let Effect::Scrape { policy, pool, pod, asked } = effect.clone() else {
            panic!("one pod is asked: {effect:?}")
        };
        let engine = EngineSample { finished: Some(finished), ..EngineSample::default() };
        Input::Scraped { policy, pool, pod, asked, scrape: Scrape::Fresh, engines: vec![engine] }
    };
    let first = ask(&mut weather, 1);
    let [effect] = &first[..] else { panic!("one pod: {first:?}") };
    let late = answer(effect, 10);
    let second = ask(&mut weather, 2);
    let asks = |e: &&Effect| matches!(e, Effect::Scrape { .. });
    let effect = second.iter().find(asks).expect("asked again");
    assert!(weather.driver.on(Stamp(2_100), late).is_empty(), "the round is still open");
    assert!(!weather.driver.on(Stamp(2_200), answer(effect, 20)).is_empty(), "now it is not");
}
