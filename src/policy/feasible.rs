//! A policy held against its profiles and devices: can the targets and bounds be met at all?
//!
//! Worked number: a profile whose smallest step takes 260 s under a TTFT target of 2 s is over it by
//! a factor of 130: a warning, since nobody wants that, and probably a unit is wrong.

use super::Profiles;
use super::at::At;
use super::nearest::nearest;
use super::problem::{Problem, Report};
use spillgate_core::model::Profile;
use spillgate_core::units::{Gpus, GpusEach, Micros, Replicas};

/// Looks up the profile of `pool`; an unknown one is named with its near miss.
pub(super) fn profile(
    pool: &At<'_>,
    profiles: &Profiles<'_>,
    report: &mut Report,
) -> Option<Profile> {
    let at = pool.find("profileRef.name")?;
    let name = at.text()?;
    if let Some(profile) = (profiles.find)(name) {
        return Some(profile);
    }
    if pool.text_of("profileRef.kind") == Some("ConfigMap") {
        let message = "is in a ConfigMap that is not among the files, so it is not checked here";
        report
            .push(at.mark(Problem::note("NotChecked", message).mend("give its file to check too")));
        return None;
    }
    let mend = match nearest(name, profiles.names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if profiles.names.is_empty() => "no profile is known; give its file to check".into(),
        None => {
            let names: Vec<&str> = profiles.names.iter().map(String::as_str).collect();
            super::nearest::suggestion(name, &names)
        }
    };
    report.push(at.mark(Problem::error("UnknownProfile", "there is no such profile").mend(mend)));
    None
}

/// Warns where even the smallest step of the profile misses a target.
pub(super) fn targets(spec: &At<'_>, pool: &At<'_>, profile: &Profile, report: &mut Report) {
    let role = pool.text_of("role").unwrap_or("Mixed");
    // One sequence with one token: nothing that an engine does takes less.
    let first = profile.model.step(1, 1, 1, 0).micros();
    let next = profile.model.step(1, 1, 0, 0).micros();
    for (path, roles, least, what) in [
        ("objectives.ttft.target", ["Prefill", "Mixed"], first, "a prompt of one token"),
        ("objectives.itl.target", ["Decode", "Mixed"], next, "a batch of one"),
        ("objectives.e2e.target", ["Pooling", "Pooling"], first, "a prompt of one token"),
    ] {
        let (Some(at), Some(target)) = (spec.find(path), spec.time_of(path)) else { continue };
        if roles.contains(&role) && least > target.0 {
            let factor = factor(least, target.0);
            let message = format!(
                "even {what} takes {} by profile {}, over this target by a factor of {factor}",
                super::values::Time(least),
                profile.name
            );
            let mend = "probably a wrong unit, or the target is infeasible on this engine";
            report.push(at.mark(Problem::warning("Infeasible", message).mend(mend)));
        }
    }
}

/// `130`, or `1.4` where a whole number would hide the difference.
fn factor(over: Micros, target: Micros) -> String {
    let tenths = u128::from(over.0) * 10 / u128::from(target.0.max(1));
    if tenths % 10 == 0 || tenths >= 100 {
        (tenths / 10).to_string()
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

/// Holds the bounds of `pool` against the devices of its GPU pool.
pub(super) fn devices(pool: &At<'_>, each: GpusEach, devices: Gpus, report: &mut Report) {
    let needs = |replicas: u32| Replicas(replicas) * each;
    let small = |number: i64| u32::try_from(number).ok();
    let name = pool.text_of("gpuPoolRef.name").unwrap_or_default();
    let least = pool.whole_of("minReplicas").and_then(small).unwrap_or(1);
    if each.0 > devices.0 {
        let message =
            format!("one replica takes {} devices and GPUPool {name} has {}", each.0, devices.0);
        let at = pool.find("gpuPoolRef.name").unwrap_or_else(|| pool.clone());
        report.push(at.mark(Problem::error("TooFewDevices", message)));
    } else if needs(least) > devices {
        let at = pool.get("minReplicas").unwrap_or_else(|| pool.clone());
        let message = format!(
            "{least} replicas of {} devices need {}, and GPUPool {name} has {}",
            each.0,
            needs(least).0,
            devices.0
        );
        report.push(at.mark(Problem::error("TooFewDevices", message)));
    } else if let Some(most) = pool.get("maxReplicas")
        && let Some(number) = most.whole().and_then(small).filter(|number| needs(*number) > devices)
    {
        let message = format!(
            "{number} replicas of {} devices need {}; GPUPool {name} holds {}, so {} is the most",
            each.0,
            needs(number).0,
            devices.0,
            devices / each
        );
        report.push(most.mark(Problem::note("OutOfReach", message)));
    }
}
