//! The ten rules on arbitrary worlds: whatever is observed, however absurd, no decision breaks a
//! rule, nothing panics, and the same inputs give the same decisions.

mod support;

use proptest::prelude::*;
use spillgate_core::audit::Broken;
use spillgate_core::brain::{self, Memory};
use spillgate_core::decision::Decision;
use spillgate_core::observation::{
    DevicesSeen, EngineSample, Histogram, Observation, PodSeen, PoolSeen, RouterSeen, Scrape,
    WriteOutcome,
};
use spillgate_core::policy::{Policy, Supply};
use spillgate_core::share::share;
use spillgate_core::units::{Gpus, Permille, Ppm, Replicas, Span, Stamp, Tokens};
use std::collections::BTreeMap;

/// A number as a page may have it: small, large, or absurd.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..100, 2 => 0_u64..1_000_000, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn said() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![4 => number().prop_map(Some), 1 => Just(None)]
}

fn histogram() -> impl Strategy<Value = Option<Histogram>> {
    let filled = (prop::collection::vec(number(), 4), number()).prop_map(|(cumulative, sum)| {
        Some(Histogram { bounds: [100_u64, 1_000, 10_000].into(), cumulative, sum })
    });
    prop_oneof![3 => filled, 1 => Just(None)]
}

fn engine() -> impl Strategy<Value = EngineSample> {
    let gauges = (said(), said(), said(), prop::option::of(0_u32..2_000_000));
    let counters = prop::collection::vec(said(), 7);
    let histograms = (histogram(), histogram(), histogram());
    (gauges, counters, histograms, 0_u64..3, prop::option::of(any::<bool>())).prop_map(
        |(
            (waiting, deferred, running, kv),
            counters,
            (ttft, itl, prompt_lengths),
            epoch,
            awake,
        )| {
            EngineSample {
                epoch,
                awake,
                waiting,
                deferred,
                running,
                kv_used: kv.map(Ppm),
                kv_capacity: counters[6].map(Tokens),
                prompt_tokens: counters[0],
                computed_tokens: counters[1],
                generation_tokens: counters[2],
                finished: counters[3],
                rejected: counters[4],
                preempted: counters[5],
                ttft,
                itl,
                prompt_lengths,
                ..EngineSample::default()
            }
        },
    )
}

fn scrape() -> impl Strategy<Value = Scrape> {
    prop_oneof![
        6 => Just(Scrape::Fresh),
        1 => Just(Scrape::Timeout),
        1 => Just(Scrape::Http(500)),
        1 => Just(Scrape::NoSignal),
    ]
}

fn pod() -> impl Strategy<Value = PodSeen> {
    let surge = prop::bool::weighted(0.1);
    (0_u8..12, any::<bool>(), surge, scrape(), prop::collection::vec(engine(), 0..2)).prop_map(
        |(life, failing, surge, scrape, engines)| {
            let reached = |stage: u8| (life >= stage).then_some(Stamp(0));
            let ready = reached(3);
            PodSeen {
                created: Stamp(0),
                scheduled: reached(1),
                ready,
                deleting: reached(11),
                failing: failing && life == 1,
                surge,
                scrape: if ready.is_some() { scrape } else { Scrape::Untried },
                engines: if ready.is_some() { engines } else { Vec::new() },
            }
        },
    )
}

fn pool() -> impl Strategy<Value = PoolSeen> {
    (
        prop::option::weighted(0.9, 0_u32..12),
        prop::collection::vec(pod(), 0..8),
        0_u64..5,
        0_u32..4,
        prop::option::of(prop_oneof![Just(WriteOutcome::Applied), Just(WriteOutcome::Conflict)]),
    )
        .prop_map(|(spec, pods, version, floor, last_write)| PoolSeen {
            spec: spec.map(Replicas),
            status: spec.map(Replicas),
            version,
            last_write,
            floor: Replicas(floor),
            pods: pods
                .into_iter()
                .enumerate()
                .map(|(i, p)| (format!("pod-{i}").into(), p))
                .collect(),
        })
}

