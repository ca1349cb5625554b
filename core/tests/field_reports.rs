//! Failures that people reported of autoscalers for inference, each with the right outcome. Whole
//! decisions on a fleet told in rates.

mod support;

use spillgate_core::observation::{EngineSample, PodSeen, PoolSeen, Scrape};
use spillgate_core::observe::{Memory, observe};
use spillgate_core::policy::{Policy, Role};
use spillgate_core::reason::Reason;
use spillgate_core::units::{Replicas, Span, Stamp};
use support::fleet::{BUSY, Fleet, IDLE, PENDING, Pod, STARTING, on, to};

fn web(min: u32, max: u32) -> Policy {
    support::policy(vec![support::pool("web", Role::Mixed, min, max)])
}

fn fleet(policy: Policy, pods: Vec<Pod>) -> Fleet {
    let mut fleet = Fleet::new(policy);
    fleet.pools.insert("web", pods);
    fleet
}

fn says(decision: &spillgate_core::decision::Decision, pool: &str, code: &str) -> bool {
    on(decision, pool).reasons.iter().any(|r| r.code() == code)
}

#[test]
fn a_metrics_outage_at_peak_hour_shrinks_nothing() {
    let mut fleet = fleet(web(1, 10), vec![BUSY; 8]);
    fleet.seconds(400);
    for pod in fleet.pools.get_mut("web").expect("the pool") {
        pod.scrape = Scrape::NoSignal;
    }
    for _ in 0..900 {
        let decision = fleet.second();
        assert_eq!(to(&decision, "web"), None);
        assert!(says(&decision, "web", "Blind"), "{decision:?}");
    }
}

#[test]
fn a_metrics_outage_is_no_reason_to_pay() {
    let mut fleet = fleet(web(1, 10), vec![BUSY; 3]);
    fleet.arrivals = Some(3);
    fleet.seconds(60);
    for pod in fleet.pools.get_mut("web").expect("the pool") {
        pod.scrape = Scrape::Timeout;
    }
    for _ in 0..300 {
        let decision = fleet.second();
        assert_eq!((decision.route, decision.excess.0), (None, 0), "{decision:?}");
    }
}

#[test]
fn what_came_during_a_metrics_outage_has_not_come_in_its_last_second() {
    let mut fleet = fleet(web(1, 40), vec![BUSY; 8]);
    let before = on(&fleet.seconds(60), "web").need_milli.expect("a need");
    let see = |fleet: &mut Fleet, how: Scrape| {
        fleet.pools.get_mut("web").expect("the pool").iter_mut().for_each(|pod| pod.scrape = how);
    };
    see(&mut fleet, Scrape::Timeout);
    fleet.seconds(120);
    see(&mut fleet, Scrape::Fresh);
    for _ in 0..30 {
        let decision = fleet.second();
        assert_eq!(to(&decision, "web"), None, "{decision:?}");
        let need = on(&decision, "web").need_milli;
        assert!(
            need.is_none_or(|need| need * 2 > before && need < before * 2),
            "{before} {need:?}"
        );
    }
}

#[test]
fn what_came_while_the_router_was_unread_has_not_come_in_a_second() {
    let mut fleet = fleet(web(1, 40), vec![BUSY; 8]);
    fleet.arrivals = Some(8);
    fleet.seconds(60);
    fleet.router_read = false;
    fleet.seconds(120);
    fleet.router_read = true;
    for _ in 0..30 {
        let decision = fleet.second();
        assert_eq!(to(&decision, "web"), None, "{decision:?}");
    }
}

#[test]
fn nothing_that_serves_opens_the_gate_before_anybody_is_refused() {
    let mut fleet = fleet(web(1, 10), vec![STARTING]);
    fleet.arrivals = Some(0);
    let share = fleet.seconds(11).route;
    assert_eq!(share.map(|s| s.0), Some(1_000));
}

