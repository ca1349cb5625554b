//! Stage 3, estimate: the work that is offered, not the work that gets done.
//!
//! Arrivals are counted as far upstream as somebody counts them: at the router, else at the
//! engines (finished + growth of work in the system + refusals, divided by the share that stays at
//! home, as read back). Lengths come from the tokens of prefills that ended; output lengths are
//! tokens generated over requests finished, which is the estimate that work in flight does not
//! bias (an exponential's censored mean).
//!
//! Worked number: 55 requests a second of 1 155 prompt tokens, at 59.1 ms of prefill work and 0.64
//! of a step's base of 14.1 ms each, keep 55 * 0.0681 = 3.7 prefill replicas busy.

use crate::flow::Flow;
use crate::model::{Mix, Profile};
use crate::observation::Name;
use crate::observe::{Observed, PoolView};
use crate::policy::{Policy, PoolPolicy, Role};
use crate::units::{Load, Ratio, ReqRate, Span, Stamp};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Rate window: at most this long, shorter when it holds [`ARRIVALS_ENOUGH`].
const RATE_WINDOW: Span = Span::secs(15);
/// Arrivals that make a rate credible: Poisson noise of 10 %.
const ARRIVALS_ENOUGH: f64 = 100.0;
/// Lengths are averaged over this.
const MIX_WINDOW: Span = Span::secs(60);
/// Requests that make a mean length credible.
const LENGTHS_ENOUGH: u64 = 20;
/// Requests that must do where a whole window brings no more.
const LENGTHS_FEW: u64 = 3;
/// The share at home is taken as at least this when local demand is scaled up by it.
const HOME_SHARE_LEAST: f64 = 0.2;

/// What this stage remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    last: Option<Stamp>,
    ticks: VecDeque<Tick>,
    mix: Option<Mix>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Tick {
    at: Stamp,
    length: Span,
    arrivals: Option<f64>,
    entry: Flow,
    exit: Flow,
}

/// Demand as it stands now.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    /// Requests arriving, wherever they go. `None`: nobody has said.
    pub requests: Option<ReqRate>,
    /// What they look like. `None`: too few have been seen.
    pub mix: Option<Mix>,
    /// One a role, in the order of [`Role`].
    pub roles: Vec<RoleLoad>,
}

/// Demand on the pools of one role.
#[derive(Clone, Copy, Debug)]
pub struct RoleLoad {
    /// The role.
    pub role: Role,
    /// Who waits, and how many replicas there are.
    pub crowd: Crowd,
    /// Reference replicas (of the role's first pool) kept busy; `None`: unknown.
    pub load: Option<Load>,
    /// Work waiting that more capacity would relieve, in seconds of one reference replica. A queue
    /// at some replicas beside others that have none is an old one: nobody can take it over.
    pub backlog: f64,
    /// Requests that one reference replica finishes in a second when busy.
    pub each: ReqRate,
    /// How long the last of those that wait will wait, by Little's law: waiting over first tokens
    /// a second, in seconds. The engines' own TTFT tells it only when it is over. `None`: nothing is
    /// served, or some replicas have no queue.
    pub wait: Option<f64>,
}

/// Who waits at the pools of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Requests waiting for capacity.
    pub waiting: u64,
    /// Replicas that serve, those not seen included.
    pub there: u64,
    /// Replicas with nothing waiting.
    pub free: u64,
}

