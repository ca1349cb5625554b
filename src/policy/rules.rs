//! Rules inside one document that concern more than one field.
//!
//! The walk has checked each field alone; here fields are held against each other. Every rule reads
//! leniently and runs whatever the others found.
//!
//! Worked number: `minReplicas: 5` with `maxReplicas: 3` is one error on the pool that names both.

use super::at::At;
use super::nearest::nearest;
use super::problem::{Problem, Report};
use super::values::Time;

/// Kinds whose pods are not counted by a number of replicas.
const NOT_SCALABLE: [&str; 9] = [
    "CronJob",
    "DaemonSet",
    "HorizontalPodAutoscaler",
    "InferencePool",
    "Job",
    "Node",
    "Pod",
    "ScaledObject",
    "Service",
];
/// Kinds that have a scale subresource, with the API version they are known by.
const SCALABLE: [(&str, &str); 3] = [
    ("Deployment", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
];

/// All rules of a `GPUPool`.
pub(super) fn gpu_pool(root: &At<'_>, report: &mut Report) {
    if let Some(namespace) = root.find("metadata.namespace") {
        let problem = Problem::error("ClusterScoped", "a GPUPool belongs to the whole cluster");
        report.push(namespace.mark(problem.mend("leave the namespace out")));
    }
    let Some(spec) = root.get("spec") else { return };
    match (spec.get("resourceName"), spec.get("deviceClassName")) {
        (None, None) => {
            let message = "needs `resourceName` or `deviceClassName`, and has neither";
            let problem = Problem::error("Missing", message);
            let mend = "for example `resourceName: nvidia.com/gpu`";
            report.push(spec.mark_missing("resourceName", problem.mend(mend)));
        }
        (Some(_), Some(class)) => {
            let message = "has both `resourceName` and `deviceClassName`; exactly one may stand";
            report.push(class.mark(Problem::error("UnionMember", message)));
        }
        _ => {}
    }
}

/// All rules of an `InferenceAutoscaler`.
pub(super) fn autoscaler(root: &At<'_>, report: &mut Report) {
    let Some(spec) = root.get("spec") else { return };
    objectives(&spec, report);
    roles(&spec, report);
    for pool in spec.list("pools", "name") {
        bounds(&pool, spec.find("overflow.router").is_some(), report);
        target(&pool, report);
        engine(&pool, report);
        startup(&pool, report);
    }
    schedules(&spec, report);
    overflow(&spec, report);
    tick(&spec, report);
}

fn tick(spec: &At<'_>, report: &mut Report) {
    let Some(at) = spec.get("tick") else { return };
    if spec.time_of("tick").is_some_and(|tick| {
        tick < Time(spillgate_core::units::Micros(100_000)) || tick > Time::secs(60)
    }) {
        let problem = Problem::error("OutOfRange", "must be from 100ms to 60s");
        report.push(at.mark(problem.mend("leave it out: it follows the size of the fleet")));
    }
}

/// The role of each pool, the default where none is given.
fn roles_of<'a>(spec: &At<'a>) -> Vec<(&'a str, At<'a>)> {
    let pools = spec.list("pools", "name");
    pools.into_iter().map(|pool| (pool.text_of("role").unwrap_or("Mixed"), pool)).collect()
}

fn objectives(spec: &At<'_>, report: &mut Report) {
    let Some(objectives) = spec.get("objectives") else { return };
    let has = |name: &str| objectives.get(name).is_some();
    if !has("ttft") && !has("itl") && !has("e2e") {
        let problem = Problem::error("Missing", "no target is set, so nothing could be sized");
        let mend = "set at least one of ttft, itl and e2e, for example `itl: {target: 50ms}`";
        report.push(objectives.mark(problem.mend(mend)));
        return;
    }
    let roles = roles_of(spec);
    let pooling = |role: &str| role == "Pooling";
    if !has("e2e") && roles.iter().any(|(role, _)| pooling(role)) {
        let problem =
            Problem::error("Missing", "a Pooling pool is judged by e2e, which is not set");
        report.push(objectives.mark_missing("e2e", problem));
    }
    if !has("ttft") && !has("itl") && roles.iter().any(|(role, _)| !pooling(role)) {
        let problem = Problem::error("Missing", "pools that generate need a target of ttft or itl");
        report.push(objectives.mark_missing("ttft", problem));
    }
    if let Some(e2e) = objectives.get("e2e")
        && !roles.iter().any(|(role, _)| pooling(role))
    {
        let message = "only Pooling pools are judged by e2e, and there is none";
        report.push(e2e.mark(Problem::warning("NoEffect", message).mend("use ttft and itl")));
    }
}

