//! Reads a profile file and finds everything that is wrong with its numbers at once.
//!
//! A profile decides how many replicas run, so a number that no replica can have (negative, NaN, a
//! step of a minute) is refused here and never reaches the brain.
//!
//! Worked number: `baseMs: -1` and `maxSequences: 0` in one file are two problems of one error.

use super::file::{API_VERSION, KIND, ProfileFile};
use crate::policy;
use spillgate_core::units::Span;
use std::fmt;

/// A profile is a page of text; more than this is something else.
const MAX_BYTES: usize = 1 << 20;

/// Why a profile file was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is far too long.
    #[error(
        "{label}: {bytes} bytes, and a profile has at most {MAX_BYTES}; is this the right file?"
    )]
    TooLong {
        /// The file, as the user named it.
        label: String,
        /// Its length.
        bytes: usize,
    },
    /// It is no YAML, or not of this shape. The message has line and column.
    #[error("{label}: not a profile file: {message}")]
    Shape {
        /// The file, as the user named it.
        label: String,
        /// What the parser says.
        message: String,
    },
    /// It has the right shape and wrong numbers: all of them.
    #[error("{label}: {}", list(.problems))]
    Invalid {
        /// The file, as the user named it.
        label: String,
        /// At least one.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, such as `spec.step.baseMs`.
    pub path: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub mend: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path, self.message, self.mend)
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

/// Reads the text of a profile file. `label` is how the user named it.
///
/// # Errors
/// If it is no profile, or holds a number that no replica can have.
pub fn load(label: &str, text: &str) -> Result<ProfileFile, ProfileError> {
    let label = label.to_owned();
    if text.len() > MAX_BYTES {
        return Err(ProfileError::TooLong { label, bytes: text.len() });
    }
    let file: ProfileFile = match serde_saphyr::from_str(text) {
        Ok(file) => file,
        Err(error) => return Err(ProfileError::Shape { label, message: error.to_string() }),
    };
    let problems = problems(&file);
    if problems.is_empty() { Ok(file) } else { Err(ProfileError::Invalid { label, problems }) }
}

/// Everything that is wrong with a file.
pub(crate) fn problems(file: &ProfileFile) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut say = |bad: bool, path, message: String, mend| {
        if bad {
            found.push(Problem { path, message, mend });
        }
    };
    let wrong = |value: &str, wanted: &str| format!("`{value}`, and `{wanted}` is expected");
    say(
        file.api_version != API_VERSION,
        "apiVersion",
        wrong(&file.api_version, API_VERSION),
        "convert the file, or use a version of spillgate that knows it",
    );
    say(file.kind != KIND, "kind", wrong(&file.kind, KIND), "give a profile file here");
    let name = &file.metadata.name;
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    say(
        name.is_empty() || name.len() > 253 || !name.chars().all(letters),
        "metadata.name",
        format!("`{}` is no name", name.chars().take(80).collect::<String>()),
        "use lower case letters, digits, `-` and `.`",
    );
    check_step(file, &mut say);
    check_numbers(file, &mut say);
    found
}

/// The coefficients of a step.
fn check_step(file: &ProfileFile, say: &mut impl FnMut(bool, &'static str, String, &'static str)) {
    const MEND: &str = "fit the profile again; a fitted coefficient is never out of this range";
    let step = &file.spec.step;
    let milliseconds = [
        ("spec.step.baseMs", step.base_ms, 0.001, 10_000.0),
        ("spec.step.perSequenceMs", step.per_sequence_ms, 0.0, 1_000.0),
        ("spec.step.perKvKilotokenMs", step.per_kv_kilotoken_ms, 0.0, 1_000.0),
        ("spec.step.perPrefillTokenMs", step.per_prefill_token_ms, 0.0, 1_000.0),
        (
            "spec.step.perPrefillTokenKilocontextMs",
            step.per_prefill_token_kilocontext_ms,
            0.0,
            1_000.0,
        ),
    ];
    for (path, value, least, most) in milliseconds {
        let fits = value.is_finite() && (least..=most).contains(&value);
        say(!fits, path, format!("{value} is not between {least} and {most} ms"), MEND);
    }
    say(
        step.per_sequence_ms == 0.0 && step.per_kv_kilotoken_ms == 0.0,
        "spec.step",
        "a decoding sequence costs nothing (perSequenceMs and perKvKilotokenMs are 0)".to_owned(),
        "fit rows of at least three concurrencies",
    );
    say(
        step.per_prefill_token_ms == 0.0 && step.per_prefill_token_kilocontext_ms == 0.0,
        "spec.step",
        "a prompt token costs nothing (both perPrefillToken coefficients are 0)".to_owned(),
        "fit rows of at least two prompt lengths and two output lengths",
    );
}