/// Runs the stage. `slowness` is one a pool, measured over predicted.
pub fn estimate(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    observed: &Observed,
    slowness: &[Ratio],
    memory: &mut Memory,
) -> Offered {
    push_tick(policy, observed, memory);
    let requests = request_rate(&memory.ticks);
    let pressed = memory.mix.is_none() && observed.pools.iter().any(is_pressed);
    if let Some(mix) = mean_lengths(policy, &memory.ticks, pressed) {
        memory.mix = Some(mix);
    }
    let mix = memory.mix;
    let mut roles: Vec<RoleLoad> = Vec::new();
    for (index, pool) in policy.pools.iter().enumerate() {
        if roles.iter().any(|r| r.role == pool.role) {
            continue;
        }
        let slow = slowness.get(index).copied().unwrap_or(Ratio::ONE);
        let each = mix.map_or(ReqRate::ZERO, |mix| capacity(policy, profiles, pool, &mix, slow));
        let crowd = Crowd::of(policy, observed, pool.role);
        let (waiting, stuck) = (crowd.waiting as f64, crowd.is_stuck());
        let served = served_rate(&memory.ticks, pool.role);
        let busy = |requests: f64| if each.get() > 0.0 { requests / each.get() } else { 0.0 };
        roles.push(RoleLoad {
            role: pool.role,
            crowd,
            load: requests
                .filter(|r| each.get() > 0.0 || r.get() == 0.0)
                .map(|rate| Load::new(busy(rate.get()))),
            backlog: if stuck { 0.0 } else { busy(waiting) },
            each,
            wait: served.filter(|&rate| rate > 0.0 && !stuck).map(|rate| waiting / rate),
        });
    }
    roles.sort_by_key(|r| r.role);
    Offered { requests, mix, roles }
}

/// Requests per second that one replica of `pool` carries when busy, as slow as it really is.
pub(crate) fn capacity(
    policy: &Policy,
    profiles: &BTreeMap<Name, Profile>,
    pool: &PoolPolicy,
    mix: &Mix,
    slowness: Ratio,
) -> ReqRate {
    let Some(profile) = profiles.get(&pool.profile) else { return ReqRate::ZERO };
    let ideal = profile.capacity(pool.role, mix, policy.objectives.itl);
    ReqRate::new(ideal.get() / slowness.get().max(0.1))
}

/// True for the pools that requests enter first.
const fn is_entry(role: Role) -> bool {
    matches!(role, Role::Prefill | Role::Mixed | Role::Pooling)
}

/// More requests wait than replicas serve.
fn is_pressed(view: &PoolView) -> bool {
    view.waiting > u64::from(view.serving.0)
}

impl Crowd {
    fn of(policy: &Policy, observed: &Observed, role: Role) -> Self {
        let pools = policy.pools.iter().zip(&observed.pools).filter(|(p, _)| p.role == role);
        pools.fold(Self::default(), |crowd, (_, view)| Self {
            waiting: crowd.waiting.saturating_add(view.waiting),
            there: crowd.there + u64::from(view.serving.0) + u64::from(view.unseen.0),
            free: crowd.free + u64::from(view.without_queue.0),
        })
    }

    /// More than a quarter of the replicas have no queue: what waits elsewhere is stuck there.
    const fn is_stuck(self) -> bool {
        self.free * 4 > self.there
    }
}

fn push_tick(policy: &Policy, observed: &Observed, memory: &mut Memory) {
    let (mut entry, mut exit) = (Flow::default(), Flow::default());
    for (pool, view) in policy.pools.iter().zip(&observed.pools) {
        if is_entry(pool.role) {
            entry.merge(&view.flow);
        }
        if !matches!(pool.role, Role::Prefill) {
            exit.merge(&view.flow);
        }
    }
    let arrivals = arrivals(policy, observed, &entry);
    let length = memory.last.map_or(Span::ZERO, |last| observed.now.since(last));
    memory.last = Some(observed.now);
    if length > Span::ZERO {
        memory.ticks.push_back(Tick { at: observed.now, length, arrivals, entry, exit });
    }
    // A clock that went back must not let ticks pile up until it has caught up.
    while memory.ticks.back().is_some_and(|t| t.at > observed.now) {
        memory.ticks.pop_back();
    }
    let kept = MIX_WINDOW + MIX_WINDOW;
    while memory.ticks.front().is_some_and(|t| observed.now.since(t.at) > kept) {
        memory.ticks.pop_front();
    }
}

