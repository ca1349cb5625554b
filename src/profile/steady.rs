//! A replica in a steady closed loop: what it does when a fixed number of clients each send the
//! next request as soon as the last one ends. Benchmarks measure this.
//!
//! A request is `ttft + (osl - 1) * tpot` long, so `c` clients start `c / that` requests a second,
//! and a mean step of a continuous-batching engine carries the sequences that decode, their KV, and
//! the share of new prompts that arrived during it:
//! `tpot = a + b*B + c*KV + d*p + e*p*isl/2`. The first token takes the steps that its own
//! prompt needs (`ceil(isl / budget)` of them, each with the decoding batch in it), its own prefill,
//! and the wait for what the other clients sent at the same time. That wait belongs to the benchmark,
//! not to the replica, so it has coefficients of its own: a constant, two that grow with the prompt
//! and one that grows with prompt and clients (all clients start at once). The first five are shared
//! by both equations. They make the step model of `spillgate_core::model`.
//!
//! Worked number: 16 clients, 1 024 tokens in, 128 out, TTFT 188 ms, TPOT 22.2 ms. A request takes
//! 3.0 s, 5.3 start each second, and a step carries 15 decoding sequences and 121 prompt tokens.

use ndarray::{Array1, Array2};

/// Coefficients: five of a step, four of the benchmark's wait. Milliseconds per unit.
pub(crate) const WIDTH: usize = 9;
/// Milliseconds per unit of each regressor; the first five are a, b, c, d, e of a step (tokens).
pub(crate) type Coefficients = [f64; WIDTH];

/// The conditions of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Clients that each keep one request open.
    pub(crate) concurrency: f64,
    /// Prompt tokens of a request.
    pub(crate) isl: f64,
    /// Output tokens of a request.
    pub(crate) osl: f64,
}

/// Latencies of a point, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    /// Time to first token.
    pub(crate) ttft: f64,
    /// Time between tokens after it.
    pub(crate) tpot: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) point: Point,
    pub(crate) latency: Latency,
}

impl Point {
    /// Mean KV tokens that the clients' requests want to hold together.
    pub(crate) fn kv_wanted(&self) -> f64 {
        self.concurrency * (self.isl + self.osl / 2.0)
    }

    /// Regressors of TPOT and of TTFT, given the latencies that set how many sequences decode.
    fn regressors(&self, at: Latency, budget: f64) -> [Coefficients; 2] {
        let starts = self.concurrency / (at.ttft + (self.osl - 1.0) * at.tpot).max(1e-9);
        let decoding = starts * (self.osl - 1.0) * at.tpot;
        let kv = decoding * (self.isl + self.osl / 2.0);
        let prefill = starts * self.isl * at.tpot;
        let steps = (self.isl / budget).ceil().max(1.0);
        let half_square = self.isl * self.isl / 2.0;
        let tpot = [1.0, decoding, kv, prefill, prefill * self.isl / 2.0, 0.0, 0.0, 0.0, 0.0];
        let ttft = [
            steps,
            steps * decoding,
            steps * kv,
            self.isl,
            half_square,
            1.0,
            self.isl,
            half_square,
            self.concurrency * self.isl,
        ];
        [tpot, ttft]
    }

    /// The latencies that the coefficients predict: the fixed point of both equations. The batch is
    /// bounded by the clients, so half steps towards it settle whatever the coefficients.
    pub(crate) fn predict(&self, coefficients: &Coefficients, budget: f64) -> Latency {
        let mut at = Latency { ttft: 100.0, tpot: 20.0 };
        for _ in 0..60 {
            let [tpot, ttft] = self.regressors(at, budget);
            at.tpot = 0.5 * (at.tpot + dot(&tpot, coefficients));
            at.ttft = 0.5 * (at.ttft + dot(&ttft, coefficients));
        }
        at
    }
}

/// Fits all coefficients to both latencies of all rows, every row's relative error weighing the
/// same. The regressors depend on the latencies, so the fit is repeated with what it predicts.
pub(crate) fn fit(rows: &[Measured], budget: f64) -> Coefficients {
    let mut at: Vec<Latency> = rows.iter().map(|row| row.latency).collect();
    let mut coefficients = [0.0; WIDTH];
    for _ in 0..20 {
        let mut a = Array2::zeros((2 * rows.len(), WIDTH));
        for (i, row) in rows.iter().enumerate() {
            let [tpot, ttft] = row.point.regressors(at[i], budget);
            for j in 0..WIDTH {
                a[[2 * i, j]] = tpot[j] / row.latency.tpot;
                a[[2 * i + 1, j]] = ttft[j] / row.latency.ttft;
            }
        }
        let solved = super::nnls::solve(&a, &Array1::ones(2 * rows.len()));
        for (to, from) in coefficients.iter_mut().zip(&solved) {
            *to = *from;
        }
        for (at, row) in at.iter_mut().zip(rows) {
            *at = row.point.predict(&coefficients, budget);
        }
    }
    coefficients
}

fn dot(a: &Coefficients, b: &Coefficients) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Like a 32B model on two H100: 14 ms, 70 us, 40 ns, 50 us, 4 ns; and a benchmark's wait.
    pub(crate) const KNOWN: Coefficients = [14.0, 0.07, 4e-5, 0.05, 4e-6, 30.0, 0.0, 2e-5, 3e-3];

    pub(crate) fn grid() -> Vec<Point> {
        let mut points = Vec::new();
        for isl in [512.0, 2_048.0, 8_192.0] {
            for osl in [64.0, 256.0, 1_024.0] {
                for concurrency in [4.0, 16.0, 32.0] {
                    points.push(Point { concurrency, isl, osl });
                }
            }
        }
        points
    }

    pub(crate) fn measured(known: &Coefficients) -> Vec<Measured> {
        grid()
            .into_iter()
            .map(|point| Measured { point, latency: point.predict(known, 8_192.0) })
            .collect()
    }

    #[test]
    fn known_coefficients_are_recovered_from_what_they_predict() {
        let found = fit(&measured(&KNOWN), 8_192.0);
        for j in 0..5 {
            let error = (found[j] / KNOWN[j] - 1.0).abs();
            assert!(error < 1e-3, "coefficient {j}: {} for {}", found[j], KNOWN[j]);
        }
    }

    #[test]
    fn a_single_client_decodes_alone() {
        let point = Point { concurrency: 1.0, isl: 100.0, osl: 1_000.0 };
        let only_base = [10.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let at = point.predict(&only_base, 8_192.0);
        assert!(at.tpot > 10.99 && at.tpot < 11.0, "{at:?}");
    }

    #[test]
    fn a_prompt_above_the_token_budget_takes_more_steps() {
        let point = Point { concurrency: 1.0, isl: 20_000.0, osl: 100.0 };
        let only_base = [10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert!((point.predict(&only_base, 8_192.0).ttft - 30.0).abs() < 1e-6);
    }
}