#[test]
fn one_pod_that_does_not_answer_does_not_stop_growth() {
    let drowning = Pod { waiting: 30, running: 64, finishes: 4, ..BUSY };
    let silent = Pod { scrape: Scrape::Timeout, ..drowning.clone() };
    let mut fleet = fleet(web(1, 20), vec![drowning.clone(), drowning.clone(), drowning, BUSY]);
    fleet.seconds(20);
    fleet.pools.get_mut("web").expect("the pool")[3] = silent;
    let mut grown = false;
    for _ in 0..30 {
        grown |= to(&fleet.second(), "web").is_some_and(|to| to > 4);
    }
    assert!(grown);
}

#[test]
fn bounds_hold_without_any_signal() {
    let blind = Pod { scrape: Scrape::Refused, ..BUSY };
    let mut fleet = fleet(web(2, 8), vec![blind]);
    assert_eq!(to(&fleet.seconds(3), "web"), Some(2));
}

#[test]
fn no_traffic_is_idle_and_gives_the_devices_back_one_by_one() {
    let mut fleet = fleet(web(1, 8), vec![IDLE; 6]);
    let mut removed = Vec::new();
    for second in 1..=660 {
        let decision = fleet.second();
        if let Some(to) = to(&decision, "web") {
            removed.push((second, to));
            fleet.pools.get_mut("web").expect("the pool").truncate(to as usize);
        }
    }
    let downs: Vec<u32> = removed.iter().map(|&(_, to)| to).collect();
    assert_eq!(downs, [5, 4, 3, 2, 1], "{removed:?}");
    assert!(removed[0].0 >= 300 && removed[0].0 <= 320, "{removed:?}");
    assert!(removed.windows(2).all(|w| w[1].0 - w[0].0 >= 60), "{removed:?}");
}

#[test]
fn saturated_completions_are_not_demand() {
    // One engine finishes 2 a second and never more; 18 wait all the time.
    let saturated = Pod { running: 2, waiting: 18, finishes: 2, ..BUSY };
    let mut fleet = fleet(web(1, 8), vec![saturated]);
    let mut grown = 0;
    for _ in 0..60 {
        grown = grown.max(to(&fleet.second(), "web").unwrap_or(0));
    }
    // The profile thinks one replica could do more than 2 a second; the queue says otherwise.
    assert!(grown >= 2, "{grown}");
}

#[test]
fn need_above_the_maximum_goes_to_the_maximum_and_says_so() {
    let mut fleet = fleet(web(1, 8), vec![BUSY; 5]);
    fleet.arrivals = Some(200);
    let decision = fleet.seconds(90);
    assert_eq!(to(&decision, "web"), Some(8));
    assert!(says(&decision, "web", "AtMax"), "{decision:?}");
}

#[test]
fn replicas_that_start_are_not_ordered_again() {
    let mut fleet = fleet(web(1, 32), vec![BUSY; 2]);
    fleet.arrivals = Some(30);
    let first = fleet.seconds(90);
    let ordered = to(&first, "web").expect("growth");
    let pods = fleet.pools.get_mut("web").expect("the pool");
    pods.resize(ordered as usize, STARTING);
    for _ in 0..100 {
        let more = to(&fleet.second(), "web").unwrap_or(ordered);
        assert!(more <= ordered + 1, "{more} after {ordered}");
    }
}

#[test]
fn crashing_pods_of_a_rollout_call_for_no_growth() {
    let crashing = Pod { failing: true, ..STARTING };
    let mut fleet = fleet(web(1, 8), vec![Pod { finishes: 1, ..BUSY }, crashing.clone(), crashing]);
    fleet.spec.insert("web", 1);
    for _ in 0..200 {
        assert_eq!(to(&fleet.second(), "web"), None);
    }
    assert!(says(&fleet.second(), "web", "StartFailed"));
}

#[test]
fn a_pod_that_hangs_is_named_and_its_queue_does_not_climb_to_the_maximum() {
    let healthy = Pod { running: 8, finishes: 2, ..BUSY };
    let wedged = Pod { running: 0, waiting: 80, finishes: 0, ..BUSY };
    let mut fleet = fleet(web(1, 20), vec![wedged, healthy.clone(), healthy]);
    let mut most = 3;
    for _ in 0..600 {
        let decision = fleet.second();
        most = most.max(to(&decision, "web").unwrap_or(0));
    }
    assert!(most <= 6, "{most}");
    assert!(says(&fleet.second(), "web", "Frozen"));
}

