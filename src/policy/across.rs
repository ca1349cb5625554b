//! Rules between documents: references, targets that two hands would hold, shared devices.
//!
//! All files of one run are one world. Which of two claimants loses never depends on the order of
//! files: the later name is refused.
//!
//! Worked number: policies `default/twin-a` and `default/twin-b` on Deployment `web` give one
//! `TargetConflict`, on `twin-b`, that names both.

use super::Profiles;
use super::at::At;
use super::feasible;
use super::nearest::suggestion;
use super::node::Node;
use super::problem::{Problem, Report};
use super::schema::{AUTOSCALER, GPU_POOL};
use spillgate_core::units::{Gpus, Replicas};
use std::collections::BTreeMap;

/// One document of any kind that counts here.
pub(super) struct Loaded {
    pub(super) kind: &'static str,
    pub(super) root: Node,
    pub(super) report: Report,
}

/// Scalers of other makers whose target is read, so that two hands on one target are found.
pub(super) const FOREIGN: [&str; 2] = ["HorizontalPodAutoscaler", "ScaledObject"];

/// `namespace/name` of an object.
fn full_name(root: &At<'_>) -> Option<String> {
    let name = root.text_of("metadata.name")?;
    Some(format!("{}/{name}", namespace(root)))
}

fn namespace<'a>(root: &At<'a>) -> &'a str {
    root.text_of("metadata.namespace").unwrap_or("default")
}

/// Two objects of one kind and name: the second one is refused.
pub(super) fn duplicates(documents: &mut [Loaded]) {
    let mut seen: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for document in documents {
        let root = At::root(&document.root);
        let name = match document.kind {
            GPU_POOL => root.text_of("metadata.name").map(str::to_owned),
            _ => full_name(&root),
        };
        let Some(name) = name else { continue };
        let count = seen.entry((document.kind, name.clone())).or_insert(0);
        *count += 1;
        if *count == 2
            && let Some(at) = root.find("metadata.name")
        {
            let message = format!("{} {name} is defined more than once", document.kind);
            document.report.push(at.mark(Problem::error("Duplicate", message).mend("rename one")));
        }
    }
}

/// One claim on a target.
struct Claim {
    target: (String, String, String),
    /// What decides: objects of other makers first, since they are there already; then by name.
    rank: (bool, String, usize),
    owner: String,
    document: usize,
}

/// Two scalers on one target: the later name is refused.
pub(super) fn conflicts(documents: &mut [Loaded]) {
    let mut claims = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        claims_of(index, document, &mut claims);
    }
    claims.sort_by(|a, b| (&a.target, &a.rank).cmp(&(&b.target, &b.rank)));
    for group in claims.chunk_by(|a, b| a.target == b.target) {
        let winner = &group[0];
        for loser in group[1..].iter().filter(|claim| claim.rank.0) {
            let document = &mut documents[loser.document];
            let root = At::root(&document.root);
            let pools = root.list("spec.pools", "name");
            let Some(at) = pools.get(loser.rank.2).and_then(|pool| pool.get("scaleTargetRef"))
            else {
                continue;
            };
            let (namespace, kind, name) = &loser.target;
            let message = format!(
                "{} and {} both scale {kind} {namespace}/{name}; {} keeps it",
                winner.owner, loser.owner, winner.owner
            );
            let mend = if winner.rank.0 {
                "one target has one scaler: remove one of the two"
            } else {
                "remove the other scaler: both pools of a pair need the same hand"
            };
            let mut problem = at.mark(Problem::error("TargetConflict", message).mend(mend));
            problem.value = Some(format!("{kind} {name}"));
            document.report.push(problem);
        }
    }
}

fn claims_of(index: usize, document: &Loaded, claims: &mut Vec<Claim>) {
    let root = At::root(&document.root);
    let Some(owner) = full_name(&root) else { return };
    let space = namespace(&root).to_owned();
    let target = |reference: &At<'_>| -> Option<(String, String, String)> {
        let kind = reference.text_of("kind").unwrap_or("Deployment");
        Some((space.clone(), kind.to_owned(), reference.text_of("name")?.to_owned()))
    };
    if FOREIGN.contains(&document.kind) {
        if let Some(target) = root.find("spec.scaleTargetRef").as_ref().and_then(target) {
            let owner = format!("{} {owner}", document.kind);
            claims.push(Claim { target, rank: (false, owner.clone(), 0), owner, document: index });
        }
        return;
    }
    let mut pools: Vec<(usize, At<'_>)> =
        root.list("spec.pools", "name").into_iter().enumerate().collect();
    pools.sort_by_key(|(_, pool)| pool.text_of("name").unwrap_or_default().to_owned());
    for (position, pool) in pools {
        let Some(target) = pool.get("scaleTargetRef").as_ref().and_then(target) else { continue };
        let name = pool.text_of("name").unwrap_or_default();
        let rank = (true, format!("{owner} {name}"), position);
        let owner = format!("pool {name} of {owner}");
        claims.push(Claim { target, rank, owner, document: index });
    }
}

