//! Gauges that stand still while nobody is there: one pod of three goes on showing 88 running and
//! 12 waiting, another answers 500 for five minutes. Nothing may grow on that, nothing may shrink
//! before five minutes of proof, and the pod that goes is one that is proven idle.
//!
//! Worked number: clients leave at 65 s, so five minutes of proof end at 370 s at the earliest.

mod support;

use serde_json::Value;
use spillgate::driver::{Driver, Effect, Input, Watched};
use spillgate::engine::read_page;
use spillgate_core::decision::Decision;
use spillgate_core::observation::{
    DevicesSeen, EngineSample, Name, PodSeen, PoolSeen, Scrape, WriteOutcome,
};
use spillgate_core::policy::{Policy, Role};
use spillgate_core::units::{Gpus, Ppm, Replicas, Span, Stamp};
use std::collections::{BTreeMap, VecDeque};
use support::{gpus, policy_of, pool, profile, profiles, shared};

/// What one pod answered at one time.
type Answer = (Scrape, Vec<EngineSample>);
/// Answers by second and pod.
type Story = BTreeMap<u64, BTreeMap<String, Answer>>;

/// Stands for P0: min 1, max 8, a window of five minutes, one removal a minute.
fn policy() -> Policy {
    let mut policy = policy_of(vec![pool("web", Role::Mixed, 1, 8, &profile(35, 256, 1))]);
    policy.scale_down.interval = Some(Span::secs(60));
    policy.tick = Span::secs(10);
    policy.overflow.allowed = false;
    policy
}

/// Runs the story; pods that were removed do not come back. Decisions with the spec before each.
fn play(story: &Story) -> (Vec<(u32, Decision)>, u32) {
    let made_up = profiles(profile(35, 256, 1));
    let mut driver = Driver::new(vec![policy()], gpus(8), made_up, false);
    let mut pods: Vec<String> = story[&0].keys().cloned().collect();
    let (mut spec, mut version, mut rows) = (3_u32, 1_u64, Vec::new());
    for (&second, answers) in story {
        let now = Stamp(second * 1_000);
        let watched = watched(&pods, spec, version);
        driver.on(now, Input::Watched { policy: 0, watched });
        let mut effects = VecDeque::from(driver.on(now, Input::Tick));
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Scrape { policy, pool, pod, asked } => {
                    let (scrape, engines) = answers[&*pod].clone();
                    let said = Input::Scraped { policy, pool, pod, asked, scrape, engines };
                    effects.extend(driver.on(now, said));
                }
                Effect::Write { policy, pool, write } => {
                    assert_eq!((write.from.0, write.version), (spec, version));
                    (spec, version) = (write.to.0, version + 1);
                    pods.retain(|pod| Some(pod.as_str()) != write.victim.as_deref());
                    let outcome = WriteOutcome::Applied;
                    effects.extend(driver.on(now, Input::Wrote { policy, pool, outcome }));
                }
                Effect::Publish { decision, broken, .. } => {
                    assert!(broken.is_empty(), "at {second} s: {broken:?}");
                    let before = decision.pools[0].write.as_ref().map_or(spec, |w| w.from.0);
                    rows.push((before, decision));
                }
                Effect::Route { .. } | Effect::Record(_) => {}
            }
        }
    }
    (rows, spec)
}

fn watched(pods: &[String], spec: u32, version: u64) -> Watched {
    let pod = PodSeen { scheduled: Some(Stamp(0)), ready: Some(Stamp(0)), ..PodSeen::default() };
    let pods: BTreeMap<Name, PodSeen> =
        pods.iter().map(|name| (name.as_str().into(), pod.clone())).collect();
    let used = Gpus(pods.len() as u32);
    let web = PoolSeen {
        spec: Some(Replicas(spec)),
        status: Some(Replicas(spec)),
        version,
        pods,
        ..PoolSeen::default()
    };
    let devices =
        DevicesSeen { allocatable: Gpus(8), used_by_us: used, used_by_others: Gpus::ZERO };
    Watched {
        pools: BTreeMap::from([("web".into(), web)]),
        devices: BTreeMap::from([("gpus".into(), devices)]),
        router: None,
    }
}

