//! Stage 1, observe: from cumulative samples to what happened since the last tick, and to how far
//! each pod can be believed.
//!
//! Counters become differences, a restart (new epoch, or a counter that fell) counts what the new
//! process has done, and the first sample of a pod yields no rate, nor does the first one after it
//! was not seen: what came in between is not what comes now. A pod that shows work but has
//! not moved for [`FROZEN_AFTER`] is not believed: some engines leave their gauges standing when
//! every client hangs up at once.
//!
//! Worked number: generation tokens 120 000, 126 000, 350 (restarted), 4 350 give differences of
//! nothing, 6 000, 350 and 4 000.

use crate::flow::{Flow, Totals};
use crate::observation::{EngineSample, Name, Observation, PodSeen, PoolSeen, Scrape};
use crate::policy::{Policy, PoolPolicy};
use crate::reason::{Reason, Reasons};
use crate::units::{Permille, Replicas, Span, Stamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Work shown without any progress for this long, and for three ticks, makes a pod's gauges
/// unbelievable. Longer than the longest prompt takes to compute.
pub const FROZEN_AFTER: Span = Span::secs(30);

/// Share of a pool's pods that may be unseen without making it blind: 5 %.
const UNSEEN_TOLERATED_PERCENT: u32 = 5;

/// What this stage remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pools: BTreeMap<Name, BTreeMap<Name, PodMemory>>,
    router: Option<RouterTotals>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PodMemory {
    /// What its engines showed a tick ago; empty if it was not seen then.
    engines: BTreeMap<u32, EngineMemory>,
    /// Last time a counter moved or no work was shown.
    moved: Stamp,
    /// It was seen before it was ready, so that its start time can be told. (`ready` of a pod that is
    /// found ready may be from its last restart, and tells nothing.)
    awaited: bool,
    /// First good scrape; from then on the pod is capacity.
    served: Option<Stamp>,
    /// Since when it is not seen, having been seen before.
    unseen: Option<Stamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct EngineMemory {
    epoch: u64,
    totals: Totals,
    shown: (u64, u64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RouterTotals {
    requests: Option<u64>,
}

/// What one tick shows.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Now.
    pub now: Stamp,
    /// Pools in the policy's order.
    pub pools: Vec<PoolView>,
    /// The router's flow, if it can be read.
    pub router: Option<RouterFlow>,
}

/// One pool, one tick.
#[derive(Clone, Debug, Default)]
pub struct PoolView {
    /// `spec.replicas`, if read.
    pub spec: Option<Replicas>,
    /// Pods by uid, in order.
    pub pods: Vec<PodView>,
    /// Believable, serving pods.
    pub serving: Replicas,
    /// Of those, pods that were also seen a tick ago: what they did since is in `flow` and `grown`.
    pub counted: Replicas,
    /// Pods that served and are not seen now.
    pub unseen: Replicas,
    /// Pods that show work and make none.
    pub frozen: Replicas,
    /// Replicas asked for that may still come in time.
    pub coming: Replicas,
    /// Pods without a node.
    pub unscheduled: Replicas,
    /// Pods without a node for longer than their start budget.
    pub unplaceable: Replicas,
    /// Pods being deleted.
    pub draining: Replicas,
    /// Enough is seen to judge the load.
    pub sighted: bool,
    /// Of the pods that are ready, more than a twentieth give no page, whether they ever did or not,
    /// or one that does not say how much waits and runs in each of their engines.
    pub silent: bool,
    /// What the serving and draining pods did since the last tick.
    pub flow: Flow,
    /// Growth of work in the engines that were also seen a tick ago: requests running and waiting
    /// now, less those then.
    pub grown: i64,
    /// Requests waiting for capacity.
    pub waiting: u64,
    /// Serving pods with nothing waiting: what arrives now is begun at once.
    pub without_queue: Replicas,
    /// Requests waiting for something else (KV transfer, adapter).
    pub deferred: u64,
    /// Requests running.
    pub running: u64,
    /// KV tokens in use.
    pub kv_tokens: u64,
    /// Start times, from a node to ready, that ended this tick.
    pub started: Vec<Span>,
    /// What is to be said.
    pub reasons: Reasons,
}

/// One pod, one tick.
#[derive(Clone, Debug)]
pub struct PodView {
    /// Uid.
    pub uid: Name,
    /// How far it is.
    pub state: PodState,
    /// Requests running and waiting.
    pub busy: u64,
    /// Since when it serves.
    pub served: Option<Stamp>,
}

/// How far a pod is, and how far it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// Answers, believed: capacity.
    Serving,
    /// Served before, does not answer now.
    Unseen,
    /// Shows work, makes none.
    Frozen,
    /// Has a node and is on its way.
    Starting,
    /// Has no node yet.
    Pending,
    /// Has no node, budget spent.
    Unplaceable,
    /// Has a node, does not come up.
    StartFailed,
    /// Going away.
    Draining,
}

/// Requests at the router since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterFlow {
    /// Arrived; `None` on the first sight or where the router does not count.
    pub requests: Option<u64>,
    /// Share sent outside, as read back.
    pub share: Permille,
    /// Share that the router was last told to send outside.
    pub ordered: Permille,
    /// An outside destination answers.
    pub external_ready: bool,
    /// Micro-dollars spent outside so far.
    pub spent: u64,
}

/// Runs the stage.
pub fn observe(policy: &Policy, seen: &Observation, memory: &mut Memory) -> Observed {
    let absent = PoolSeen::default();
    let frozen_after = FROZEN_AFTER.max(Span(policy.tick.0.saturating_mul(3)));
    let pools = policy
        .pools
        .iter()
        .map(|pool| {
            let now_seen = seen.pools.get(&pool.name).unwrap_or(&absent);
            let known = memory.pools.entry(pool.name.clone()).or_default();
            pool_view(pool, frozen_after, seen.now, now_seen, known)
        })
        .collect();
    Observed { now: seen.now, pools, router: router_flow(seen, memory) }
}

fn router_flow(seen: &Observation, memory: &mut Memory) -> Option<RouterFlow> {
    // A router that could not be read starts anew: all that came meanwhile has not come in a tick.
    let Some(router) = seen.router.as_ref() else {
        memory.router = None;
        return None;
    };
    let now = RouterTotals { requests: router.requests };
    let before = memory.router.replace(now);
    let since = |now: Option<u64>, then: Option<u64>| match (now, then) {
        // A counter that fell was restarted: what it shows has come since.
        (Some(now), Some(then)) => Some(if now < then { now } else { now - then }),
        _ => None,
    };
    let before = before.unwrap_or_default();
    Some(RouterFlow {
        requests: since(now.requests, before.requests),
        share: router.share,
        ordered: router.ordered,
        external_ready: router.external_ready,
        spent: router.spent,
    })
}

fn pool_view(
    pool: &PoolPolicy,
    frozen_after: Span,
    now: Stamp,
    seen: &PoolSeen,
    known: &mut BTreeMap<Name, PodMemory>,
) -> PoolView {
    known.retain(|uid, _| seen.pods.contains_key(uid));
    let mut view = PoolView { spec: seen.spec, ..PoolView::default() };
    for (uid, pod) in &seen.pods {
        if !known.contains_key(uid) {
            known.insert(uid.clone(), PodMemory { moved: now, ..PodMemory::default() });
        }
        let Some(pod_memory) = known.get_mut(uid) else { continue };
        pod_memory.awaited |= pod.ready.is_none();
        let state = pod_state(pool, frozen_after, now, uid, pod, pod_memory, &mut view);
        let busy = pod
            .engines
            .iter()
            .map(shown)
            .fold(0, |sum: u64, (run, wait)| sum.saturating_add(run).saturating_add(wait));
        view.pods.push(PodView { uid: uid.clone(), state, busy, served: pod_memory.served });
    }
    count(&mut view);
    let ready = || seen.pods.values().filter(|p| p.deleting.is_none() && p.ready.is_some());
    let nodeless =
        seen.pods.values().filter(|p| p.deleting.is_none() && p.scheduled.is_none() && !p.surge);
    view.unscheduled = Replicas(u32::try_from(nodeless.count()).unwrap_or(u32::MAX));
    let silent = ready().filter(|p| !tells_load(pool, p)).count();
    view.silent = silent * 100 > ready().count() * UNSEEN_TOLERATED_PERCENT as usize;
    view
}

/// Whether a pod says how much waits and runs in each engine that it has: what is not said is not
/// zero.
fn tells_load(pool: &PoolPolicy, pod: &PodSeen) -> bool {
    let said = |e: &EngineSample| e.waiting.is_some() && e.running.is_some();
    pod.scrape == Scrape::Fresh
        && pod.engines.len() >= pool.engines_each as usize
        && pod.engines.iter().all(|e| e.awake == Some(false) || said(e))
}

/// Sums up the pods' states.
fn count(view: &mut PoolView) {
    let of = |state: PodState| {
        Replicas(
            view.pods.iter().filter(|p| p.state == state).count().try_into().unwrap_or(u32::MAX),
        )
    };
    view.serving = of(PodState::Serving);
    view.unseen = of(PodState::Unseen);
    view.draining = of(PodState::Draining);
    view.unplaceable = of(PodState::Unplaceable);
    view.frozen = of(PodState::Frozen);
    let lost = view.frozen + of(PodState::StartFailed) + view.unplaceable;
    let spec = view.spec.unwrap_or(Replicas::ZERO);
    view.coming = spec.less(view.serving + view.unseen + lost);
    let all = view.serving.0.saturating_add(view.unseen.0);
    view.sighted =
        view.unseen.0.saturating_mul(100) <= all.saturating_mul(UNSEEN_TOLERATED_PERCENT);
    if !view.sighted {
        view.reasons.push(Reason::Blind { seen: view.serving, unseen: view.unseen });
    }
}

fn pod_state(
    pool: &PoolPolicy,
    frozen_after: Span,
    now: Stamp,
    uid: &Name,
    pod: &PodSeen,
    memory: &mut PodMemory,
    view: &mut PoolView,
) -> PodState {
    let fresh = pod.scrape == Scrape::Fresh && !pod.engines.is_empty();
    let counted = fresh && !memory.engines.is_empty();
    if fresh {
        take_sample(pool, now, uid, pod, memory, view);
    } else {
        memory.engines.clear();
    }
    if pod.deleting.is_some() {
        return PodState::Draining;
    }
    match (memory.served, fresh) {
        (None, _) => not_yet_serving(pool, now, uid, pod, view),
        (Some(_), true) => {
            memory.unseen = None;
            let age = now.since(memory.moved);
            if age >= frozen_after {
                view.reasons.push(Reason::Frozen { pod: uid.clone(), age });
                return PodState::Frozen;
            }
            if pod.engines.iter().all(|e| e.awake == Some(false)) {
                return PodState::Starting;
            }
            view.counted = view.counted + Replicas(u32::from(counted));
            let before = view.waiting;
            add_gauges(pod, view);
            if view.waiting == before {
                view.without_queue = view.without_queue + Replicas(1);
            }
            PodState::Serving
        }
        (Some(_), false) => {
            let since = *memory.unseen.get_or_insert(now);
            view.reasons.push(Reason::Unseen { pod: uid.clone(), how: pod.scrape, since });
            PodState::Unseen
        }
    }
}

fn not_yet_serving(
    pool: &PoolPolicy,
    now: Stamp,
    uid: &Name,
    pod: &PodSeen,
    view: &mut PoolView,
) -> PodState {
    // A rollout's extra pod is nobody's evidence, neither of devices nor of a broken start.
    let late = |from: Stamp| !pod.surge && now.since(from) > pool.startup_timeout;
    match pod.scheduled {
        None if late(pod.created) => {
            view.reasons.push(Reason::Unplaceable { pod: uid.clone() });
            PodState::Unplaceable
        }
        None => PodState::Pending,
        Some(at) if (pod.failing && !pod.surge) || late(at) => {
            view.reasons.push(Reason::StartFailed { pod: uid.clone() });
            PodState::StartFailed
        }
        Some(_) => PodState::Starting,
    }
}

/// Takes a good page in: differences into the flow, progress into the memory.
fn take_sample(
    pool: &PoolPolicy,
    now: Stamp,
    uid: &Name,
    pod: &PodSeen,
    memory: &mut PodMemory,
    view: &mut PoolView,
) {
    let seen = u32::try_from(pod.engines.len()).unwrap_or(u32::MAX);
    if seen < pool.engines_each {
        let expected = pool.engines_each;
        view.reasons.push(Reason::Partial { pod: uid.clone(), seen, expected });
    }
    if memory.served.is_none() && pod.ready.is_some() {
        memory.served = Some(now);
        memory.moved = now;
        if let (true, Some(node), Some(ready)) = (memory.awaited, pod.scheduled, pod.ready) {
            view.started.push(ready.since(node));
        }
    }
    let mut moved = false;
    // Ranks that a page leaves out are forgotten, so that no page can make this grow.
    let known = core::mem::take(&mut memory.engines);
    for engine in &pod.engines {
        let totals = Totals::of(engine);
        let (running, waiting) = shown(engine);
        let before = known.get(&engine.rank).copied();
        if let Some(before) = before {
            let restarted = before.epoch != engine.epoch && before.epoch != 0 && engine.epoch != 0;
            let restarted = view.flow.add(&totals, &before.totals, restarted);
            let then = if restarted { 0 } else { before.shown.0.saturating_add(before.shown.1) };
            let grown = i128::from(running.saturating_add(waiting)) - i128::from(then);
            let grown = i64::try_from(grown).unwrap_or(if grown > 0 { i64::MAX } else { i64::MIN });
            view.grown = view.grown.saturating_add(grown);
            moved |= restarted || totals != before.totals || before.shown != (running, waiting);
        } else {
            moved = true;
        }
        moved |= running == 0 && waiting == 0;
        let shown = (running, waiting);
        memory.engines.insert(engine.rank, EngineMemory { epoch: engine.epoch, totals, shown });
    }
    if moved {
        memory.moved = now;
    }
}

fn add_gauges(pod: &PodSeen, view: &mut PoolView) {
    for engine in &pod.engines {
        let (running, waiting) = shown(engine);
        let deferred = engine.deferred.unwrap_or(0).min(waiting);
        view.running = view.running.saturating_add(running);
        view.deferred = view.deferred.saturating_add(deferred);
        view.waiting = view.waiting.saturating_add(waiting - deferred);
        if let (Some(used), Some(capacity)) = (engine.kv_used, engine.kv_capacity) {
            let tokens = u128::from(used.0) * u128::from(capacity.0) / 1_000_000;
            view.kv_tokens = view.kv_tokens.saturating_add(u64::try_from(tokens).unwrap_or(0));
        }
    }
}

/// Running and waiting, as shown; what is not said is not work that could be acted on.
fn shown(engine: &EngineSample) -> (u64, u64) {
    (engine.running.unwrap_or(0), engine.waiting.unwrap_or(0))
}
