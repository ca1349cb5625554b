//! How wrong a fit is: on the rows that it was made from, and on rows that it has not seen.
//!
//! Leave-one-out is the figure to read. It says how far a point between measured ones is off; a
//! prompt length or a concurrency beyond the measured range can be off by several times as much.
//!
//! Worked number: errors of 1, 2, 3 and 10 % have a median of 2.5 %.

use super::file::{Accuracy, Errors, Quantiles};
use super::queueing::{self, Split};
use super::rows::Row;
use super::steady::{Coefficients, Latency};
use statrs::statistics::{Data, OrderStatistics};

/// Each row left out is a fit of all others; of more rows than this only every n-th is.
const MOST_LEFT_OUT: usize = 200;

/// The error on the fitted rows, and on each row from a fit of the others.
pub(super) fn accuracy(split: &Split, budget: f64) -> Accuracy {
    let predict = |row: &Row, by: &Coefficients| row.measured.point.predict(by, budget);
    let rows = &split.steady;
    let seen: Vec<_> = rows.iter().map(|row| (*row, predict(row, &split.coefficients))).collect();
    let unseen: Vec<_> = (0..rows.len())
        .step_by(rows.len().div_ceil(MOST_LEFT_OUT).max(1))
        .map(|out| {
            let mut others = rows.clone();
            let left_out = others.remove(out);
            (left_out, predict(&left_out, &queueing::fit(&others, budget)))
        })
        .collect();
    Accuracy { in_sample: errors(&seen), leave_one_out: errors(&unseen) }
}

fn errors(predicted: &[(Row, Latency)]) -> Errors {
    let quantiles = |of: fn(&Latency) -> f64| {
        let relative = |(row, said): &(Row, Latency)| of(said) / of(&row.measured.latency) - 1.0;
        let errors = predicted.iter().map(|pair| relative(pair).abs()).collect::<Vec<_>>();
        let mut data = Data::new(errors);
        let percent = |value: f64| (value * 1e4).round() / 1e2;
        Quantiles {
            median_percent: percent(data.median()),
            p90_percent: percent(data.quantile(0.9)),
        }
    };
    Errors { itl: quantiles(|latency| latency.tpot), ttft: quantiles(|latency| latency.ttft) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::queueing::tests::rows;
    use crate::profile::steady::tests::{KNOWN, measured};

    #[test]
    fn errors_are_relative_and_in_percent() {
        let row = rows(measured(&KNOWN))[0];
        let said = |factor: f64| {
            let latency = row.measured.latency;
            (row, Latency { ttft: latency.ttft, tpot: latency.tpot * factor })
        };
        let errors = errors(&[said(1.01), said(0.98), said(1.03), said(0.9)]);
        assert_eq!(errors.itl.median_percent, 2.5);
        assert_eq!(errors.ttft.p90_percent, 0.0);
    }

    #[test]
    fn a_row_that_differs_shows_only_when_it_is_left_out() {
        let mut odd = measured(&KNOWN);
        // The only row of its prompt length: a fit that sees it can follow it.
        odd.retain(|row| row.point.isl < 8_192.0 || row.point.osl == 64.0);
        for row in odd.iter_mut().filter(|row| row.point.isl == 8_192.0) {
            row.latency.tpot *= 1.5;
        }
        let split = queueing::split(&rows(odd), 8_192.0);
        let accuracy = accuracy(&split, 8_192.0);
        assert!(accuracy.leave_one_out.itl.p90_percent > accuracy.in_sample.itl.p90_percent);
    }
}
