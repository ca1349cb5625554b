//! Non-negative least squares: the `x >= 0` that makes `|A x - y|` smallest.
//!
//! Lawson and Hanson's active-set method; each inner problem is solved by Householder QR, and
//! columns are scaled to length one first, since coefficients differ by six orders of magnitude.
//! Plain loops in a fixed order and no matrix product of a library, so that every machine gets the
//! same bits. A negative coefficient would claim that more work takes less time.
//!
//! Worked number: the line through (1, 1), (2, 3) and (3, 5) is `2 t - 1`; with both coefficients
//! held non-negative the constant is 0 and the slope 22/14 = 1.571.

use ndarray::{Array1, Array2};

/// What counts as zero, relative to the length of `y`.
const TOLERANCE: f64 = 1e-11;

/// Solves `min |A x - y|` for `x >= 0`. Columns of zeros get 0. `a` and `y` must be finite and have
/// as many rows as each other; anything else gives zeros.
pub(crate) fn solve(a: &Array2<f64>, y: &Array1<f64>) -> Array1<f64> {
    let (rows, columns) = a.dim();
    let mut x = Array1::zeros(columns);
    let finite = a.iter().chain(y.iter()).all(|v| v.is_finite());
    if !finite || rows != y.len() || rows == 0 {
        return x;
    }
    let (scaled, lengths) = scale(a);
    let small = TOLERANCE * norm(y.iter()).max(f64::MIN_POSITIVE);
    let mut passive = vec![false; columns];
    // Each round adds the column that helps most; the bound only guards against cycling by rounding.
    for _ in 0..3 * columns {
        let gradient = gradient(&scaled, y, &x);
        let best = (0..columns)
            .filter(|&j| !passive[j] && lengths[j] > 0.0 && gradient[j] > small)
            .max_by(|&i, &j| gradient[i].total_cmp(&gradient[j]).then(j.cmp(&i)));
        let Some(best) = best else { break };
        passive[best] = true;
        settle(&scaled, y, &mut x, &mut passive);
    }
    for (value, length) in x.iter_mut().zip(&lengths) {
        *value = if *length > 0.0 { *value / length } else { 0.0 };
    }
    x
}

/// Solves on the passive columns and drops those that would turn negative, until none does.
fn settle(a: &Array2<f64>, y: &Array1<f64>, x: &mut Array1<f64>, passive: &mut [bool]) {
    for _ in 0..=passive.len() {
        let chosen: Vec<usize> = (0..passive.len()).filter(|&j| passive[j]).collect();
        let trial = least_squares(a, y, &chosen);
        if trial.iter().all(|&value| value > 0.0) {
            x.fill(0.0);
            for (&j, &value) in chosen.iter().zip(&trial) {
                x[j] = value;
            }
            return;
        }
        // Go from x towards the trial until the first coefficient reaches zero.
        let mut step: f64 = 1.0;
        for (&j, &value) in chosen.iter().zip(&trial) {
            if value <= 0.0 {
                step = step.min(x[j] / (x[j] - value).max(f64::MIN_POSITIVE));
            }
        }
        for (&j, &value) in chosen.iter().zip(&trial) {
            x[j] += step * (value - x[j]);
            if value <= 0.0 && x[j] <= f64::EPSILON * value.abs().max(1.0) {
                x[j] = 0.0;
                passive[j] = false;
            }
        }
    }
}

/// Columns of length one, and the lengths they had.
fn scale(a: &Array2<f64>) -> (Array2<f64>, Vec<f64>) {
    let lengths: Vec<f64> = a.columns().into_iter().map(|column| norm(column.iter())).collect();
    let scaled =
        Array2::from_shape_fn(
            a.dim(),
            |(i, j)| {
                if lengths[j] > 0.0 { a[[i, j]] / lengths[j] } else { 0.0 }
            },
        );
    (scaled, lengths)
}

/// `Aᵀ (y - A x)`: how much the error falls where a coefficient grows.
fn gradient(a: &Array2<f64>, y: &Array1<f64>, x: &Array1<f64>) -> Array1<f64> {
    let (rows, columns) = a.dim();
    let mut out = Array1::zeros(columns);
    for i in 0..rows {
        let mut rest = y[i];
        for j in 0..columns {
            rest -= a[[i, j]] * x[j];
        }
        for j in 0..columns {
            out[j] += a[[i, j]] * rest;
        }
    }
    out
}