#[test]
fn pods_that_are_going_count_neither_as_load_nor_as_capacity() {
    let leaving = Pod { deleting: true, running: 1, finishes: 0, ..BUSY };
    let mut pods = vec![Pod { running: 60, finishes: 6, ..BUSY }; 3];
    pods.extend(vec![leaving; 5]);
    let mut fleet = fleet(web(1, 12), pods);
    fleet.spec.insert("web", 3);
    fleet.arrivals = Some(60);
    assert!(to(&fleet.seconds(60), "web").is_some_and(|to| to > 3));
}

#[test]
fn the_free_device_goes_to_the_side_that_drowns() {
    let mut fleet = Fleet::new(support::disaggregated());
    let prefill = Pod { running: 1, waiting: 60, finishes: 10, ..BUSY };
    fleet.pools.insert("prefill", vec![prefill]);
    fleet.pools.insert("decode", vec![Pod { running: 8, finishes: 10, ..BUSY }]);
    fleet.arrivals = Some(20);
    fleet.devices = Some(6);
    let decision = fleet.seconds(60);
    assert_eq!(to(&decision, "prefill"), Some(2), "{decision:?}");
    assert_eq!(to(&decision, "decode"), None);
}

#[test]
fn requests_parked_for_a_transfer_ask_for_no_decode() {
    let story = |deferred: u64| {
        let mut fleet = Fleet::new(support::disaggregated());
        fleet.pools.insert("prefill", vec![Pod { running: 4, finishes: 5, ..BUSY }; 2]);
        let parked = Pod { running: 8, waiting: 2_000, deferred, finishes: 5, ..BUSY };
        fleet.pools.insert("decode", vec![parked]);
        fleet.arrivals = Some(5);
        let decision = fleet.seconds(60);
        on(&decision, "decode").need_milli.expect("known")
    };
    assert!(story(2_000) < 1_000, "{}", story(2_000));
    assert!(story(0) > 2 * story(2_000), "{}", story(0));
}

#[test]
fn a_pending_replica_is_cancelled_when_traffic_stops_and_the_serving_one_stays() {
    let mut fleet = fleet(web(1, 8), vec![BUSY, PENDING]);
    fleet.devices = Some(2);
    fleet.arrivals = Some(30);
    fleet.seconds(60);
    fleet.arrivals = Some(0);
    fleet.pools.get_mut("web").expect("the pool")[0] = IDLE;
    let mut cancelled = None;
    for second in 0..60 {
        let decision = fleet.second();
        if let Some(to) = to(&decision, "web") {
            assert_eq!(to, 1);
            assert!(says(&decision, "web", "Cancelled"));
            cancelled.get_or_insert(second);
            break;
        }
    }
    assert!(cancelled.is_some());
}

#[test]
fn zero_set_by_hand_stays_zero() {
    let mut fleet = fleet(web(1, 8), Vec::new());
    fleet.spec.insert("web", 0);
    fleet.arrivals = Some(50);
    for _ in 0..100 {
        let decision = fleet.second();
        assert_eq!(to(&decision, "web"), None);
        assert!(on(&decision, "web").reasons.contains(&Reason::PausedAtZero));
    }
}

#[test]
fn an_unknown_inventory_is_tried_in_single_steps() {
    let mut fleet = fleet(web(1, 20), vec![BUSY; 2]);
    fleet.devices = None;
    fleet.arrivals = Some(100);
    let first = to(&fleet.seconds(60), "web").expect("growth");
    assert!(first > 2 && first <= 6, "{first}");
    let pods = fleet.pools.get_mut("web").expect("the pool");
    pods.resize(first as usize, PENDING);
    assert_eq!(to(&fleet.seconds(30), "web"), None, "what is Pending teaches");
}

