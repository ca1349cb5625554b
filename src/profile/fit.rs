//! From measurements to a profile file: the fit, its error, and where everything comes from.
//!
//! What rows cannot show (sequences, token budget, bytes per token, transfer, start time) is given
//! and listed in `spec.assumed`. The error that counts is leave-one-out: each row is predicted by a
//! fit that has not seen it.
//!
//! Worked number: 30 rows of Qwen3-32B on two H100, of which five queue for KV: 25 are fitted, and
//! the time between tokens is predicted within 1.3 % for half of them, unseen.

use super::accuracy::accuracy;
use super::file::{
    API_VERSION, BenchmarkWait, KIND, KnownBy, Limits, Metadata, ProfileFile, Provenance, Range,
    RowCount, Spec, Step, ValidRange,
};
use super::load::{Problem, problems};
use super::queueing::{self, LEAST_ROWS, Split};
use super::rows::{Group, Refusal, Row, Rows};
use super::steady::{Coefficients, Point};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// What the measurements cannot say.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Name of the profile.
    pub name: String,
    /// Which rows.
    pub group: Group,
    /// Bytes of KV cache per token, over all devices.
    pub kv_bytes_per_token: u64,
    /// `max_num_seqs`.
    pub max_sequences: u32,
    /// `max_num_batched_tokens`.
    pub token_budget: u32,
    /// Between replicas.
    pub transfer_bytes_per_second: u64,
    /// From order to first request, such as `2m`.
    pub start_time: String,
    /// KV capacity, where somebody knows it.
    pub kv_capacity_tokens: Option<u64>,
    /// Memory of a replica, where the weights' size is known.
    pub memory: Option<Memory>,
    /// Day of the fit.
    pub date: String,
    /// Who measured.
    pub source: String,
    /// Under which licence.
    pub licence: String,
    /// The command that reproduces the file.
    pub command: String,
}

/// Memory of one replica, in GB (1e9 bytes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Of one device.
    pub device_gb: f64,
    /// Share of it that the engine may take.
    pub utilization: f64,
    /// Weights, over all devices.
    pub weights_gb: f64,
    /// Activations and graphs, each device.
    pub activations_gb: f64,
}

/// More rows than this in one group are not one replica's curve, and would take minutes.
const MOST_ROWS: usize = 1_000;
/// Refused rows that are told in the file; standard error has them all.
const MOST_TOLD: usize = 100;

/// Why no profile came out.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// Too few rows.
    #[error(
        "{found} usable rows, and {LEAST_ROWS} are needed; measure at least three concurrencies \
         (such as 4, 16, 64) at two prompt lengths and two output lengths"
    )]
    TooFew {
        /// Rows that could be used.
        found: usize,
    },
    /// Too many rows.
    #[error("{found} usable rows of one group, and {MOST_ROWS} are taken; split the file")]
    TooMany {
        /// Rows that could be used.
        found: usize,
    },
    /// Nothing bounds the KV cache.
    #[error(
        "the KV capacity is not known: no row queues for KV; give --kv-capacity-tokens (the \
         engine logs it at start as `GPU KV cache size`) or --weights-gb"
    )]
    NoCapacity,
    /// The memory arithmetic leaves nothing.
    #[error("memory: {0}")]
    Memory(String),
    /// The numbers are not a profile.
    #[error("the fit is no usable profile: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unusable(Vec<Problem>),
}

/// A profile and what there is to say about it.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The file.
    pub file: ProfileFile,
    /// Warnings: what was doubtful, and what would mend it.
    pub warnings: Vec<String>,
}

