//! When the devices are used up: it is named, the gate opens for what is needed and closes when the
//! need is gone, and nobody goes on asking for what is not there.
//!
//! Worked number: two devices, a prefill and a decode replica of one each, and six requests a second
//! where decode carries four: a third of the load has to go elsewhere.

mod support;

use spillgate::sim::request::{Outcome, Request};
use spillgate_core::model::Profile;
use spillgate_core::policy::{Policy, Role};
use spillgate_core::reason::{Cause, Reason};
use spillgate_core::units::Span;
use support::stage::{Row, Stage};
use support::{gpus, policy_of, pool, profile, profiles, steady};

/// The load lasts from here to there.
const LOAD: (u64, u64) = (30, 630);
const END: u64 = 1_300;

/// Eight sequences at 20 ms a token: four requests of 100 tokens a second.
fn made_up(gpus_each: u32) -> Profile {
    profile(20, 8, gpus_each)
}

fn pair(profile: &Profile, decode_most: u32) -> Policy {
    let mut pools = vec![
        pool("decode", Role::Decode, 1, decode_most, profile),
        pool("prefill", Role::Prefill, 1, 4, profile),
    ];
    for pool in &mut pools {
        pool.startup_timeout = Span::secs(240);
    }
    policy_of(pools)
}

fn overload() -> Vec<Request> {
    steady(LOAD.0, LOAD.1, 6, 100, 100)
}

fn played(policy: &Policy, devices: u32, profile: Profile, requests: Vec<Request>) -> Stage {
    let made_up = profiles(profile);
    let mut stage = Stage::new(policy, &gpus(devices), &made_up, requests, &[1, 1], true);
    stage.run(END);
    stage.assert_rules_hold();
    stage
}

fn exhausted(row: &Row) -> bool {
    row.reasons().any(|r| matches!(r, Reason::Exhausted { .. }))
}

fn first(stage: &Stage, test: impl Fn(&Row) -> bool) -> u64 {
    stage.rows.iter().find(|row| test(row)).map_or(u64::MAX, Row::second)
}

/// The gate opened once for `cause`, and closed once, two to five minutes after the load.
fn assert_gate(stage: &Stage, cause: Cause, opened_by: u64) {
    let orders = stage.orders();
    let opens = orders.windows(2).filter(|o| o[0].1 == 0 && o[1].1 > 0).count();
    let closes = orders.windows(2).filter(|o| o[0].1 > 0 && o[1].1 == 0).count();
    assert_eq!((opens, closes), (0, 1), "once on, once off: {orders:?}");
    assert!(orders[0].0 <= opened_by, "opens by {opened_by} s: {orders:?}");
    let of = |row: &Row| {
        row.reasons().find_map(|r| match r {
            Reason::GateOpened { cause, .. } => Some(*cause),
            _ => None,
        })
    };
    assert_eq!(stage.rows.iter().find_map(of), Some(cause));
    let (closed, share) = *orders.last().expect("orders");
    assert_eq!(share, 0);
    let after = closed.saturating_sub(LOAD.1);
    assert!((120..=300).contains(&after), "closed {after} s after the load: {orders:?}");
}

/// What went outside is not much more than what decode could not carry.
fn assert_no_more_than_needed_spills(stage: &Stage, serving: f64) {
    for row in &stage.rows {
        let Some(share) = row.decision.route else { continue };
        let at = row.second();
        let lately =
            stage.rows.iter().filter(|r| (at.saturating_sub(16)..=at).contains(&r.second()));
        let excess = lately.map(|r| r.decision.excess.0).max().unwrap_or(0);
        assert!(share.0 <= excess.max(10), "at {at} s: {share} ordered, excess {excess}");
    }
    let outcomes = stage.world.outcomes();
    let outside = outcomes.iter().filter(|o| matches!(o, Outcome::External { .. })).count();
    let part = outside as f64 / outcomes.len() as f64;
    let needed = 1.0 - serving * 4.0 / 6.0;
    assert!(part <= needed + 0.2, "{part} went outside, {needed} had to");
    assert!(part > 0.05, "{part} went outside");
}

#[test]
fn used_up_devices_are_named_and_the_rest_spills_until_the_load_is_gone() {
    let stage = played(&pair(&made_up(1), 8), 2, made_up(1), overload());
    let named = first(&stage, exhausted);
    assert!(named <= 120, "named at {named} s");
    assert_gate(&stage, Cause::Exhausted, named + 10);
    assert_no_more_than_needed_spills(&stage, 1.0);
    for row in &stage.rows {
        assert!(row.spec("decode") <= 2 && row.spec("prefill") == 1, "at {} s", row.second());
        assert!(row.devices["gpus"].free().0 == 0);
    }
    let last = stage.rows.last().expect("rows");
    assert_eq!((last.spec("decode"), last.spec("prefill")), (1, 1));
    assert!(last.reasons().all(|r| matches!(r, Reason::Need { .. })), "{:?}", last.decision);
    let failed = |o: &&Outcome| matches!(o, Outcome::Failed(_) | Outcome::Open);
    assert_eq!(stage.world.outcomes().iter().filter(failed).count(), 0);
}