fn router() -> impl Strategy<Value = Option<RouterSeen>> {
    let known = (said(), said(), 0_u32..1_200, any::<bool>(), number()).prop_map(
        |(requests, external, share, external_ready, spent)| RouterSeen {
            requests,
            external,
            refused: None,
            share: Permille(share),
            ordered: Permille(share / 7 * 7),
            external_ready,
            spent,
        },
    );
    prop_oneof![3 => known.prop_map(Some), 1 => Just(None)]
}

fn observation() -> impl Strategy<Value = Observation> {
    let devices = (0_u32..32, 0_u32..32, 0_u32..8).prop_map(|(all, ours, others)| DevicesSeen {
        allocatable: Gpus(all),
        used_by_us: Gpus(ours),
        used_by_others: Gpus(others),
    });
    (pool(), pool(), router(), prop::option::weighted(0.8, devices)).prop_map(
        |(decode, prefill, router, devices)| Observation {
            now: Stamp(0),
            pools: BTreeMap::from([("decode".into(), decode), ("prefill".into(), prefill)]),
            router,
            devices: devices.map(|d| ("h100".into(), d)).into_iter().collect(),
        },
    )
}

/// Runs the brain over observations a given time apart.
fn run(policy: &Policy, seen: &[Observation]) -> Vec<(Decision, Vec<Broken>)> {
    run_on(Supply::Fixed, policy, seen)
}

/// The same, with devices that come from there.
fn run_on(supply: Supply, policy: &Policy, seen: &[Observation]) -> Vec<(Decision, Vec<Broken>)> {
    let (profiles, mut gpu_pools) = (support::profiles(), support::gpu_pools(16));
    gpu_pools[0].supply = supply;
    let mut memory = Memory::default();
    let mut results = Vec::new();
    let mut previous: Option<&Observation> = None;
    for now in seen {
        let assessment = brain::assess(policy, &profiles, now, &mut memory);
        let grants = assessment.asks.iter().map(|(gpu_pool, ask)| {
            let unknown = DevicesSeen { allocatable: Gpus(16), ..DevicesSeen::default() };
            let devices = now.devices.get(gpu_pool).copied().unwrap_or(unknown);
            (gpu_pool.clone(), share(devices, Gpus(16), std::slice::from_ref(ask)))
        });
        let grants = grants.collect();
        results.push(brain::settle(
            policy,
            &gpu_pools,
            previous,
            now,
            assessment,
            &grants,
            &mut memory,
        ));
        previous = Some(now);
    }
    results
}

fn series() -> impl Strategy<Value = Vec<Observation>> {
    let step = prop_oneof![3 => Just(1_000_u64), 2 => 0_u64..60_000, 1 => 0_u64..1_000_000];
    prop::collection::vec((observation(), step), 1..30).prop_map(|steps| {
        let mut now = 0_u64;
        let timed = steps.into_iter().map(|(mut seen, step)| {
            now += step;
            seen.now = Stamp(now);
            seen
        });
        timed.collect()
    })
}

/// A world that stands still: the same observation again and again.
fn standing() -> impl Strategy<Value = Vec<Observation>> {
    (observation(), 1_u64..30_000).prop_map(|(seen, step)| {
        let at = |i: u64| Observation { now: Stamp(i * step), ..seen.clone() };
        (0..40).map(at).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_decision_breaks_a_rule(seen in prop_oneof![series(), standing()]) {
        for (decision, broken) in run(&support::disaggregated(), &seen) {
            prop_assert!(broken.is_empty(), "{broken:?} by {decision:?}");
        }
    }

    #[test]
    fn no_decision_breaks_a_rule_where_nodes_can_be_ordered(seen in series(), most in 0_u32..4) {
        let supply = Supply::Elastic {
            provision_timeout: Span::mins(10),
            max_pending: Replicas(most),
        };
        for (decision, broken) in run_on(supply, &support::disaggregated(), &seen) {
            prop_assert!(broken.is_empty(), "{broken:?} by {decision:?}");
        }
    }

    #[test]
    fn same_inputs_give_same_decisions(seen in series()) {
        let policy = support::disaggregated();
        prop_assert_eq!(run(&policy, &seen), run(&policy, &seen));
    }

    #[test]
    fn every_hold_with_unmet_need_says_why(seen in series()) {
        for (decision, _) in run(&support::disaggregated(), &seen) {
            for pool in &decision.pools {
                prop_assert!(!pool.reasons.is_empty(), "{pool:?}");
            }
        }
    }
}