/// Requests that came since the last tick, if somebody can tell. Pods that are not seen, or were not
/// a tick ago, are taken to get as many as the others.
fn arrivals(policy: &Policy, observed: &Observed, entry: &Flow) -> Option<f64> {
    if let Some(requests) = observed.router.and_then(|r| r.requests) {
        return Some(requests as f64);
    }
    let (mut grown, mut seen, mut unseen) = (0.0, 0.0, 0.0);
    for (pool, view) in policy.pools.iter().zip(&observed.pools) {
        if is_entry(pool.role) {
            grown += view.grown as f64;
            seen += f64::from(view.counted.0);
            unseen += f64::from(view.serving.less(view.counted).0) + f64::from(view.unseen.0);
        }
    }
    if seen == 0.0 {
        return None;
    }
    let local = (entry.finished as f64 + entry.rejected as f64 + grown).max(0.0);
    let home = observed.router.map_or(1.0, |r| 1.0 - r.share.ratio().get());
    Some(local * (seen + unseen) / seen / home.max(HOME_SHARE_LEAST))
}

/// Arrivals per second over the last fifteen seconds; sooner, where a hundred arrivals show with
/// three standard deviations to spare that it has become more.
fn request_rate(ticks: &VecDeque<Tick>) -> Option<ReqRate> {
    let (mut arrivals, mut seconds) = (0.0, 0.0);
    let mut sure = 0.0_f64;
    for tick in ticks.iter().rev() {
        let Some(came) = tick.arrivals else { break };
        arrivals += came;
        seconds += tick.length.as_secs();
        if arrivals >= ARRIVALS_ENOUGH {
            let least = arrivals - 3.0 * libm::sqrt(arrivals);
            sure = sure.max(least / seconds);
        }
        if seconds >= RATE_WINDOW.as_secs() {
            break;
        }
    }
    (seconds > 0.0).then(|| ReqRate::new((arrivals / seconds).max(sure)))
}

/// First tokens a second that the pools of a role gave over the rate window.
fn served_rate(ticks: &VecDeque<Tick>, role: Role) -> Option<f64> {
    let (mut first_tokens, mut seconds) = (0_u64, 0.0);
    for tick in ticks.iter().rev() {
        let flow = if is_entry(role) { &tick.entry } else { &tick.exit };
        first_tokens = first_tokens.saturating_add(flow.first_tokens);
        seconds += tick.length.as_secs();
        if seconds >= RATE_WINDOW.as_secs() {
            break;
        }
    }
    (seconds > 0.0).then(|| first_tokens as f64 / seconds)
}

/// Mean lengths over the last minute, or over two where a minute holds too few. Where nothing is
/// known yet and a queue forms (`pressed`), a handful in a rate window is better than to wait.
fn mean_lengths(policy: &Policy, ticks: &VecDeque<Tick>, pressed: bool) -> Option<Mix> {
    let generates = policy.pools.iter().any(|p| matches!(p.role, Role::Decode | Role::Mixed));
    let (mut entry, mut exit, mut seconds) = (Flow::default(), Flow::default(), 0.0);
    for tick in ticks.iter().rev() {
        entry.merge(&tick.entry);
        exit.merge(&tick.exit);
        seconds += tick.length.as_secs();
        let enough = entry.first_tokens >= LENGTHS_ENOUGH && exit.finished >= LENGTHS_ENOUGH;
        if enough && seconds >= MIX_WINDOW.as_secs() {
            break;
        }
    }
    // A handful will do once a full window has brought no more than that.
    let window = if pressed { RATE_WINDOW } else { MIX_WINDOW };
    let needed = if seconds >= window.as_secs() { LENGTHS_FEW } else { LENGTHS_ENOUGH };
    let prompts_known = entry.first_tokens >= needed;
    let outputs_known = !generates || exit.finished >= needed;
    if !prompts_known || !outputs_known {
        return None;
    }
    let context = entry.prompt as f64 / entry.first_tokens as f64;
    let computed = if entry.prompt_where_computed > 0 {
        entry.computed as f64 / entry.prompt_where_computed as f64
    } else {
        1.0
    };
    let input = context * computed;
    let squares = if entry.prompts > 0 && entry.prompt_squares > 0.0 {
        entry.prompt_squares / entry.prompts as f64 * computed * computed
    } else {
        2.0 * input * input
    };
    let output = if generates { exit.generated as f64 / exit.finished as f64 } else { 1.0 };
    Some(Mix { input, input_squared: squares.max(input * input), context, output })
}