#[test]
fn a_trickle_wakes_a_pool_that_may_sleep() {
    let mut fleet = fleet(web(0, 4), vec![IDLE]);
    fleet.arrivals = Some(1);
    let busy = Pod { finishes: 1, running: 1, ..BUSY };
    fleet.pools.insert("web", vec![busy]);
    let need = on(&fleet.seconds(120), "web").need_milli.expect("a need");
    assert!(need > 0 && need < 500, "{need} is no trickle");
    fleet.pools.insert("web", Vec::new());
    let woken = (0..10).any(|_| to(&fleet.second(), "web") == Some(1));
    assert!(woken);
}

#[test]
fn a_page_that_does_not_say_what_waits_is_no_proof_of_an_empty_queue() {
    let mut fleet = fleet(web(1, 8), vec![IDLE; 4]);
    fleet.arrivals = Some(0);
    fleet.says_waiting = false;
    for _ in 0..700 {
        let decision = fleet.second();
        assert_eq!(to(&decision, "web"), None);
    }
    assert!(says(&fleet.second(), "web", "HeldBlind"));
    fleet.says_waiting = true;
    assert!((0..5).any(|_| to(&fleet.second(), "web") == Some(3)));
}

#[test]
fn the_extra_pod_of_a_rollout_is_no_evidence_of_exhaustion() {
    let surge = Pod { surge: true, ..PENDING };
    let mut fleet = fleet(web(1, 8), vec![BUSY, BUSY, surge]);
    fleet.spec.insert("web", 2);
    fleet.arrivals = Some(2);
    for _ in 0..900 {
        let decision = fleet.second();
        assert!(!says(&decision, "web", "Unplaceable") && !says(&decision, "web", "Exhausted"));
        assert!(!says(&decision, "web", "Cancelled"), "{decision:?}");
    }
}

#[test]
fn a_start_is_learned_only_where_it_was_watched() {
    let policy = web(1, 8);
    let started = |seconds: u64, readied: Option<u64>, memory: &mut Memory| {
        let pod = PodSeen {
            scheduled: Some(Stamp(0)),
            ready: readied.map(|at| Stamp(at * 1_000)),
            scrape: Scrape::Fresh,
            engines: vec![EngineSample::default()],
            ..PodSeen::default()
        };
        let pods = [("a".into(), pod)].into();
        let pool = PoolSeen { spec: Some(Replicas(1)), pods, ..PoolSeen::default() };
        let seen = support::seen(Stamp(seconds * 1_000), [("web".into(), pool)].into());
        observe(&policy, &seen, memory).pools.remove(0).started
    };
    // Found ready, a day after it got its node: readiness that came back, not a start of a day.
    assert_eq!(started(86_500, Some(86_400), &mut Memory::default()), []);
    let mut memory = Memory::default();
    assert_eq!(started(100, None, &mut memory), []);
    assert_eq!(started(116, Some(115), &mut memory), [Span::secs(115)]);
    assert_eq!(started(117, Some(115), &mut memory), []);
}

#[test]
fn a_pool_that_may_sleep_does_so_when_nothing_runs_and_wakes_at_the_first_request() {
    let mut fleet = fleet(web(0, 8), vec![Pod { running: 1, ..IDLE }]);
    fleet.arrivals = Some(0);
    for _ in 0..20 {
        // One answer that takes its time, told by a counter that moves.
        fleet.pools.get_mut("web").expect("the pool")[0].done += 1;
        assert_eq!(to(&fleet.seconds(25), "web"), None, "something runs");
    }
    fleet.pools.get_mut("web").expect("the pool")[0] = IDLE;
    let slept = (0..400).find_map(|_| to(&fleet.second(), "web"));
    assert_eq!(slept, Some(0));
    fleet.pools.insert("web", Vec::new());
    assert_eq!(to(&fleet.seconds(30), "web"), None, "nobody asks");
    fleet.arrivals = Some(1);
    let woken = (0..5).find_map(|_| to(&fleet.second(), "web"));
    assert_eq!(woken, Some(1));
}

#[test]
fn a_pool_that_may_sleep_stays_awake_where_nobody_would_tell_of_a_request() {
    let mut fleet = fleet(web(0, 8), vec![IDLE]);
    assert!((0..700).all(|_| to(&fleet.second(), "web").is_none()));
}
