//! Constant load and slow starts: one request a second, 3.5 s of service each, one replica to
//! begin with, and 240 s until a new one serves. A loop that looks at its queue alone doubles while
//! earlier orders are still starting; this one must find the four that are needed and stay there.
//!
//! Worked number: in 240 s of waiting for the first new replica 171 requests pile up.

mod support;

use spillgate::sim::request::Request;
use spillgate::sim::trace;
use spillgate_core::policy::{Policy, Role};
use spillgate_core::units::{Micros, Picos, Span};
use support::stage::{Row, Stage};
use support::{gpus, policy_of, pool, profile, profiles, shared};

const END: u64 = 1_800;

fn policy() -> Policy {
    let mut web = pool("web", Role::Mixed, 1, 32, &profile(35, 1, 1));
    web.startup_estimate = Span::secs(240);
    let mut policy = policy_of(vec![web]);
    policy.scale_down.interval = Some(Span::secs(60));
    policy.objectives.ttft.as_mut().expect("a target").base = Micros(10_000_000);
    policy.overflow.allowed = false;
    policy.overflow.destinations.clear();
    policy
}

/// Even arrivals, about 100 tokens each: eight lengths in turn.
fn own_trace() -> Vec<Request> {
    let output = |i: u64| [92, 105, 101, 97, 110, 95, 104, 96][i as usize % 8];
    let at = |i: u64| Picos(i * 1_000_000_000_000);
    (0..END).map(|i| Request { at: at(i), input: 500, output: output(i) }).collect()
}

fn played(requests: Vec<Request>, router: bool) -> Stage {
    let made_up = profiles(profile(35, 1, 1));
    let mut stage = Stage::new(&policy(), &gpus(64), &made_up, requests, &[1], router);
    stage.run(END);
    stage.assert_rules_hold();
    stage
}

/// Lines that do not hold where arrivals are told from the engines' counters alone: they come in
/// steps of whole requests, so that the 95th percentile of forecast errors buys a sixth replica for
/// good, and 10 726 replica-seconds where 10 500 are allowed.
const WITHOUT_A_ROUTER: [&str; 2] = ["ends", "seconds"];

/// Every line of the case that does not hold: its name, and the figures.
fn misses(stage: &Stage) -> Vec<(&'static str, String)> {
    let rows = &stage.rows;
    let writes = stage.writes("web");
    let mut missed = Vec::new();
    let mut must = |holds: bool, name: &'static str, what: String| {
        if !holds {
            missed.push((name, what));
        }
    };
    let late = |row: &Row| row.waiting("web") > 4 * u64::from(row.ready("web").max(1));
    let overload = rows.iter().find(|r| r.waiting("web") > 4).expect("a queue").second();
    let first_up = writes.iter().find(|(_, from, to)| to > from).map_or(END, |(at, ..)| *at);
    must(
        first_up <= overload + 30,
        "late start",
        format!("first increase at {first_up}, queue at {overload}"),
    );
    let most = rows.iter().map(|r| r.spec("web")).max().unwrap_or(0);
    must(most <= 8, "too many", format!("{most} replicas at most, 8 allowed"));
    for &(at, from, to) in &writes {
        let starting = from - rows[at as usize].ready("web").min(from);
        must(
            starting == 0 || to < 2 * from,
            "doubling",
            format!("{from} -> {to} at {at}, {starting} start"),
        );
    }
    let gone = rows.iter().rfind(|r| late(r)).map_or(0, Row::second);
    must(gone < 1_600, "backlog", format!("backlog until {gone}"));
    let up: Vec<bool> = writes.iter().map(|(_, from, to)| to > from).collect();
    let turns = up.windows(2).filter(|pair| pair[0] != pair[1]).count();
    must(turns <= 1, "turns", format!("{turns} changes of direction: {writes:?}"));
    let risen_late = writes.iter().find(|(at, from, to)| to > from && *at > gone);
    must(
        risen_late.is_none(),
        "risen late",
        format!("up after the backlog was gone: {risen_late:?}"),
    );
    let downs: Vec<&(u64, u32, u32)> = writes.iter().filter(|(_, from, to)| to < from).collect();
    must(downs.iter().all(|(_, from, to)| from - to == 1), "steps", format!("steps: {downs:?}"));
    must(downs.windows(2).all(|d| d[1].0 - d[0].0 >= 60), "pace", format!("too close: {downs:?}"));
    must(
        downs.first().is_none_or(|d| d.0 >= gone + 300),
        "early",
        format!("gone {gone}, {downs:?}"),
    );
    // None on the fleet's average, to the nearest whole request.
    let served = |at: u64| {
        let row = &rows[at as usize];
        row.waiting("web") * 2 <= u64::from(row.ready("web"))
    };
    must(
        downs.iter().all(|d| served(d.0)),
        "queue",
        format!("shrank while requests waited: {downs:?}"),
    );
    let ending: Vec<u32> = rows.iter().skip(1_680).map(|r| r.spec("web")).collect();
    must(ending.iter().all(|n| [4, 5].contains(n)), "ends", format!("ends at {:?}", ending.last()));
    let seconds: u32 = rows.iter().map(|r| r.spec("web")).sum();
    must((6_000..=10_500).contains(&seconds), "seconds", format!("{seconds} replica-seconds"));
    let mut reached = rows.iter().skip_while(|r| r.spec("web") < 4);
    must(reached.all(|r| r.spec("web") >= 4), "below", format!("below 4 again: {writes:?}"));
    missed
}

#[expect(clippy::print_stdout, reason = "figures for whoever reads the log")]
fn judge(name: &str, requests: &[Request]) {
    for router in [true, false] {
        let stage = played(requests.to_vec(), router);
        let seconds: u32 = stage.rows.iter().map(|r| r.spec("web")).sum();
        println!("{name}, router {router}: {:?}, {seconds} replica-s", stage.writes("web"));
        let missed = misses(&stage);
        let names: Vec<&str> = missed.iter().map(|(name, _)| *name).collect();
        let known: &[&str] = if router { &[] } else { &WITHOUT_A_ROUTER };
        assert_eq!(names, known, "{name}, router {router}: {missed:#?}");
    }
}

#[test]
fn a_constant_load_is_met_without_a_cascade_and_then_left_alone() {
    judge("own trace", &own_trace());
}

#[test]
fn the_case_of_constant_load_keeps_all_its_lines() {
    let Some(file) = shared("cases/d-constant-load-slow-start.trace.csv") else { return };
    let trace = trace::read(&file, 1).expect("the case");
    assert_eq!(trace.requests.len(), 1_800);
    judge("the case", &trace.requests);
}