/// References to GPU pools and profiles, targets under profiles, devices under guarantees.
pub(super) fn references(documents: &mut [Loaded], profiles: &Profiles<'_>) {
    let devices: BTreeMap<String, Option<Gpus>> = documents
        .iter()
        .filter(|document| document.kind == GPU_POOL)
        .filter_map(|document| {
            let root = At::root(&document.root);
            let most = root.whole_of("spec.maxDevices").and_then(|n| u32::try_from(n).ok());
            Some((root.text_of("metadata.name")?.to_owned(), most.map(Gpus)))
        })
        .collect();
    // Per GPU pool: what policies are promised there, with who was promised it.
    let mut promised: BTreeMap<String, Vec<(String, Gpus)>> = BTreeMap::new();
    for document in documents.iter_mut().filter(|document| document.kind == AUTOSCALER) {
        let root = At::root(&document.root);
        let Some(spec) = root.get("spec") else { continue };
        let owner = full_name(&root).unwrap_or_default();
        for pool in spec.list("pools", "name") {
            let gpu_pool = gpu_pool_of(&pool, &devices, &mut document.report);
            let Some(profile) = feasible::profile(&pool, profiles, &mut document.report) else {
                continue;
            };
            feasible::targets(&spec, &pool, &profile, &mut document.report);
            let Some((name, Some(most))) = gpu_pool else { continue };
            feasible::devices(&pool, profile.gpus_each, most, &mut document.report);
            let least = pool.whole_of("minReplicas").unwrap_or(1);
            let least = Replicas(u32::try_from(least).unwrap_or(0)) * profile.gpus_each;
            let who = format!("{owner} {}", pool.text_of("name").unwrap_or_default());
            promised.entry(name).or_default().push((who, least));
        }
    }
    for document in documents.iter_mut().filter(|document| document.kind == GPU_POOL) {
        guarantees(document, &promised);
    }
}

/// The GPU pool that `pool` names, with its devices; an unknown one is reported.
fn gpu_pool_of(
    pool: &At<'_>,
    devices: &BTreeMap<String, Option<Gpus>>,
    report: &mut Report,
) -> Option<(String, Option<Gpus>)> {
    let at = pool.find("gpuPoolRef.name")?;
    let name = at.text()?;
    if let Some(most) = devices.get(name) {
        return Some((name.to_owned(), *most));
    }
    let known: Vec<&str> = devices.keys().map(String::as_str).collect();
    let mend = match known.is_empty() {
        true => String::from("check the file that defines it together with this one"),
        false => suggestion(name, &known),
    };
    let message = "there is no such GPUPool in the files";
    report.push(at.mark(Problem::error("Dangling", message).mend(mend)));
    None
}

/// More guaranteed than there is: somebody's guarantee is not one.
fn guarantees(document: &mut Loaded, promised: &BTreeMap<String, Vec<(String, Gpus)>>) {
    let root = At::root(&document.root);
    let Some(at) = root.find("spec.maxDevices") else { return };
    let Some(most) = at.whole().and_then(|number| u32::try_from(number).ok()) else { return };
    let promises = root.text_of("metadata.name").and_then(|name| promised.get(name));
    let Some(promises) = promises.filter(|promises| promises.len() > 1) else { return };
    let sum: Gpus = promises.iter().map(|(_, devices)| *devices).sum();
    if sum > Gpus(most) {
        let who: Vec<String> =
            promises.iter().map(|(who, devices)| format!("{who} {}", devices.0)).collect();
        let message = format!(
            "minReplicas guarantee {} devices and there are {most} ({})",
            sum.0,
            who.join(", ")
        );
        let mend = "lower a minReplicas, or raise maxDevices if the devices are there";
        document.report.push(at.mark(Problem::error("TooFewDevices", message).mend(mend)));
    }
}
