//! Files that several verbs read: policies with the profiles they name.
//!
//! Worked number: `--policy policies/chat.yaml` yields one policy, its GPU pool and the built-in
//! profile that it refers to, or every problem of the file at once.

use super::{Exit, Failure, complain};
use crate::policy::{self, Autoscaler, Checked, Problem, Profiles, Resolved, Severity, Source};
use crate::profile;
use anyhow::{Context, anyhow};
use spillgate_core::model::Profile;
use spillgate_core::observation::Name;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A policy, ready to run.
pub(crate) struct Loaded {
    /// As the operator wrote it, defaults filled in.
    pub(crate) autoscaler: Autoscaler,
    /// As the brain reads it, with its GPU pools.
    pub(crate) resolved: Resolved,
    /// The profiles of its pools.
    pub(crate) profiles: BTreeMap<Name, Profile>,
}

/// Checks files together, with the built-in profiles.
pub(crate) fn check(files: &[PathBuf]) -> Result<Checked, Failure> {
    let mut unreadable: Vec<Problem> = Vec::new();
    let mut texts = Vec::new();
    for file in files {
        let label = file.display().to_string();
        match policy::decode(&label, read_bounded(file)?) {
            Ok(text) => texts.push((label, text)),
            Err(problem) => unreadable.push(*problem),
        }
    }
    let sources: Vec<Source<'_>> =
        texts.iter().map(|(label, text)| Source { label, text }).collect();
    let profiles = Profiles {
        find: &builtin,
        names: profile::builtin_names().map(str::to_owned).collect(),
        read: &|text| {
            let read = profile::load("the profile", text);
            read.map(|file| file.profile()).map_err(|error| error.to_string())
        },
    };
    let mut checked = policy::check(&sources, &profiles);
    checked.problems.splice(0..0, unreadable);
    Ok(checked)
}

/// The one policy in these files, resolved.
pub(crate) fn load_policy(files: &[PathBuf]) -> Result<Loaded, Failure> {
    let manifests = check(files)?.into_manifests().map_err(|problems| {
        let errors = problems.iter().filter(|p| p.severity == Severity::Error);
        errors.clone().for_each(|problem| complain(&problem.to_string()));
        let count = errors.count();
        Failure::new(Exit::Invalid, anyhow!("{count} errors in the policy; mend them"))
    })?;
    let own: BTreeMap<Name, Profile> =
        manifests.profiles.iter().map(|p| (p.name.clone(), p.clone())).collect();
    let find = |name: &str| own.get(name).cloned().or_else(|| builtin(name));
    let [autoscaler] = &manifests.autoscalers[..] else {
        let found = manifests.autoscalers.len();
        let hint = "a replay runs exactly one InferenceAutoscaler; give the file that holds it";
        return Err(Failure::invalid(anyhow!("{found} policies found; {hint}")));
    };
    let resolved =
        policy::resolve(autoscaler, &manifests.gpu_pools, &find).map_err(Failure::invalid)?;
    let names = resolved.policy.pools.iter().map(|pool| &pool.profile);
    let profiles =
        names.filter_map(|name| find(name).map(|profile| (name.clone(), profile))).collect();
    Ok(Loaded { autoscaler: autoscaler.clone(), resolved, profiles })
}

/// Refuses to write a result over a file that it is made from.
pub(crate) fn keep_inputs<'a>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    // A file that is not there yet is nobody's input.
    let Ok(place) = output.canonicalize() else { return Ok(()) };
    for input in inputs {
        if input.canonicalize().is_ok_and(|input| input == place) {
            let what = anyhow!("{} is read by this run; write somewhere else", output.display());
            return Err(Failure::new(Exit::Failed, what));
        }
    }
    Ok(())
}

fn builtin(name: &str) -> Option<Profile> {
    profile::builtin(name).map(|file| file.profile())
}

/// The file's bytes, one more than is allowed at most: an endless file ends here.
fn read_bounded(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(policy::MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}; is the path right?", file.display()))?;
    Ok(bytes)
}
