//! Random small worlds through the whole of replay: one to three pools, a handful of devices, a few
//! hundred requests. Whatever the policy says, no rule is broken, every request ends once, and the
//! same world runs the same way again.
//!
//! Worked number: 48 worlds of at most ten minutes each.

mod support;

use proptest::prelude::*;
use spillgate::sim::replay::{Run, Setup, Start, run};
use spillgate::sim::request::{Outcome, Request};
use spillgate::sim::world::Routing;
use spillgate_core::model::Profile;
use spillgate_core::observation::Name;
use spillgate_core::policy::{GpuPoolPolicy, Policy, PoolPolicy, Role};
use spillgate_core::units::{Picos, Replicas, Span, Stamp};
use std::collections::BTreeMap;
use support::{gpus, policy_of, pool, profile, profiles};

#[derive(Clone, Debug)]
struct Small {
    policy: Policy,
    devices: Vec<GpuPoolPolicy>,
    profile: Profile,
    requests: Vec<Request>,
    seed: u64,
    start: Start,
    routing: Routing,
    /// A schedule's floor under the first pool, and from when.
    floor: (u32, u64),
}

fn pools(profile: Profile) -> impl Strategy<Value = Vec<PoolPolicy>> {
    let shapes: Vec<Vec<(&str, Role)>> = vec![
        vec![("web", Role::Mixed)],
        vec![("a", Role::Mixed), ("b", Role::Mixed)],
        vec![("decode", Role::Decode), ("prefill", Role::Prefill)],
        vec![("decode", Role::Decode), ("mixed", Role::Mixed), ("prefill", Role::Prefill)],
        vec![("decode-a", Role::Decode), ("decode-b", Role::Decode), ("prefill", Role::Prefill)],
    ];
    let bounds = prop::collection::vec((0_u32..3, 0_u32..4, 5_u64..90), 3);
    (prop::sample::select(shapes), bounds).prop_map(move |(shape, bounds)| {
        let made = shape.into_iter().zip(bounds).map(|((name, role), (min, more, start))| {
            let mut pool = pool(name, role, min, (min + more).max(1), &profile);
            pool.startup_estimate = Span::secs(start);
            pool.startup_timeout = Span::secs(start + 60);
            pool
        });
        made.collect()
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let gap_ms = prop_oneof![6 => 0_u64..800, 1 => 0_u64..40_000];
    let one = (gap_ms, 1_u32..3_000, 0_u32..200);
    prop::collection::vec(one, 1..300).prop_map(|all| {
        let mut at = 0;
        let placed = all.into_iter().map(|(gap, input, output)| {
            at += gap;
            Request { at: Picos(at * 1_000_000_000), input, output }
        });
        placed.collect()
    })
}

fn world() -> impl Strategy<Value = Small> {
    let hardware = (10_u64..60, 1_u32..12, 1_u32..3, 0_u32..9);
    let shape = hardware.prop_flat_map(|(step, sequences, each, devices)| {
        let profile = profile(step, sequences, each);
        (pools(profile.clone()), Just(profile), Just(devices))
    });
    let gate = (any::<bool>(), any::<bool>(), 0_u64..20, 10_u64..120);
    let rest = (any::<u64>(), any::<bool>(), any::<bool>(), 10_u64..120, (0_u32..4, 0_u64..200));
    (shape, requests(), gate, rest).prop_map(|((pools, profile, devices), requests, gate, rest)| {
        let (allowed, starting, open_after, close_after) = gate;
        let (seed, cold, in_turn, window, floor) = rest;
        let mut policy = policy_of(pools);
        policy.scale_down.window = Span::secs(window);
        policy.overflow.allowed = allowed;
        policy.overflow.open_on.starting = starting;
        policy.overflow.open_after = Span::secs(open_after);
        policy.overflow.close_after = Span::secs(close_after);
        Small {
            policy,
            devices: gpus(devices),
            profile,
            requests,
            seed,
            start: if cold { Start::Min } else { Start::Planned },
            routing: if in_turn { Routing::RoundRobin } else { Routing::LeastLoaded },
            floor,
        }
    })
}

fn replayed(small: &Small) -> Run {
    let first: Name = small.policy.pools[0].name.clone();
    let (floor, from) = small.floor;
    let floors = |now: Stamp| -> BTreeMap<Name, Replicas> {
        let floor = if now.0 >= from * 1_000 { floor } else { 0 };
        BTreeMap::from([(first.clone(), Replicas(floor))])
    };
    run(Setup {
        policy: small.policy.clone(),
        gpu_pools: small.devices.clone(),
        profiles: profiles(small.profile.clone()),
        requests: small.requests.as_slice().into(),
        seed: small.seed,
        start: small.start,
        routing: small.routing,
        floors: &floors,
        record: None,
    })
    .expect("a world that can be run")
}

fn assert_each_request_ended_once(small: &Small, run: &Run) {
    assert_eq!(run.outcomes.len(), small.requests.len());
    let mut outside = (0, 0);
    for (request, outcome) in small.requests.iter().zip(&run.outcomes) {
        match *outcome {
            Outcome::Local { first, last } => {
                assert!(request.at < first && first <= last, "{request:?} {outcome:?}");
                let patience = Picos(600 * 1_000_000_000_000);
                assert!(last <= request.at + patience, "{request:?} {outcome:?}");
            }
            Outcome::External { first, last } => {
                assert!(request.at < first && first <= last, "{request:?} {outcome:?}");
                outside.0 += u64::from(request.input);
                outside.1 += u64::from(request.output);
            }
            Outcome::Failed(_) => {}
            Outcome::Open => panic!("{request:?} never ended"),
        }
    }
    assert_eq!(run.external_tokens, outside, "tokens that were paid for");
    assert!(small.policy.overflow.allowed || run.ledger.opens == 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_worlds_keep_the_rules_and_end_every_request_once_and_the_same_way(small in world()) {
        let first = replayed(&small);
        prop_assert!(
            first.ledger.broken == 0,
            "{:?} in {:?}", first.ledger.first_breach(&small.policy), small.policy
        );
        assert_each_request_ended_once(&small, &first);
        let again = replayed(&small);
        prop_assert_eq!(first.ledger.sha256(), again.ledger.sha256());
        prop_assert_eq!(first.outcomes, again.outcomes);
        prop_assert_eq!(first.ledger.changes, again.ledger.changes);
    }
}