fn roles(spec: &At<'_>, report: &mut Report) {
    let roles = roles_of(spec);
    let known = ["Prefill", "Decode", "Mixed", "Pooling"];
    if roles.iter().any(|(role, _)| !known.contains(role)) {
        return; // Reported by itself: a mistyped role may well be the other half.
    }
    for (one, other) in [("Prefill", "Decode"), ("Decode", "Prefill")] {
        let alone = roles.iter().find(|(role, _)| *role == one);
        if let Some((_, pool)) = alone
            && !roles.iter().any(|(role, _)| *role == other)
        {
            let message = format!("a {one} pool serves nothing without a {other} pool");
            let mend = format!("add a pool with `role: {other}`, or make this one Mixed");
            let here = pool.get("role").unwrap_or_else(|| pool.clone());
            report.push(here.mark(Problem::error("HalfAPair", message).mend(mend)));
        }
    }
}

fn bounds(pool: &At<'_>, router: bool, report: &mut Report) {
    let most = pool.get("maxReplicas");
    if let Some(most) = most.as_ref().filter(|most| most.whole() == Some(0)) {
        let message = "a maximum of 0 would mean never to serve";
        let mend = "set the most replicas it may have; `mode: Paused` to leave it alone";
        report.push(most.mark(Problem::error("MaxZero", message).mend(mend)));
    } else if let (Some(most), least) = (&most, pool.whole_of("minReplicas").unwrap_or(1))
        && let Some(number) = most.whole().filter(|number| *number < least)
    {
        let message = format!("minReplicas {least} is above maxReplicas {number}");
        let at = pool.get("minReplicas").unwrap_or_else(|| most.clone());
        let mend = "raise maxReplicas or lower minReplicas";
        report.push(at.mark(Problem::error("MinAboveMax", message).mend(mend)));
    }
    if most.is_none() && pool.get("gpuPoolRef").is_none() {
        let message = "neither maxReplicas nor a gpuPoolRef bounds this pool";
        let mend = "set maxReplicas, or name the GPUPool that it draws from";
        report.push(
            pool.mark_missing("maxReplicas", Problem::error("Unbounded", message).mend(mend)),
        );
    }
    if let Some(least) = pool.get("minReplicas").filter(|least| least.whole() == Some(0)) {
        let message =
            "at 0 replicas no engine reports demand: waking up needs the router's counter";
        let mut problem = Problem::note("WakeUp", message);
        if !router {
            problem = problem.mend("name the route in overflow.router, or keep minReplicas 1");
        }
        report.push(least.mark(problem));
    }
}

fn target(pool: &At<'_>, report: &mut Report) {
    let Some(kind_at) = pool.find("scaleTargetRef.kind") else { return };
    let Some(kind) = kind_at.text() else { return };
    if NOT_SCALABLE.contains(&kind) {
        let message = format!("a {kind} cannot be scaled by replicas");
        let mend = "name a Deployment, StatefulSet or LeaderWorkerSet";
        report.push(kind_at.mark(Problem::error("UnsupportedTarget", message).mend(mend)));
        return;
    }
    let version_at = pool.find("scaleTargetRef.apiVersion");
    let version = version_at.as_ref().map_or(Some("apps/v1"), At::text);
    match SCALABLE.iter().find(|(known, _)| *known == kind) {
        Some((_, known)) if version != Some(known) && version.is_some() => {
            let message = format!("a {kind} is known as {known}");
            let problem = Problem::error("UnsupportedTarget", message);
            let problem = problem.mend(format!("set `apiVersion: {known}`"));
            report.push(version_at.unwrap_or(kind_at).mark(problem));
        }
        None if version == Some("apps/v1") => {
            let message = format!("apps/v1 has no kind {} that can be scaled", kind.escape_debug());
            let mut problem = Problem::error("UnsupportedTarget", message);
            if let Some(near) = nearest(kind, SCALABLE.iter().map(|(kind, _)| *kind)) {
                problem = problem.mend(format!("did you mean `{near}`?"));
            } else {
                problem = problem.mend("name its apiVersion if it is another kind");
            }
            report.push(kind_at.mark(problem));
        }
        None => {
            let message =
                "works only if this kind has a scale subresource; that cannot be seen here";
            report.push(kind_at.mark(Problem::warning("UnknownTarget", message)));
        }
        Some(_) => {}
    }
}

