//! The governor: its rules as sentences, and then every small world.

mod support;

use spillgate_core::balance::Target;
use spillgate_core::govern::{Memory, Move, govern};
use spillgate_core::observation::Observation;
use spillgate_core::observe::{Observed, PodState, PodView, PoolView};
use spillgate_core::policy::{Policy, Role};
use spillgate_core::reason::Reason;
use spillgate_core::size::Milli;
use spillgate_core::units::{Permille, Replicas, Span, Stamp};

const MAX: u32 = 4;

/// A small world: one pool, floor 1, maximum 4.
#[derive(Clone, Copy, Debug)]
struct World {
    spec: u32,
    serving: u32,
    starting: u32,
    pending: u32,
    unseen: u32,
    waiting: u64,
    need: Option<u64>,
    share: u32,
}

const QUIET: World = World {
    spec: 3,
    serving: 3,
    starting: 0,
    pending: 0,
    unseen: 0,
    waiting: 0,
    need: Some(500),
    share: 0,
};

fn policy() -> Policy {
    support::policy(vec![support::pool("web", Role::Mixed, 1, MAX)])
}

fn view(world: &World) -> PoolView {
    let pods = [
        (world.serving, PodState::Serving),
        (world.starting, PodState::Starting),
        (world.pending, PodState::Pending),
        (world.unseen, PodState::Unseen),
    ];
    let pods: Vec<PodView> = pods
        .into_iter()
        .flat_map(|(n, state)| (0..n).map(move |i| (i, state)))
        .map(|(i, state)| PodView {
            uid: format!("{state:?}-{i}").into(),
            state,
            busy: u64::from(i),
            served: Some(Stamp(0)),
        })
        .collect();
    PoolView {
        spec: Some(Replicas(world.spec)),
        pods,
        serving: Replicas(world.serving),
        unseen: Replicas(world.unseen),
        coming: Replicas(world.spec).less(Replicas(world.serving + world.unseen)),
        unscheduled: Replicas(world.pending),
        sighted: world.unseen == 0,
        waiting: world.waiting,
        ..PoolView::default()
    }
}

fn step(policy: &Policy, world: &World, now: Stamp, memory: &mut Memory) -> Move {
    let need = world.need.map(Milli);
    let wanted = need.map_or(world.spec, |n| n.replicas().0).clamp(1, MAX);
    let target = Target {
        need,
        wanted: Replicas(wanted),
        reachable: Replicas(wanted),
        floor: Replicas(1),
        ..Target::default()
    };
    let observed = Observed { now, pools: vec![view(world)], router: None };
    let seen = Observation { now, ..Observation::default() };
    govern(policy, &seen, &observed, &[target], Permille(world.share), memory).remove(0)
}

/// Lets `before` stand for a while, then decides on `world` at the end of it.
fn after(seconds: u64, before: &World, world: &World) -> Move {
    let policy = policy();
    let mut memory = Memory::default();
    for second in 0..seconds {
        // Removals that happen meanwhile are not carried out: only the window matters.
        let standing = World { share: 10, ..*before };
        let _ = step(&policy, &standing, Stamp(second * 1_000), &mut memory);
    }
    step(&policy, world, Stamp(seconds * 1_000), &mut memory)
}

#[test]
fn scale_down_waits_for_the_whole_window() {
    let early = after(299, &QUIET, &QUIET);
    assert_eq!(early.to, None);
    assert_eq!(early.reasons, [Reason::HeldByWindow { until: Stamp(300_000) }]);
    assert_eq!(after(300, &QUIET, &QUIET).to, Some(Replicas(2)));
}

#[test]
fn one_busy_moment_in_the_window_holds() {
    let policy = policy();
    let mut memory = Memory::default();
    for second in 0..699 {
        let busy = World { need: Some(2_500), share: 10, ..QUIET };
        let world = if second == 400 { busy } else { World { share: 10, ..QUIET } };
        let _ = step(&policy, &world, Stamp(second * 1_000), &mut memory);
    }
    assert_eq!(step(&policy, &QUIET, Stamp(699_000), &mut memory).to, None);
    assert_eq!(step(&policy, &QUIET, Stamp(701_000), &mut memory).to, Some(Replicas(2)));
}

#[test]
fn minutes_that_nobody_watched_are_no_proof() {
    let policy = policy();
    let mut memory = Memory::default();
    for second in 0..400 {
        let _ = step(&policy, &World { share: 10, ..QUIET }, Stamp(second * 1_000), &mut memory);
    }
    let held = step(&policy, &QUIET, Stamp(1_000_000), &mut memory);
    assert_eq!(held.reasons, [Reason::HeldByWindow { until: Stamp(1_300_000) }]);
}

