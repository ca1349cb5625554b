//! The fluid lower bound of GPU time: the trace's work at the best throughput that the targets and
//! the KV cache allow, as if replicas could be had in fractions and for the moment.
//!
//! Nothing can serve the trace at home with less. How far a run is above it is what forecasting,
//! start-up, whole replicas and safety cost.
//!
//! Worked number: decode steps of a = 13.6 ms base, 0.1 ms a sequence (its KV included) and at most
//! 50 ms hold a batch of 364. Each token then costs 13.6 / 364 + 0.1 = 0.137 ms of a replica; a
//! million of them on two devices each is 2 * 137 s = 0.076 GPU-hours.

use super::request::Request;
use spillgate_core::model::Profile;
use spillgate_core::policy::Role;
use spillgate_core::units::Micros;

/// The work of a trace, in sums that do not depend on any profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    input: u128,
    input_squared: u128,
    output: u128,
    /// Context summed over output tokens: what decode steps attend to.
    context: u128,
}

impl Work {
    /// Sums the work of requests.
    #[must_use]
    pub fn of(requests: &[Request]) -> Self {
        requests.iter().fold(Self::default(), |mut work, request| {
            let (input, output) = (u128::from(request.input), u128::from(request.output));
            work.input += input;
            work.input_squared += input * input;
            work.output += output;
            // The k-th token attends to the prompt and to the k tokens before it.
            work.context += output * input + output * output.saturating_sub(1) / 2;
            work
        })
    }
}

/// GPU-hours that a pool of this role needs at least for all of the work.
#[must_use]
pub fn gpu_hours_floor(role: Role, profile: &Profile, itl: Option<Micros>, work: &Work) -> f64 {
    let replica_seconds = match role {
        Role::Prefill | Role::Pooling => prefill_seconds(profile, work),
        Role::Decode => decode_seconds(profile, itl, work),
        Role::Mixed => prefill_seconds(profile, work) + decode_seconds(profile, itl, work),
    };
    replica_seconds * f64::from(profile.gpus_each.0) / 3_600.0
}

/// GPU-hours that pools together need at least: the cheapest prefill and the cheapest decode among
/// them. `None` where no pool does one of the two.
#[must_use]
pub fn fleet_floor(pools: &[(Role, &Profile)], itl: Option<Micros>, work: &Work) -> Option<f64> {
    let cheapest = |part: Role, does: fn(Role) -> bool| {
        pools
            .iter()
            .filter(|(role, _)| does(*role))
            .map(|(_, profile)| gpu_hours_floor(part, profile, itl, work))
            .min_by(f64::total_cmp)
    };
    let only_prompts = pools.iter().all(|(role, _)| *role == Role::Pooling);
    let prefill = cheapest(Role::Prefill, |role| role != Role::Decode)?;
    if only_prompts {
        return Some(prefill);
    }
    Some(prefill + cheapest(Role::Decode, |role| matches!(role, Role::Decode | Role::Mixed))?)
}

/// d * isl + e * isl^2 / 2, summed.
fn prefill_seconds(profile: &Profile, work: &Work) -> f64 {
    profile.model.prefill_work(work.input as f64, work.input_squared as f64)
}

/// osl * (a / B + b + c * context), summed. B is taken at the mean context of all output tokens:
/// limits are linear in the batch, so no mix of batches does better.
fn decode_seconds(profile: &Profile, itl: Option<Micros>, work: &Work) -> f64 {
    if work.output == 0 {
        return 0.0;
    }
    let (output, context) = (work.output as f64, work.context as f64);
    let (batch, _) = profile.best_batch(itl, context / output, 0.0);
    let model = &profile.model;
    let each = model.base as f64 / batch + model.per_sequence as f64;
    (output * each + model.per_kv_token as f64 * context) / 1e12
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillgate_core::model::{Limits, StepModel};
    use spillgate_core::units::{GpusEach, Picos, Span, Tokens};

    fn profile() -> Profile {
        Profile {
            name: "made-up".into(),
            model: StepModel {
                base: 10_000_000_000,          // 10 ms
                per_sequence: 50_000_000,      // 0.05 ms
                per_kv_token: 50_000,          // 0.05 ms a thousand
                per_prefill_token: 40_000_000, // 0.04 ms
                per_prefill_token_context: 1_000,
            },
            limits: Limits {
                kv_capacity: Tokens(500_000),
                max_sequences: 256,
                token_budget: 8_192,
            },
            kv_bytes_per_token: 1,
            transfer_bytes_per_second: 1,
            gpus_each: GpusEach(2),
            start_time: Span::secs(180),
        }
    }

    fn requests() -> Vec<Request> {
        vec![Request { at: Picos(0), input: 900, output: 201 }; 1_000]
    }

    #[track_caller]
    fn near(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-9 * expected, "{got} is not {expected}");
    }

    #[test]
    fn prefill_is_linear_and_square_work() {
        let work = Work::of(&requests());
        // 1000 * (900 * 0.04 ms + 900^2 * 1 ns / 2) = 36 s + 0.405 s, on two devices.
        let hours = gpu_hours_floor(Role::Prefill, &profile(), None, &work);
        near(hours, 36.405 * 2.0 / 3_600.0);
    }

    #[test]
    fn decode_runs_at_the_largest_batch_within_the_itl_target() {
        let work = Work::of(&requests());
        // Context 900 + 100 = 1000: 0.1 ms a sequence. 20 ms allow a batch of 100, so a token costs
        // 0.1 + 0.1 ms, and 201 000 of them 40.2 s.
        let hours = gpu_hours_floor(Role::Decode, &profile(), Some(Micros(20_000)), &work);
        near(hours, 40.2 * 2.0 / 3_600.0);
        // Without a target the sequence limit of 256 decides: 10 / 256 + 0.1 ms.
        let free = gpu_hours_floor(Role::Decode, &profile(), None, &work);
        near(free, 201.0 * (10.0 / 256.0 + 0.1) * 2.0 / 3_600.0);
    }

    #[test]
    fn a_mixed_pool_does_both() {
        let work = Work::of(&requests());
        let hours = |role| gpu_hours_floor(role, &profile(), Some(Micros(20_000)), &work);
        near(hours(Role::Mixed), hours(Role::Prefill) + hours(Role::Decode));
    }

    #[test]
    fn a_fleet_takes_the_cheapest_variant_of_each_part() {
        let work = Work::of(&requests());
        let itl = Some(Micros(20_000));
        let dear = Profile { gpus_each: GpusEach(8), ..profile() };
        let cheap = profile();
        let pools = [(Role::Prefill, &dear), (Role::Prefill, &cheap), (Role::Decode, &dear)];
        let expected = gpu_hours_floor(Role::Prefill, &cheap, itl, &work)
            + gpu_hours_floor(Role::Decode, &dear, itl, &work);
        near(fleet_floor(&pools, itl, &work).expect("both parts"), expected);
        assert_eq!(fleet_floor(&pools[..2], itl, &work), None);
    }

    #[test]
    fn no_output_needs_no_decode() {
        let work = Work::of(&[Request { at: Picos(0), input: 10, output: 0 }]);
        assert_eq!(gpu_hours_floor(Role::Decode, &profile(), None, &work), 0.0);
    }
}
