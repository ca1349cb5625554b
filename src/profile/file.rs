//! The profile file: what one replica can do, as people and `fit` write it.
//!
//! Units stand in the names of fields (`perKvKilotokenMs`), durations are strings (`2m`), and a
//! field that nobody measured is named in `spec.assumed`. Every figure says where it comes from.
//!
//! Worked number: `baseMs: 14.12` and `perSequenceMs: 0.079` are 14 120 000 000 ps a step and
//! 79 000 000 ps for each running sequence.

use super::load;
use serde::{Deserialize, Serialize};
use spillgate_core::model::{Limits as CoreLimits, Profile, StepModel};
use spillgate_core::units::{GpusEach, Span, Tokens};

/// `apiVersion` of every file of the project.
pub const API_VERSION: &str = "spillgate.dev/v1alpha1";
/// `kind` of a profile file.
pub const KIND: &str = "Profile";

/// A whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileFile {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always [`KIND`].
    pub kind: String,
    /// Its name.
    pub metadata: Metadata,
    /// What it says.
    pub spec: Spec,
}

/// What identifies a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Lower case letters, digits, `-` and `.`, such as `qwen3-32b-h100-tp2`.
    pub name: String,
}

/// What one replica can do, and how that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Length of a step.
    pub step: Step,
    /// What bounds a batch.
    pub limits: Limits,
    /// Bytes of KV cache per token, over all devices of the replica.
    pub kv_bytes_per_token: u64,
    /// Devices that one replica takes.
    pub gpus_per_replica: u32,
    /// Bytes per second at which KV moves between replicas.
    pub transfer_bytes_per_second: u64,
    /// From the order of a replica to the first request served.
    pub start_time: String,
    /// Fields above that were given, not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// What the benchmark's own burst adds to TTFT; the replica itself does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub benchmark_wait: Option<BenchmarkWait>,
    /// Where the measurements come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// What was measured; beyond it the profile extrapolates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<ValidRange>,
    /// How wrong it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
}

/// Coefficients of a step, in milliseconds per unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Every step.
    pub base_ms: f64,
    /// Each running sequence.
    pub per_sequence_ms: f64,
    /// Each thousand tokens of KV cache that the batch attends to.
    pub per_kv_kilotoken_ms: f64,
    /// Each prompt token computed in the step.
    pub per_prefill_token_ms: f64,
    /// Each prompt token times each thousand tokens of its context.
    #[serde(default)]
    pub per_prefill_token_kilocontext_ms: f64,
}

/// What bounds a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// KV cache of one replica, in tokens.
    pub kv_capacity_tokens: u64,
    /// How it is known.
    pub kv_capacity_known_by: KnownBy,
    /// The most tokens that were wanted at once without queueing for KV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_no_queue_up_to_tokens: Option<u64>,
    /// The fewest tokens that were wanted at once with queueing for KV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_queue_from_tokens: Option<u64>,
    /// Device memory less weights and activations, over bytes per token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_computed_tokens: Option<u64>,
    /// Sequences that may run together (`max_num_seqs`).
    pub max_sequences: u32,
    /// Tokens that one step may process (`max_num_batched_tokens`).
    pub token_budget: u32,
}

/// How a KV capacity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KnownBy {
    /// From rows that queued for it.
    Measured,
    /// From memory arithmetic.
    Computed,
    /// Somebody said so, such as an engine's start log.
    Given,
}

/// TTFT beyond the steps that a prompt needs, in the benchmark that was fitted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BenchmarkWait {
    /// Every request.
    pub overhead_ms: f64,
    /// Each prompt token.
    pub per_prompt_token_ms: f64,
    /// Each prompt token times half of each thousand tokens of the prompt.
    pub per_prompt_token_kilocontext_ms: f64,
    /// Each thousand prompt tokens, for each client.
    pub per_prompt_kilotoken_and_client_ms: f64,
}

/// Where measurements come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provenance {
    /// Model, as its publisher spells it.
    pub model: String,
    /// GPU, as the source spells it.
    pub gpu: String,
    /// Engine.
    pub engine: String,
    /// Versions of the engine; `unstated` where the source does not say.
    pub engine_versions: Vec<String>,
    /// Devices that share each layer.
    pub tensor_parallel: u32,
    /// Precision of weights, as the source spells it (empty: the model's own).
    pub precision: String,
    /// Day of the fit.
    pub date: String,
    /// Who measured.
    pub source: String,
    /// Under which licence.
    pub licence: String,
    /// SHA-256 of the measurements' file.
    pub source_sha256: String,
    /// What reproduces this file, run in the folder of the measurements.
    pub command: String,
    /// Rows of the source: what became of each.
    pub rows: RowCount,
}

/// What became of the rows of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RowCount {
    /// In the fit.
    pub used: u64,
    /// Only queued for KV; they bound its capacity.
    pub queueing: Vec<String>,
    /// Could not be used, and why.
    pub refused: Vec<String>,
    /// Of other models, systems, precisions or parallelism.
    pub other_groups: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ValidRange {
    /// Clients.
    pub concurrency: Range,
    /// Prompt tokens.
    pub isl: Range,
    /// Output tokens.
    pub osl: Range,
}

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// Relative error of what the profile predicts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Accuracy {
    /// On the rows that were fitted.
    pub in_sample: Errors,
    /// On each row, from a fit of all others.
    pub leave_one_out: Errors,
}

/// Errors of both latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Errors {
    /// Of the time between tokens.
    pub itl: Quantiles,
    /// Of the time to first token.
    pub ttft: Quantiles,
}

/// Absolute relative errors, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quantiles {
    /// Half of the rows are better.
    pub median_percent: f64,
    /// Nine rows of ten are better.
    pub p90_percent: f64,
}

impl ProfileFile {
    /// The profile as the brain and the simulator use it: coefficients rounded once, here, to whole
    /// picoseconds per unit. Only what `load` or `fit` accepted is meant to come here; a
    /// number that is no coefficient becomes 0.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let spec = &self.spec;
        Profile {
            name: self.metadata.name.as_str().into(),
            model: spec.step.model(),
            limits: CoreLimits {
                kv_capacity: Tokens(spec.limits.kv_capacity_tokens),
                max_sequences: spec.limits.max_sequences,
                token_budget: spec.limits.token_budget,
            },
            kv_bytes_per_token: spec.kv_bytes_per_token,
            transfer_bytes_per_second: spec.transfer_bytes_per_second,
            gpus_each: GpusEach(spec.gpus_per_replica),
            start_time: load::start_time(&spec.start_time).unwrap_or(Span::ZERO),
        }
    }
}

impl Step {
    /// In whole picoseconds per unit.
    fn model(&self) -> StepModel {
        const PICOS_PER_MS: f64 = 1e9;
        let picos = |ms: f64, per: f64| (ms * (PICOS_PER_MS / per)).round() as u64;
        StepModel {
            base: picos(self.base_ms, 1.0),
            per_sequence: picos(self.per_sequence_ms, 1.0),
            per_kv_token: picos(self.per_kv_kilotoken_ms, 1e3),
            per_prefill_token: picos(self.per_prefill_token_ms, 1.0),
            per_prefill_token_context: picos(self.per_prefill_token_kilocontext_ms, 1e3),
        }
    }
}
