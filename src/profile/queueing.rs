//! Rows that only queue for KV cache, and what they say about its size.
//!
//! Where clients want more KV than there is, requests wait for it, TTFT is that wait, and neither
//! latency says anything about steps. Such rows are peeled off from the top: the row that wants
//! the most KV is predicted from the rows that want less, and queues if its first token comes
//! later than [`SURPRISE`] times the prediction; then the next, until one does not.
//! A peeled row still measures the cache, by Little's law: the share of a request's life in which it
//! holds KV, times the clients, is how many hold it.
//!
//! Worked number: 128 clients, 4 096 tokens in and 1 024 out, TTFT 58.8 s where 1.6 s is predicted,
//! and 56.5 s of decoding. For 56.5 of 115.2 s a request holds 4 608 tokens and for 1.6 s half its
//! prompt: 128 * (56.5 * 4 608 + 1.6 * 2 048) / 115.2 = 292 800 tokens.

use super::rows::Row;
use super::steady::{self, Coefficients};

/// A first token this many times later than predicted is waiting for KV. Where none queues, the
/// top row of nineteen groups of measured rows came at 0.8 to 1.02 times its prediction, and where
/// one does, at 1.35 to 500 times.
const SURPRISE: f64 = 1.25;
/// Fewer rows than this cannot tell nine coefficients from noise.
pub(crate) const LEAST_ROWS: usize = 6;
/// Estimates of one cache that differ by more than this are not about one cache.
const MOST_SPREAD: f64 = 1.5;

/// Rows that show steps, rows that show queueing, and the fit of the former.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    /// For the fit, by KV wanted.
    pub(crate) steady: Vec<Row>,
    /// Out of the fit, by KV wanted.
    pub(crate) queueing: Vec<Queueing>,
    /// Fitted on `steady`.
    pub(crate) coefficients: Coefficients,
}

/// One row that only queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queueing {
    pub(crate) row: Row,
    /// TTFT without the queue, in milliseconds.
    pub(crate) predicted_ttft: f64,
    /// Mean KV tokens that were held.
    pub(crate) held_tokens: f64,
}

impl Queueing {
    /// The row in words.
    pub(crate) fn describe(&self) -> String {
        let point = self.row.measured.point;
        format!(
            "line {}: {} clients, {} tokens in, {} out want {:.0} KV tokens and hold {:.0}: \
             TTFT {:.0} ms, {:.0} ms without the queue",
            self.row.line,
            point.concurrency,
            point.isl,
            point.osl,
            point.kv_wanted(),
            self.held_tokens,
            self.row.measured.latency.ttft,
            self.predicted_ttft,
        )
    }
}

/// Splits rows into steady and queueing ones, and fits the steady ones.
pub(crate) fn split(rows: &[Row], budget: f64) -> Split {
    let mut sorted = rows.to_vec();
    let kv = |row: &Row| row.measured.point.kv_wanted();
    sorted.sort_by(|a, b| kv(a).total_cmp(&kv(b)).then(a.line.cmp(&b.line)));
    let mut kept = sorted.len();
    while kept > LEAST_ROWS {
        let below = fit(&sorted[..kept - 1], budget);
        let top = &sorted[kept - 1].measured;
        if top.latency.ttft <= SURPRISE * top.point.predict(&below, budget).ttft {
            break;
        }
        kept -= 1;
    }
    let coefficients = fit(&sorted[..kept], budget);
    let queueing = sorted[kept..].iter().map(|row| held(row, &coefficients, budget)).collect();
    sorted.truncate(kept);
    Split { steady: sorted, queueing, coefficients }
}

/// Fits rows.
pub(crate) fn fit(rows: &[Row], budget: f64) -> Coefficients {
    let measured: Vec<_> = rows.iter().map(|row| row.measured).collect();
    steady::fit(&measured, budget)
}

/// What a queueing row holds, by Little's law: the whole context while it decodes, half of its
/// prompt on average while that is computed, nothing while it waits.
fn held(row: &Row, coefficients: &Coefficients, budget: f64) -> Queueing {
    let (point, latency) = (row.measured.point, row.measured.latency);
    let decoding = (point.osl - 1.0) * latency.tpot;
    // Only the requests that found room share the replica, so TTFT without the queue is theirs.
    let mut running = point;
    let mut predicted_ttft = 0.0;
    for _ in 0..10 {
        predicted_ttft = running.predict(coefficients, budget).ttft.min(latency.ttft);
        let share = (predicted_ttft + decoding) / (latency.ttft + decoding);
        running.concurrency = point.concurrency * share;
    }
    let held_by_one = predicted_ttft * point.isl / 2.0 + decoding * (point.isl + point.osl / 2.0);
    let held_tokens = point.concurrency * held_by_one / (latency.ttft + decoding);
    Queueing { row: *row, predicted_ttft, held_tokens }
}

