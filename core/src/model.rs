//! What one replica can do: the step-time model and its limits.
//!
//! One step of a continuous-batching engine takes
//! `a + b*running + c*kv_tokens + d*prefill_tokens + e*prefill_tokens*context`, with coefficients
//! that are rounded once, at load, to integer picoseconds per unit, so that the simulator and the
//! brain compute the same number on every machine. The form and its accuracy: Sarathi-style steps,
//! fitted on measured vLLM runs within about 10 %.
//!
//! Worked number: a = 13.6 ms, b = 0.026 ms, c = 0.043 ms per 1 000 tokens. A batch of 64 with
//! 1 300 tokens of context each takes 13.6 + 1.66 + 3.58 = 18.8 ms a step.

use crate::observation::Name;
use crate::policy::Role;
use crate::units::{GpusEach, Micros, Picos, ReqRate, Span, Tokens, finite};
use serde::{Deserialize, Serialize};

/// Coefficients of a step, in picoseconds per unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepModel {
    /// Every step.
    pub base: u64,
    /// Each running sequence.
    pub per_sequence: u64,
    /// Each token of KV cache that the batch attends to.
    pub per_kv_token: u64,
    /// Each prompt token computed in the step.
    pub per_prefill_token: u64,
    /// Each prompt token times each token of its context.
    pub per_prefill_token_context: u64,
}

/// What bounds a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// KV cache of one replica.
    pub kv_capacity: Tokens,
    /// Sequences that may run together (`max_num_seqs`).
    pub max_sequences: u32,
    /// Tokens that one step may process (`max_num_batched_tokens`).
    pub token_budget: u32,
}

/// What requests look like on average: tokens each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Prompt tokens to compute (not served by a cache).
    pub input: f64,
    /// Mean of their squares: long prompts cost more than their share.
    pub input_squared: f64,
    /// Prompt tokens that sit in the KV cache, cached ones included.
    pub context: f64,
    /// Tokens generated.
    pub output: f64,
}

/// One profile, as the brain and the simulator use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name, such as `qwen3-32b-h100-tp2`.
    pub name: Name,
    /// Step time.
    pub model: StepModel,
    /// Batch limits.
    pub limits: Limits,
    /// Bytes of KV cache per token, over all devices of the replica.
    pub kv_bytes_per_token: u64,
    /// Bytes per second at which KV moves between replicas.
    pub transfer_bytes_per_second: u64,
    /// Devices that one replica takes.
    pub gpus_each: GpusEach,
    /// From the order to the first request served.
    pub start_time: Span,
}

impl StepModel {
    /// Length of one step. Saturates at the largest representable time.
    #[must_use]
    pub const fn step(&self, running: u64, kv: u64, prefill: u64, prefill_context: u64) -> Picos {
        Picos(
            self.base
                .saturating_add(self.per_sequence.saturating_mul(running))
                .saturating_add(self.per_kv_token.saturating_mul(kv))
                .saturating_add(self.per_prefill_token.saturating_mul(prefill))
                .saturating_add(self.per_prefill_token_context.saturating_mul(prefill_context)),
        )
    }

    /// Work that a prompt of `tokens` brings, without the share of the step's base: d*n + e*n^2/2.
    /// Seconds of one replica's time.
    #[must_use]
    pub fn prefill_work(&self, tokens: f64, tokens_squared: f64) -> f64 {
        finite(
            (self.per_prefill_token as f64 * tokens
                + self.per_prefill_token_context as f64 * tokens_squared / 2.0)
                / 1e12,
        )
    }
}

impl Profile {
    /// The largest batch of sequences with `context` tokens each whose step stays within `itl`
    /// (no target: only limits bound it), and the length of that step in seconds. `extra` is what
    /// each sequence adds to the step besides decoding, in seconds. At least one sequence.
    #[must_use]
    pub fn best_batch(&self, itl: Option<Micros>, context: f64, extra: f64) -> (f64, f64) {
        let context = finite(context).max(1.0);
        let base = self.model.base as f64 / 1e12;
        let each = (self.model.per_sequence as f64 + self.model.per_kv_token as f64 * context)
            / 1e12
            + finite(extra);
        let by_kv = self.limits.kv_capacity.0 as f64 / context;
        let mut batch = by_kv.min(f64::from(self.limits.max_sequences));
        if let Some(target) = itl
            && each > 0.0
        {
            batch = batch.min((target.as_secs() - base) / each);
        }
        let batch = batch.max(1.0);
        (batch, base + each * batch)
    }

    /// Requests per second that one replica of `role` finishes when it is always busy and every
    /// step stays within `itl`.
    ///
    /// Prefill: one over `d*n + e*n^2/2` and half a step's base for each prompt (at the load that is
    /// planned for, two prompts share a step) and one for each full chunk. Decode: the best batch over
    /// its step and the output length. Mixed: a decode step also carries each sequence's share of
    /// prompt work, so the batch that fits the target is smaller.
    #[must_use]
    pub fn capacity(&self, role: Role, mix: &Mix, itl: Option<Micros>) -> ReqRate {
        let output = finite(mix.output).max(1.0);
        let context = finite(mix.context) + output / 2.0;
        let chunks = finite(mix.input) / f64::from(self.limits.token_budget.max(1)) + 0.5;
        let prompt = self.model.prefill_work(finite(mix.input), finite(mix.input_squared));
        match role {
            Role::Prefill | Role::Pooling => {
                ReqRate::new(1.0 / (prompt + chunks * self.model.base as f64 / 1e12))
            }
            Role::Decode => {
                let (batch, step) = self.best_batch(itl, context, 0.0);
                ReqRate::new(batch / step / output)
            }
            Role::Mixed => {
                let (batch, step) = self.best_batch(itl, context, prompt / output);
                ReqRate::new(batch / step / output)
            }
        }
    }

    /// Time to move the KV of `tokens` to another replica: 5 ms plus bytes over bandwidth.
    #[must_use]
    pub fn transfer(&self, tokens: Tokens) -> Picos {
        let bytes = u128::from(tokens.0) * u128::from(self.kv_bytes_per_token);
        let wire = bytes * 1_000_000_000_000 / u128::from(self.transfer_bytes_per_second.max(1));
        Picos(5_000_000_000 + u64::try_from(wire).unwrap_or(u64::MAX / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_sum_of_its_parts() {
        let model = StepModel {
            base: 13_600_000_000,
            per_sequence: 26_000_000,
            per_kv_token: 43_000,
            ..StepModel::default()
        };
        let step = model.step(64, 64 * 1_300, 0, 0);
        assert_eq!(step.micros().0, 13_600 + 1_664 + 3_577);
    }

    #[test]
    fn a_step_of_absurd_size_saturates() {
        let model = StepModel { base: 1, per_kv_token: u64::MAX, ..StepModel::default() };
        assert_eq!(model.step(1, u64::MAX, 0, 0), Picos(u64::MAX));
    }
}