fn engine(pool: &At<'_>, report: &mut Report) {
    let Some(engine) = pool.get("engine") else { return };
    let kind = engine.text_of("type").unwrap_or("VLLM");
    let specs = engine.find("metrics.specs");
    let count = specs.as_ref().map_or(0, |specs| specs.items("").len());
    if kind == "Custom" && count == 0 {
        let message = "an engine of type Custom is read by `metrics.specs`, and there are none";
        let mend = "for example [\"num_requests_waiting=my_queue_length\"]";
        report.push(
            engine.mark_missing("metrics.specs", Problem::error("Missing", message).mend(mend)),
        );
    }
    if let Some(specs) = specs.filter(|_| kind != "Custom") {
        let message = format!("belongs to type Custom; the metrics of {kind} are known");
        report.push(specs.mark(Problem::error("UnionMember", message).mend("leave it out")));
    }
    if let Some(path) = engine.find("metrics.path")
        && path.text().is_some_and(|text| !text.starts_with('/'))
    {
        report.push(path.mark(Problem::error("BadPath", "must start with `/`")));
    }
}

fn startup(pool: &At<'_>, report: &mut Report) {
    let Some(estimate) = pool.time_of("startup.initialEstimate") else { return };
    let timeout = pool.time_of("startup.timeout").unwrap_or(Time::secs(900));
    if estimate > timeout
        && let Some(at) = pool.find("startup.initialEstimate")
    {
        let message =
            format!("is above startup.timeout {timeout}: every start would count as failed");
        report.push(
            at.mark(Problem::error("EstimateAboveTimeout", message).mend("raise the timeout")),
        );
    }
}

fn schedules(spec: &At<'_>, report: &mut Report) {
    let pools = spec.list("pools", "name");
    let names: Vec<&str> = pools.iter().filter_map(|pool| pool.text_of("name")).collect();
    for floor in spec.list("schedules", "name").iter().flat_map(|s| s.list("minReplicas", "pool")) {
        if report.is_full() {
            return;
        }
        let Some(name_at) = floor.get("pool") else { continue };
        let Some(name) = name_at.text() else { continue };
        let Some(pool) = pools.iter().find(|pool| pool.text_of("name") == Some(name)) else {
            let mend = super::nearest::suggestion(name, &names);
            let problem = Problem::error("Dangling", "there is no such pool").mend(mend);
            report.push(name_at.mark(problem));
            continue;
        };
        let Some(replicas) = floor.get("replicas") else { continue };
        if let (Some(number), Some(most)) = (replicas.whole(), pool.whole_of("maxReplicas"))
            && number > most
        {
            let message = format!("floor {number} is above maxReplicas {most} of {name}");
            report.push(replicas.mark(Problem::error("MinAboveMax", message)));
        }
        if let (Some(number), least) = (replicas.whole(), pool.whole_of("minReplicas").unwrap_or(1))
            && number <= least
        {
            let message = format!("raises nothing: minReplicas of {name} is {least}");
            report.push(replicas.mark(Problem::warning("NoEffect", message)));
        }
    }
}

fn overflow(spec: &At<'_>, report: &mut Report) {
    let Some(overflow) = spec.get("overflow") else { return };
    let destinations = overflow.list("destinations", "name");
    if overflow.text_of("policy") != Some("Allowed") {
        if let Some(at) = overflow.get("destinations").filter(|_| !destinations.is_empty()) {
            let problem = Problem::note("NoEffect", "nothing overflows while policy is Never");
            report.push(at.mark(problem.mend("set `policy: Allowed` to let the excess go there")));
        }
        return;
    }
    if destinations.is_empty() {
        let problem = Problem::error("Missing", "overflow is Allowed and has nowhere to go");
        let mend = "add a destination, or set `policy: Never`";
        report.push(overflow.mark_missing("destinations", problem.mend(mend)));
    }
    if overflow.get("router").is_none() {
        let problem = Problem::error("Missing", "overflow is Allowed and nothing switches traffic");
        let mend = "add `router: {type: HTTPRoute, httpRoute: {name: ...}}`";
        report.push(overflow.mark_missing("router", problem.mend(mend)));
    }
    if let Some(causes) = overflow.get("openOn").filter(|at| at.items("").is_empty()) {
        let problem = Problem::warning("NoEffect", "an empty list never opens the gate");
        report.push(causes.mark(problem.mend("name a cause, or set `policy: Never`")));
    }
    let priced = |at: &At<'_>| {
        at.find("external.inputPerMillionTokens").is_some()
            && at.find("external.outputPerMillionTokens").is_some()
    };
    for destination in destinations.iter().filter(|destination| !priced(destination)) {
        let message = "has no price for input or output tokens, so its cost reads as unknown";
        let path = destination.inside("external");
        let problem = Problem::note("NoPrice", message).at(path, destination.line);
        report.push(problem.mend("set inputPerMillionTokens and outputPerMillionTokens"));
    }
    if let Some(limit) = overflow.find("limits.costPerHour")
        && destinations.iter().any(|destination| !priced(destination))
    {
        let message = "cannot hold for a destination without prices";
        report.push(limit.mark(Problem::warning("NoPrice", message).mend("set its prices")));
    }
}
