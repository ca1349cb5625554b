//! `--scale N`: the same traffic, N times as much of it.
//!
//! Copies at the very instant of the original would be bursts that nobody sent, so each copy comes
//! a little later. Sizes, and with them the mix of short and long requests, stay as recorded.
//!
//! Worked number: Azure's conversation trace at 10 is 193 660 requests, 55 a second.

use super::{MAX_ROWS, Trace, TraceError};
use crate::sim::request::Request;
use crate::sim::rng::Rng;
use spillgate_core::units::Picos;
use std::num::NonZeroU32;

/// Copies are delayed by less than this.
const LATEST: u64 = 1_000_000_000_000;

/// N copies of each request: the first keeps its time, the others are delayed by a seeded uniform
/// offset below one second; sorted by time, then by request, then by copy.
pub fn scaled(trace: &Trace, copies: NonZeroU32, seed: u64) -> Result<Trace, TraceError> {
    let copies = copies.get();
    if copies == 1 {
        return Ok(trace.clone());
    }
    let rows = u64::from(copies).saturating_mul(trace.requests.len() as u64);
    if rows > MAX_ROWS {
        return Err(TraceError::TooManyRows { trace: trace.name.clone(), rows, limit: MAX_ROWS });
    }
    let mut random = Rng::named(seed, "scale");
    // MAX_ROWS fits in 32 bits, and so does every index.
    let mut order: Vec<(Picos, u32, u32)> = Vec::with_capacity(rows as usize);
    for (index, request) in (0_u32..).zip(&trace.requests) {
        order.push((request.at, index, 0));
        for copy in 1..copies {
            order.push((request.at + Picos(random.below(LATEST)), index, copy));
        }
    }
    order.sort_unstable();
    let requests = order
        .into_iter()
        .map(|(at, index, _)| Request { at, ..trace.requests[index as usize] })
        .collect();
    let mut notes = trace.notes.clone();
    notes.push(format!(
        "each request is sent {copies} times, the copies delayed by up to a second (seed {seed})"
    ));
    Ok(Trace { requests, notes, name: trace.name.clone(), sha256: trace.sha256.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn small() -> Trace {
        let request = |at, input| Request { at: Picos(at), input, output: 1 };
        Trace {
            name: "small".to_owned(),
            requests: vec![request(0, 1), request(0, 2), request(5_000_000_000_000, 3)],
            sha256: String::new(),
            notes: Vec::new(),
        }
    }

    fn times(copies: u32) -> NonZeroU32 {
        NonZeroU32::new(copies).expect("above zero")
    }

    #[test]
    fn the_first_copy_keeps_its_time_and_the_others_follow_within_a_second() {
        let trace = scaled(&small(), times(50), 1).expect("scaled");
        assert_eq!(trace.requests.len(), 150);
        assert!(trace.requests.is_sorted_by_key(|request| request.at));
        let mut arrivals: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for request in &trace.requests {
            arrivals.entry(request.input).or_default().push(request.at.0);
        }
        for (input, start) in [(1, 0), (2, 0), (3, 5_000_000_000_000)] {
            let at = &arrivals[&input];
            assert_eq!((at.len(), at[0]), (50, start));
            assert!(at.iter().all(|at| (start..start + LATEST).contains(at)));
            assert!(at[49] > start + LATEST / 2, "copies are spread over the second");
        }
    }

    #[test]
    fn a_seed_repeats_and_another_one_differs() {
        let with = |seed| scaled(&small(), times(3), seed).expect("scaled").requests;
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(2));
    }

    #[test]
    fn one_copy_is_the_trace_itself() {
        assert_eq!(scaled(&small(), times(1), 1).expect("scaled"), small());
    }

    #[test]
    fn more_copies_than_memory_holds_are_refused_in_words() {
        let error = scaled(&small(), times(u32::MAX), 1).expect_err("refused");
        assert!(error.to_string().contains("limit is 50000000"), "{error}");
    }
}
