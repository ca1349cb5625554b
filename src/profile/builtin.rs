//! Profiles that ship inside the program.
//!
//! `spillgate fit` wrote each of them; the command stands in its provenance.
//!
//! Worked number: `builtin("qwen3-32b-h100-tp2")` takes 2 devices a replica.

use super::{ProfileFile, load};

/// Name and text of each file, by name.
const FILES: [(&str, &str); 2] = [
    ("llama-3.1-70b-h100-tp4", include_str!("../../profiles/llama-3.1-70b-h100-tp4.yaml")),
    ("qwen3-32b-h100-tp2", include_str!("../../profiles/qwen3-32b-h100-tp2.yaml")),
];

/// The profile that ships under this name.
#[must_use]
pub fn builtin(name: &str) -> Option<ProfileFile> {
    let (label, text) = FILES.iter().find(|(known, _)| *known == name)?;
    // That every shipped file loads is a test below.
    load(label, text).ok()
}

/// Names of the profiles that ship, in order.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_loads_and_converts() {
        for (name, text) in FILES {
            let file = load(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(file.metadata.name, name);
            assert_eq!(builtin(name).as_ref(), Some(&file));
            let profile = file.profile();
            assert!(profile.model.base > 0 && profile.model.per_prefill_token > 0, "{profile:?}");
            assert!(profile.start_time.0 > 0 && profile.gpus_each.0 > 0, "{profile:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_no_profile() {
        assert_eq!(builtin("gpt-17"), None);
    }
}