/// Fits a profile to rows. `source` is the file that they were read from, for its hash.
///
/// # Errors
/// If there are too few rows, nothing bounds the KV cache, or no usable coefficients come out.
pub fn fit(rows: &Rows, source: &[u8], given: &Given) -> Result<Fitted, FitError> {
    if rows.used.len() < LEAST_ROWS {
        return Err(FitError::TooFew { found: rows.used.len() });
    }
    if rows.used.len() > MOST_ROWS {
        return Err(FitError::TooMany { found: rows.used.len() });
    }
    let budget = f64::from(given.token_budget.max(1));
    let split = queueing::split(&rows.used, budget);
    let mut warnings = missing_variety(&split.steady);
    if rows.versions.len() > 1 {
        warnings.push(format!(
            "rows of {} engine versions in one fit ({}); fit them apart if they differ",
            rows.versions.len(),
            rows.versions.iter().cloned().collect::<Vec<_>>().join(", ")
        ));
    }
    let limits = limits(&split, given, &mut warnings)?;
    let mut assumed = vec![
        "limits.maxSequences",
        "limits.tokenBudget",
        "kvBytesPerToken",
        "transferBytesPerSecond",
        "startTime",
    ];
    if limits.kv_capacity_known_by != KnownBy::Measured {
        assumed.insert(0, "limits.kvCapacityTokens");
    }
    let spec = Spec {
        step: step(&split.coefficients),
        limits,
        kv_bytes_per_token: given.kv_bytes_per_token,
        gpus_per_replica: given.group.tensor_parallel,
        transfer_bytes_per_second: given.transfer_bytes_per_second,
        start_time: given.start_time.clone(),
        assumed: assumed.into_iter().map(str::to_owned).collect(),
        benchmark_wait: Some(benchmark_wait(&split.coefficients)),
        provenance: Some(provenance(rows, &split, source, given)),
        valid_range: Some(valid_range(&split.steady)),
        accuracy: Some(accuracy(&split, budget)),
    };
    let metadata = Metadata { name: given.name.clone() };
    let file =
        ProfileFile { api_version: API_VERSION.to_owned(), kind: KIND.to_owned(), metadata, spec };
    let problems = problems(&file);
    if problems.is_empty() {
        Ok(Fitted { file, warnings })
    } else {
        Err(FitError::Unusable(problems))
    }
}

/// What would have to be measured besides, for each coefficient to be told from the others.
fn missing_variety(rows: &[Row]) -> Vec<String> {
    let count = |of: fn(&Point) -> f64| {
        let distinct: BTreeSet<u64> =
            rows.iter().map(|row| of(&row.measured.point) as u64).collect();
        (distinct.len(), distinct.into_iter().next().unwrap_or(0))
    };
    let wanted: [(_, _, usize, _); 3] = [
        (
            "concurrency",
            count(|point| point.concurrency),
            3,
            "base and per-sequence time cannot be told apart; measure at least three \
             concurrencies, such as 4, 16 and 64",
        ),
        (
            "isl",
            count(|point| point.isl),
            2,
            "per-sequence and per-KV time cannot be told apart; measure at least two prompt \
             lengths, such as 1024 and 8192",
        ),
        (
            "osl",
            count(|point| point.osl),
            2,
            "decode and prefill time cannot be told apart; measure at least two output lengths, \
             such as 128 and 1024",
        ),
    ];
    wanted
        .into_iter()
        .filter(|(_, (found, _), least, _)| found < least)
        .map(|(name, (found, first), _, why)| {
            let values = if found == 1 {
                format!("is {first} in every row")
            } else {
                format!("has only {found} values")
            };
            format!("{name} {values}: {why}")
        })
        .collect()
}

fn limits(split: &Split, given: &Given, warnings: &mut Vec<String>) -> Result<Limits, FitError> {
    let computed = given.memory.map(|memory| computed(memory, given)).transpose()?;
    let measured = queueing::capacity(split).unwrap_or_else(|why| {
        warnings.push(why);
        None
    });
    let free = queueing::no_queue_up_to(split);
    let (tokens, known_by) = match (given.kv_capacity_tokens, measured, computed) {
        (Some(tokens), _, _) => (tokens, KnownBy::Given),
        (None, Some(tokens), _) => (tokens, KnownBy::Measured),
        (None, None, Some(tokens)) => match free {
            Some(free) if free > tokens => (free, KnownBy::Measured),
            _ => (tokens, KnownBy::Computed),
        },
        (None, None, None) => return Err(FitError::NoCapacity),
    };
    if free.is_some_and(|free| free > tokens) {
        warnings.push(format!(
            "a KV capacity of {tokens} tokens is given, and {} were held without a queue",
            free.unwrap_or(0)
        ));
    }
    Ok(Limits {
        kv_capacity_tokens: tokens,
        kv_capacity_known_by: known_by,
        kv_no_queue_up_to_tokens: free,
        kv_queue_from_tokens: queueing::queue_from(split),
        kv_computed_tokens: computed,
        max_sequences: given.max_sequences,
        token_budget: given.token_budget,
    })
}