/// Unconstrained least squares on the `chosen` columns by Householder QR. A column that depends on
/// the ones before it gets 0.
fn least_squares(a: &Array2<f64>, y: &Array1<f64>, chosen: &[usize]) -> Vec<f64> {
    let (rows, columns) = (a.nrows(), chosen.len());
    let mut r = Array2::from_shape_fn((rows, columns), |(i, j)| a[[i, chosen[j]]]);
    let mut rest = y.clone();
    for k in 0..columns.min(rows) {
        reflect(&mut r, &mut rest, k);
    }
    let mut x = vec![0.0; columns];
    for k in (0..columns.min(rows)).rev() {
        let mut value = rest[k];
        for j in k + 1..columns {
            value -= r[[k, j]] * x[j];
        }
        x[k] = if r[[k, k]].abs() > 1e-10 { value / r[[k, k]] } else { 0.0 };
    }
    x
}

/// One Householder reflection: zeroes column `k` below its diagonal, and treats the rest alike.
fn reflect(r: &mut Array2<f64>, rest: &mut Array1<f64>, k: usize) {
    let (rows, columns) = r.dim();
    let mut v: Vec<f64> = (k..rows).map(|i| r[[i, k]]).collect();
    let length = norm(v.iter());
    if length == 0.0 {
        return;
    }
    v[0] += if v[0] < 0.0 { -length } else { length };
    let squared: f64 = v.iter().map(|value| value * value).sum();
    for j in k..columns {
        let dot: f64 = v.iter().enumerate().map(|(i, value)| value * r[[k + i, j]]).sum();
        for (i, value) in v.iter().enumerate() {
            r[[k + i, j]] -= 2.0 * dot / squared * value;
        }
    }
    let dot: f64 = v.iter().enumerate().map(|(i, value)| value * rest[k + i]).sum();
    for (i, value) in v.iter().enumerate() {
        rest[k + i] -= 2.0 * dot / squared * value;
    }
}

fn norm<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;
    use proptest::prelude::*;

    #[test]
    fn a_line_that_wants_a_negative_constant_gets_zero() {
        let a = array![[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]];
        let x = solve(&a, &array![1.0, 3.0, 5.0]);
        assert_eq!(x[0], 0.0);
        assert!((x[1] - 22.0 / 14.0).abs() < 1e-12, "{x}");
    }

    #[test]
    fn an_exact_non_negative_solution_is_found() {
        let a = array![[1.0, 2.0, 1e6], [3.0, 1.0, 2e6], [1.0, 5.0, 7e6], [2.0, 2.0, 1e5]];
        let want = [0.5, 0.0, 3e-6];
        let y = Array1::from_shape_fn(4, |i| (0..3).map(|j| a[[i, j]] * want[j]).sum());
        let x = solve(&a, &y);
        for (got, want) in x.iter().zip(want) {
            assert!((got - want).abs() < 1e-9, "{x}");
        }
    }

    #[test]
    fn not_a_number_and_columns_of_zeros_give_zeros() {
        assert_eq!(solve(&array![[f64::NAN], [1.0]], &array![1.0, 1.0])[0], 0.0);
        let x = solve(&array![[0.0, 1.0], [0.0, 2.0]], &array![1.0, 2.0]);
        assert_eq!(x[0], 0.0);
        assert!((x[1] - 1.0).abs() < 1e-12);
    }

    proptest! {
        /// Karush-Kuhn-Tucker: no coefficient is negative, no error falls by growing one that is
        /// zero, and none by moving one that is not.
        #[test]
        fn the_solution_meets_the_optimality_conditions(
            cells in prop::collection::vec(-10.0_f64..10.0, 48),
            y in prop::collection::vec(-10.0_f64..10.0, 12),
            twins in any::<bool>(),
        ) {
            let cell = |i: usize, j: usize| cells[i * 4 + j];
            let twin = |j: usize| if twins && j == 3 { 0 } else { j };
            let a = Array2::from_shape_fn((12, 4), |(i, j)| cell(i, twin(j)));
            let y = Array1::from(y);
            let x = solve(&a, &y);
            let slope = gradient(&a, &y, &x);
            for j in 0..4 {
                prop_assert!(x[j] >= 0.0);
                prop_assert!(slope[j] <= 1e-6, "x {x} slope {slope}");
                prop_assert!(x[j] == 0.0 || slope[j].abs() <= 1e-6, "x {x} slope {slope}");
            }
        }
    }
}