/// Limits, sizes and the start time.
fn check_numbers(
    file: &ProfileFile,
    say: &mut impl FnMut(bool, &'static str, String, &'static str),
) {
    let (spec, limits) = (&file.spec, &file.spec.limits);
    let whole = [
        (
            "spec.limits.kvCapacityTokens",
            limits.kv_capacity_tokens,
            16..=1_000_000_000,
            "take it from the engine's start log (`GPU KV cache size`)",
        ),
        (
            "spec.limits.maxSequences",
            limits.max_sequences.into(),
            1..=100_000,
            "give the engine's max_num_seqs",
        ),
        (
            "spec.limits.tokenBudget",
            limits.token_budget.into(),
            1..=10_000_000,
            "give the engine's max_num_batched_tokens",
        ),
        (
            "spec.kvBytesPerToken",
            spec.kv_bytes_per_token,
            1..=1_000_000_000,
            "give layers x KV heads x head dimension x 2 x bytes per element",
        ),
        (
            "spec.gpusPerReplica",
            spec.gpus_per_replica.into(),
            1..=10_000,
            "give the devices of one replica",
        ),
        (
            "spec.transferBytesPerSecond",
            spec.transfer_bytes_per_second,
            1_000_000..=100_000_000_000_000,
            "give the network's bytes per second",
        ),
    ];
    for (path, value, range, mend) in whole {
        let message = format!("{value} is not between {} and {}", range.start(), range.end());
        say(!range.contains(&value), path, message, mend);
    }
    let mend = "give hours, minutes or seconds, such as 2m, and at most 24h";
    match start_time(&spec.start_time) {
        Err(why) => say(true, "spec.startTime", format!("`{}` {why}", spec.start_time), mend),
        Ok(time) => {
            let fits = time > Span::ZERO && time <= Span::mins(24 * 60);
            say(!fits, "spec.startTime", format!("{time} is no start time"), mend);
        }
    }
}

/// A start time: a duration as policies have them, in whole milliseconds.
pub(super) fn start_time(text: &str) -> Result<Span, String> {
    let time = policy::duration(text)?;
    if time.0.0.is_multiple_of(1_000) {
        Ok(time.span())
    } else {
        Err("is finer than a millisecond".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "\
apiVersion: spillgate.dev/v1alpha1
kind: Profile
metadata: { name: small }
spec:
  step: { baseMs: 10, perSequenceMs: 0.1, perKvKilotokenMs: 0.05, perPrefillTokenMs: 0.04 }
  limits: { kvCapacityTokens: 100000, kvCapacityKnownBy: Given, maxSequences: 64, tokenBudget: 2048 }
  kvBytesPerToken: 131072
  gpusPerReplica: 1
  transferBytesPerSecond: 50000000000
  startTime: 90s
";

    #[test]
    fn a_small_profile_converts_to_whole_picoseconds() {
        let profile = load("small.yaml", SMALL).expect("valid").profile();
        assert_eq!(profile.model.base, 10_000_000_000);
        assert_eq!(profile.model.per_kv_token, 50_000);
        assert_eq!(profile.model.per_prefill_token, 40_000_000);
        assert_eq!(profile.start_time, Span::secs(90));
    }

    #[test]
    fn every_wrong_number_is_told_at_once() {
        let text = SMALL
            .replace("baseMs: 10", "baseMs: 0")
            .replace("perSequenceMs: 0.1", "perSequenceMs: .nan")
            .replace("perKvKilotokenMs: 0.05", "perKvKilotokenMs: -1")
            .replace("maxSequences: 64", "maxSequences: 0")
            .replace("90s", "3 days");
        let Err(ProfileError::Invalid { problems, .. }) = load("x", &text) else {
            panic!("accepted");
        };
        let paths: Vec<_> = problems.iter().map(|problem| problem.path).collect();
        assert_eq!(
            paths,
            [
                "spec.step.baseMs",
                "spec.step.perSequenceMs",
                "spec.step.perKvKilotokenMs",
                "spec.limits.maxSequences",
                "spec.startTime",
            ]
        );
    }

    #[test]
    fn a_missing_limit_and_an_unknown_field_are_refused_by_name() {
        let text = SMALL.replace(", tokenBudget: 2048", "");
        assert!(load("x", &text).unwrap_err().to_string().contains("tokenBudget"));
        let text = SMALL.replace("gpusPerReplica", "gpusPerPod");
        assert!(load("x", &text).unwrap_err().to_string().contains("gpusPerPod"));
    }

    #[test]
    fn start_times_are_durations_as_policies_have_them_in_whole_milliseconds() {
        assert_eq!(start_time("1h30m"), Ok(Span(5_400_000)));
        assert_eq!(start_time("250ms"), Ok(Span(250)));
        for bad in ["1d", "1M", "2 months", "90", "", "-3s", "1day", "0.3ms", "3\u{b5}s"] {
            assert!(start_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_prompt_that_costs_nothing_is_refused() {
        let text = SMALL.replace("perPrefillTokenMs: 0.04", "perPrefillTokenMs: 0");
        assert!(load("x", &text).unwrap_err().to_string().contains("prompt token costs nothing"));
    }
}