/// The KV capacity that queueing rows show: their median, and at least what was held without a
/// queue. `None` without such rows; an error where they contradict each other.
pub(crate) fn capacity(split: &Split) -> Result<Option<u64>, String> {
    let mut held: Vec<f64> = split.queueing.iter().map(|row| row.held_tokens).collect();
    held.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (held.first(), held.last()) else { return Ok(None) };
    if most / least > MOST_SPREAD {
        return Err(format!(
            "queueing rows hold between {least:.0} and {most:.0} KV tokens: they queue for \
             something else than KV (the engine's max_num_seqs?), so they do not bound it"
        ));
    }
    let middle = f64::midpoint(held[(held.len() - 1) / 2], held[held.len() / 2]);
    let without_queue = no_queue_up_to(split).unwrap_or(0);
    // Hundreds of tokens are far below what this can tell.
    Ok(Some(((middle / 1_000.0).round() as u64 * 1_000).max(without_queue)))
}

/// The most KV that was wanted without a queue.
pub(crate) fn no_queue_up_to(split: &Split) -> Option<u64> {
    split.steady.last().map(|row| row.measured.point.kv_wanted().round() as u64)
}

/// The least KV that was wanted with a queue.
pub(crate) fn queue_from(split: &Split) -> Option<u64> {
    split.queueing.first().map(|row| row.row.measured.point.kv_wanted().round() as u64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::profile::steady::tests::{KNOWN, measured};
    use crate::profile::steady::{Latency, Measured, Point};

    const BUDGET: f64 = 8_192.0;

    /// What `clients` see if only `capacity` tokens of KV are there.
    fn with_a_queue(clients: f64, isl: f64, osl: f64, capacity: f64) -> Measured {
        let mut running = Point { concurrency: 1.0, isl, osl };
        let (mut free, mut decoding) = (Latency { ttft: 1.0, tpot: 1.0 }, 1.0);
        for _ in 0..100 {
            free = running.predict(&KNOWN, BUDGET);
            decoding = (osl - 1.0) * free.tpot;
            let held_by_one = free.ttft * isl / 2.0 + decoding * (isl + osl / 2.0);
            running.concurrency = capacity * (free.ttft + decoding) / held_by_one;
        }
        let cycle = clients / running.concurrency * (free.ttft + decoding);
        let latency = Latency { ttft: cycle - decoding, tpot: free.tpot };
        Measured { point: Point { concurrency: clients, isl, osl }, latency }
    }

    pub(crate) fn rows(measured: Vec<Measured>) -> Vec<Row> {
        let lines = 2..;
        lines.zip(measured).map(|(line, measured)| Row { line, measured }).collect()
    }

    #[test]
    fn rows_without_a_queue_all_stay() {
        let split = split(&rows(measured(&KNOWN)), BUDGET);
        assert!(split.queueing.is_empty());
        assert_eq!(capacity(&split), Ok(None));
    }

    #[test]
    fn queueing_rows_leave_the_fit_and_give_the_cache_back() {
        let mut all = measured(&KNOWN);
        for osl in [128.0, 512.0, 1_024.0] {
            all.push(with_a_queue(128.0, 8_192.0, osl, 300_000.0));
        }
        let split = split(&rows(all), BUDGET);
        assert_eq!(split.queueing.len(), 3);
        assert!((split.coefficients[0] / KNOWN[0] - 1.0).abs() < 1e-3);
        let found = capacity(&split).expect("consistent").expect("some") as f64;
        assert!((found / 300_000.0 - 1.0).abs() < 0.01, "{found}");
    }

    #[test]
    fn rows_that_queue_for_sequences_say_nothing_about_kv() {
        let mut all = measured(&KNOWN);
        all.push(with_a_queue(400.0, 8_192.0, 1_024.0, 300_000.0));
        all.push(with_a_queue(400.0, 1_024.0, 512.0, 40_000.0));
        let split = split(&rows(all), BUDGET);
        assert_eq!(split.queueing.len(), 2);
        assert!(capacity(&split).unwrap_err().contains("max_num_seqs"));
    }
}