/// Two nodes of eight and replicas of five: six devices are free, and not one replica fits.
#[test]
fn a_replica_that_no_node_takes_becomes_a_verdict_and_goes_when_the_load_does() {
    judge_unplaceable(100);
}

/// The one more that is needed fits the count of devices, so only its waiting for a node tells.
#[test]
fn a_replica_that_no_node_takes_is_a_verdict_even_where_the_count_says_that_it_fits() {
    judge_unplaceable(59);
}

/// Six requests a second of `output` tokens: 67 tokens keep one decode replica busy.
fn judge_unplaceable(output: u32) {
    let load = steady(LOAD.0, LOAD.1, 6, 100, output);
    let stage = played(&pair(&made_up(5), 8), 16, made_up(5), load);
    let writes = stage.writes("decode");
    let ups = writes.iter().filter(|(_, from, to)| to > from).count();
    assert!((1..=2).contains(&ups), "asks once, not again and again: {writes:?}");
    let most = stage.rows.iter().map(|r| r.spec("decode")).max();
    assert!(most <= Some(3), "devices allow three on paper: {writes:?}");
    let budget = writes[0].0 + 240;
    let named = first(&stage, exhausted);
    assert!(named <= budget + 60, "named at {named} s, the start budget ends at {budget}");
    assert_gate(&stage, Cause::Exhausted, named.max(budget) + 70);
    let overloaded = |r: &&Row| (budget + 10..LOAD.1).contains(&r.second());
    for row in stage.rows.iter().filter(overloaded) {
        assert!(exhausted(row), "at {} s: {:?}", row.second(), row.decision.pools[0].reasons);
    }
    let after = stage.rows.iter().filter(|r| r.second() > budget + 60);
    let waits = after.map(|r| r.spec("decode") - r.ready("decode")).max();
    assert!(waits <= Some(1), "no more than one is left to try: {writes:?}");
    let cancelled = first(&stage, |r| r.second() > LOAD.1 && r.spec("decode") == 1);
    assert!(cancelled <= LOAD.1 + 90, "cancelled at {cancelled} s: {writes:?}");
    assert!(stage.rows.iter().all(|r| r.ready("decode") == 1 && r.ready("prefill") == 1));
}

#[test]
fn a_pool_at_its_maximum_is_counted_apart() {
    let stage = played(&pair(&made_up(1), 1), 8, made_up(1), overload());
    assert!(!stage.rows.iter().any(exhausted), "there are devices enough");
    let named = first(&stage, |row| row.reasons().any(|r| matches!(r, Reason::AtMax { .. })));
    assert!(named <= 120, "named at {named} s");
    assert_gate(&stage, Cause::AtMax, named + 10);
    assert_no_more_than_needed_spills(&stage, 1.0);
    assert!(stage.writes("decode").is_empty());
}

#[test]
fn a_device_pool_without_devices_sends_everything_outside() {
    let made = made_up(1);
    let policy = pair(&made, 8);
    let stage = played(&policy, 0, made, steady(LOAD.0, LOAD.1, 2, 100, 100));
    let cause = stage.rows.iter().find_map(|row| {
        row.reasons().find_map(|r| match r {
            Reason::GateOpened { cause, .. } => Some(*cause),
            _ => None,
        })
    });
    assert_eq!(cause, Some(Cause::Unavailable));
    assert!(stage.rows.iter().all(|r| r.spec("decode") <= 2 && r.spec("prefill") <= 2));
    // Until the cause has lasted five seconds and the router has followed there is nobody to serve.
    let followed = (LOAD.0 + 9) * 1_000_000_000_000;
    let requests = steady(LOAD.0, LOAD.1, 2, 100, 100);
    for (request, outcome) in requests.iter().zip(stage.world.outcomes()) {
        let outside = matches!(outcome, Outcome::External { .. });
        assert!(outside || request.at.0 < followed, "{request:?}: {outcome:?}");
    }
}

#[test]
fn where_devices_suffice_nothing_spills() {
    let stage = played(&pair(&made_up(1), 8), 8, made_up(1), overload());
    assert!(stage.orders().is_empty(), "{:?}", stage.orders());
    assert!(!stage.rows.iter().any(exhausted));
    assert!(stage.rows.iter().any(|r| r.spec("decode") >= 2));
}