#[test]
fn a_blind_tick_begins_the_window_anew() {
    let policy = policy();
    let mut memory = Memory::default();
    for second in 0..400 {
        let blind = World { serving: 2, unseen: 1, ..QUIET };
        let world = if second == 399 { blind } else { World { share: 10, ..QUIET } };
        let _ = step(&policy, &world, Stamp(second * 1_000), &mut memory);
    }
    let held = step(&policy, &QUIET, Stamp(400_000), &mut memory);
    assert_eq!(held.reasons, [Reason::HeldByWindow { until: Stamp(700_000) }]);
}

#[test]
fn removals_keep_their_interval() {
    let policy = policy();
    let mut memory = Memory::default();
    let mut removed = Vec::new();
    for second in 0..480 {
        let now = Stamp(second * 1_000);
        if step(&policy, &World { spec: 4, serving: 4, ..QUIET }, now, &mut memory).to.is_some() {
            removed.push(second);
        }
    }
    assert_eq!(removed, [300, 360, 420]);
}

#[test]
fn the_least_busy_pod_goes() {
    assert_eq!(after(300, &QUIET, &QUIET).victim.as_deref(), Some("Serving-0"));
}

#[test]
fn growth_is_immediate() {
    let moved = after(0, &QUIET, &World { need: Some(3_500), ..QUIET });
    assert_eq!(moved.to, Some(Replicas(4)));
}

#[test]
fn zero_replicas_set_by_hand_is_a_pause() {
    let parked = World { spec: 0, serving: 0, need: Some(3_000), ..QUIET };
    assert_eq!(after(0, &parked, &parked).reasons, [Reason::PausedAtZero]);
}

#[test]
fn pending_replicas_are_cancelled_at_once_when_nobody_needs_them() {
    let world = World { spec: 2, serving: 1, pending: 1, ..QUIET };
    let moved = after(0, &world, &world);
    assert_eq!(moved.to, Some(Replicas(1)));
    assert!(matches!(moved.reasons[..], [Reason::Cancelled { .. }]));
}

/// Every world of up to four replicas, seen for no time and for a full window.
#[test]
fn every_small_world_keeps_the_rules_of_governing() {
    let mut worlds = 0_u32;
    let mut removals = 0_u32;
    for code in 0..5_u32.pow(5) * 2 * 2 * 6 * 2 {
        let digit = |n: u32| code / 5_u32.pow(n) % 5;
        let rest = code / 5_u32.pow(5);
        let needs = [None, Some(0), Some(900), Some(1_900), Some(2_900), Some(5_200)];
        let world = World {
            spec: digit(0),
            serving: digit(1),
            starting: digit(2),
            pending: digit(3),
            unseen: digit(4),
            waiting: u64::from(rest % 2) * 9,
            share: rest / 2 % 2 * 10,
            need: needs[(rest / 4 % 6) as usize],
        };
        let full_window = rest / 24 == 1;
        let pods = world.serving + world.starting + world.pending + world.unseen;
        if pods > world.spec {
            continue;
        }
        worlds += 1;
        let moved = after(if full_window { 300 } else { 0 }, &world, &world);
        removals += u32::from(check(&world, full_window, &moved));
    }
    assert!(worlds > 5_000, "{worlds} worlds");
    // From 2 with needs of 0 and 0.9, from 3 also with 1.9, from 4 also with 2.9.
    assert_eq!(removals, 9, "removals: the worlds must reach the rule");
}

/// Checks one verdict; true if it removed a serving replica.
fn check(world: &World, full_window: bool, moved: &Move) -> bool {
    let Some(to) = moved.to else { return false };
    let (spec, to) = (world.spec, to.0);
    assert!(!moved.reasons.is_empty(), "a move without a word: {world:?}");
    assert!(to <= MAX.max(spec), "above the maximum: {world:?} {moved:?}");
    assert_ne!(spec, 0, "a pause is respected: {world:?} {moved:?}");
    if to >= spec {
        return false;
    }
    assert!(to >= 1, "below the floor: {world:?} {moved:?}");
    let never_started = world.pending;
    if spec - to <= never_started {
        return false;
    }
    assert_eq!(spec - to, 1, "more than one: {world:?} {moved:?}");
    assert!(full_window, "before the window: {world:?} {moved:?}");
    assert_eq!(world.unseen, 0, "blind: {world:?} {moved:?}");
    assert_eq!(world.share, 0, "spilling: {world:?} {moved:?}");
    assert_eq!(world.waiting, 0, "with a queue: {world:?} {moved:?}");
    assert_eq!(world.serving, spec, "while others start: {world:?} {moved:?}");
    assert!(world.need.is_some_and(|n| n <= u64::from(to) * 1_000), "needed: {world:?} {moved:?}");
    assert!(moved.victim.is_some(), "without naming who goes: {world:?} {moved:?}");
    true
}

#[test]
fn the_interval_suits_the_fleet() {
    let down = policy().scale_down;
    let interval = |n| spillgate_core::govern::interval(&down, Replicas(n));
    assert_eq!(interval(12), Span::secs(60));
    assert_eq!(interval(200), Span::secs(15));
    assert_eq!(interval(1_000), Span::secs(10));
}