/// The lines that the case demands.
fn judge(story: &Story) {
    let (rows, end) = play(story);
    let said = |at: u64, words: &[&str]| {
        let row = rows.iter().find(|(_, d)| d.at.0 == at * 1_000).expect("a tick at that time");
        let mut reasons = row.1.pools[0].reasons.iter().map(ToString::to_string);
        reasons.any(|reason| words.iter().all(|word| reason.contains(word)))
    };
    let ticks = || story.keys().copied();
    for (_, decision) in &rows {
        let write = decision.pools[0].write.as_ref();
        assert!(write.is_none_or(|w| w.to < w.from), "grew: {decision:?}");
    }
    assert!(ticks().any(|t| t <= 110 && said(t, &["web-a", "stale", "s:"])), "web-a not stale");
    assert!(ticks().filter(|t| *t <= 60).all(|t| !said(t, &["web-a", "stale"])), "too early");
    for t in ticks().filter(|t| (210..=500).contains(t)) {
        assert!(said(t, &["web-c", "500"]), "at {t} s web-c's 500 is not named");
    }
    for t in ticks().filter(|t| *t >= 520) {
        assert!(!said(t, &["web-c", "500"]), "at {t} s web-c's 500 is still named");
    }
    let removals: Vec<(u64, String)> = rows
        .iter()
        .filter_map(|(_, d)| Some((d.at.0 / 1_000, d.pools[0].write.as_ref()?.victim.clone())))
        .map(|(at, victim)| (at, victim.expect("a removal names its pod").to_string()))
        .collect();
    let (first, victim) = removals.first().expect("something goes in the end");
    assert!((370..=820).contains(first), "first removal at {first} s");
    assert!(victim == "web-b" || victim == "web-c", "{victim} is not proven idle");
    assert!(removals.iter().all(|(_, victim)| victim != "web-a"), "{removals:?}");
    assert!(!(victim == "web-c" && (200..=500).contains(first)), "web-c went unseen");
    assert_eq!(end, 2, "{removals:?}");
}

/// Reads the case: a page is what the engine reader makes of it.
fn story_of(text: &str) -> Story {
    let mut bodies: BTreeMap<String, String> = BTreeMap::new();
    let mut story = Story::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        if let Some(known) = row.get("bodies") {
            bodies = serde_json::from_value(known.clone()).expect("texts by name");
            continue;
        }
        let body = match row.get("body_ref").and_then(Value::as_str) {
            Some(name) => bodies[name].as_str(),
            None => row["body"].as_str().expect("a body"),
        };
        let answer = match row["http"].as_u64().expect("a status") {
            200 => (Scrape::Fresh, read_page(body).expect("a small page").engines),
            status => (Scrape::Http(status as u16), Vec::new()),
        };
        let pod = row["pod"].as_str().expect("a pod").to_owned();
        story.entry(row["at_s"].as_u64().expect("a time")).or_default().insert(pod, answer);
    }
    story
}

#[test]
fn the_case_of_frozen_gauges_ends_with_two_replicas_and_the_right_one_gone() {
    let Some(file) = shared("cases/b-frozen-gauges.scrapes.jsonl") else { return };
    let story = story_of(&std::fs::read_to_string(file).expect("the case"));
    assert_eq!(story.len(), 75);
    judge(&story);
}

/// The same story in small: what each pod does is written here.
fn own_story(frozen: bool) -> Story {
    let engine = |running: u64, waiting: u64, tokens: u64| EngineSample {
        epoch: 1_000,
        running: Some(running),
        waiting: Some(waiting),
        kv_used: Some(Ppm(running as u32 * 10_000)),
        generation_tokens: Some(tokens),
        finished: Some(tokens / 100),
        ..EngineSample::default()
    };
    let mut story = Story::new();
    for second in (0..=1_200_u64).step_by(10) {
        let active = second.min(60);
        let left = second > 65;
        let (run_a, wait_a) = if left && !frozen { (0, 0) } else { (88, 12) };
        let a = engine(run_a, wait_a, 100_000 + active * 900);
        let b = engine(if left { 0 } else { 40 }, 0, 90_000 + active * 800);
        let c = engine(if left { 0 } else { 35 }, 0, 80_000 + active * 700);
        let gone = (200..=500).contains(&second);
        let c = if gone { (Scrape::Http(500), Vec::new()) } else { (Scrape::Fresh, vec![c]) };
        let fresh = |engine| (Scrape::Fresh, vec![engine]);
        let answers = [("web-a", fresh(a)), ("web-b", fresh(b)), ("web-c", c)];
        story.insert(second, answers.map(|(pod, said)| (pod.to_owned(), said)).into());
    }
    story
}

#[test]
fn a_pod_whose_gauges_stand_still_is_neither_load_nor_idle() {
    judge(&own_story(true));
}

#[test]
fn the_same_pod_with_honest_gauges_is_not_called_stale_and_one_replica_is_left() {
    let (rows, end) = play(&own_story(false));
    let stale = |d: &Decision| d.pools[0].reasons.iter().any(|r| r.to_string().contains("stale"));
    assert!(rows.iter().all(|(_, decision)| !stale(decision)));
    assert_eq!(end, 1);
}