/// Device memory less weights and activations, over bytes per token.
fn computed(memory: Memory, given: &Given) -> Result<u64, FitError> {
    let devices = f64::from(given.group.tensor_parallel);
    let Memory { device_gb, utilization, weights_gb, activations_gb } = memory;
    let free_gb = devices * (device_gb * utilization - activations_gb) - weights_gb;
    let sane = [device_gb, utilization, weights_gb].iter().all(|&value| value > 0.0);
    let sane = sane && activations_gb >= 0.0 && utilization <= 1.0 && free_gb.is_finite();
    if !sane || free_gb <= 0.0 {
        return Err(FitError::Memory(format!(
            "{devices} devices x ({device_gb} GB x {utilization} - {activations_gb} GB) - \
             {weights_gb} GB of weights leave {free_gb} GB for KV; check the four flags"
        )));
    }
    Ok((free_gb * 1e9 / given.kv_bytes_per_token.max(1) as f64).floor() as u64)
}

/// To a millionth of the unit: a picosecond per KV token, and far below what rows can tell.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn step(coefficients: &Coefficients) -> Step {
    Step {
        base_ms: rounded(coefficients[0]),
        per_sequence_ms: rounded(coefficients[1]),
        per_kv_kilotoken_ms: rounded(coefficients[2] * 1e3),
        per_prefill_token_ms: rounded(coefficients[3]),
        per_prefill_token_kilocontext_ms: rounded(coefficients[4] * 1e3),
    }
}

fn benchmark_wait(coefficients: &Coefficients) -> BenchmarkWait {
    BenchmarkWait {
        overhead_ms: rounded(coefficients[5]),
        per_prompt_token_ms: rounded(coefficients[6]),
        per_prompt_token_kilocontext_ms: rounded(coefficients[7] * 1e3),
        per_prompt_kilotoken_and_client_ms: rounded(coefficients[8] * 1e3),
    }
}

fn provenance(rows: &Rows, split: &Split, source: &[u8], given: &Given) -> Provenance {
    let hash: String = Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
    Provenance {
        model: given.group.model.clone(),
        gpu: given.group.system.clone(),
        engine: "vLLM".to_owned(),
        engine_versions: rows.versions.iter().cloned().collect(),
        tensor_parallel: given.group.tensor_parallel,
        precision: given.group.precision.clone(),
        date: given.date.clone(),
        source: given.source.clone(),
        licence: given.licence.clone(),
        source_sha256: hash,
        command: given.command.clone(),
        rows: RowCount {
            used: split.steady.len() as u64,
            queueing: split.queueing.iter().map(queueing::Queueing::describe).collect(),
            refused: told(&rows.refused),
            other_groups: rows.other_groups,
        },
    }
}

/// The first refusals in words, and how many more there are.
fn told(refused: &[Refusal]) -> Vec<String> {
    let mut told: Vec<String> = refused.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    if refused.len() > MOST_TOLD {
        told.push(format!("and {} more", refused.len() - MOST_TOLD));
    }
    told
}

fn valid_range(rows: &[Row]) -> ValidRange {
    let range = |of: fn(&Point) -> f64| {
        let values = rows.iter().map(|row| of(&row.measured.point) as u64);
        Range { min: values.clone().min().unwrap_or(0), max: values.max().unwrap_or(0) }
    };
    ValidRange {
        concurrency: range(|point| point.concurrency),
        isl: range(|point| point.isl),
        osl: range(|point| point.osl),
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
