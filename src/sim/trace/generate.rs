//! A seeded generator of synthetic traffic: a rate that swings like a day and has bursts, arrivals
//! around it, and lognormal lengths.
//!
//! Arrivals are a renewal process in operational time: gaps of mean one are laid along the integral
//! of the rate, so that Poisson and burstier traffic follow the same curve. Arrivals and lengths
//! draw from streams of their own: another length distribution leaves every arrival where it was.
//!
//! Worked number: base 5.5 a second with a swing of 0.45 runs between 3.0 and 8.0; a burst of
//! factor 5 at the top of it reaches 40.

use crate::sim::request::Request;
use crate::sim::rng::Rng;
use spillgate_core::units::{Picos, finite};

/// The rate is taken as constant for this long.
const STEP_S: f64 = 0.1;

const PICOS_PER_MS: u64 = 1_000_000_000;

/// Traffic to make up.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// How long it lasts.
    pub duration_s: f64,
    /// Mean requests a second, bursts left out.
    pub base_rps: f64,
    /// How far the rate swings around the base, as a share of it (0 to 1). It starts at its lowest.
    pub swing: f64,
    /// Length of one swing: the "day".
    pub period_s: f64,
    /// Surges on top.
    pub bursts: Vec<Burst>,
    /// How arrivals scatter around the rate.
    pub arrivals: Arrivals,
    /// Prompt lengths.
    pub input: Lengths,
    /// Output lengths.
    pub output: Lengths,
}

/// A surge: the rate is multiplied while it lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// When the rate begins to rise.
    pub start_s: f64,
    /// From the begin of the rise to the end of the fall.
    pub length_s: f64,
    /// Length of the rise, and of the fall.
    pub ramp_s: f64,
    /// What the rate is multiplied with at the top.
    pub factor: f64,
}

/// How arrivals scatter around the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Independent users.
    Poisson,
    /// Gaps with this coefficient of variation: 1 is Poisson, 2 clearly burstier.
    Gamma {
        /// Standard deviation of the gaps over their mean.
        cv: f64,
    },
}

/// Token counts: lognormal within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// Half of the requests are shorter.
    pub median: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
    /// The shortest; what is drawn shorter becomes this long.
    pub min: u32,
    /// The longest.
    pub max: u32,
}

impl Traffic {
    /// The day that ships as `replay/diurnal-burst.csv`: forty minutes, one swing, and in the
    /// afternoon a burst that a small pool of devices cannot serve.
    #[must_use]
    pub fn diurnal_burst() -> Self {
        Self {
            duration_s: 2_400.0,
            base_rps: 5.5,
            swing: 0.45,
            period_s: 2_400.0,
            bursts: vec![Burst { start_s: 1_200.0, length_s: 280.0, ramp_s: 25.0, factor: 5.0 }],
            arrivals: Arrivals::Gamma { cv: 1.2 },
            input: Lengths { median: 1_100.0, sigma: 0.9, min: 16, max: 16_000 },
            output: Lengths { median: 220.0, sigma: 0.8, min: 1, max: 2_000 },
        }
    }

    /// Expected requests a second at a time.
    #[must_use]
    pub fn rate(&self, at_s: f64) -> f64 {
        let day = core::f64::consts::TAU * at_s / self.period_s;
        let swung = self.base_rps * (1.0 - self.swing * libm::cos(day));
        finite(self.bursts.iter().fold(swung, |rate, burst| rate * burst.at(at_s)))
    }

    /// The requests of a seed, times in whole milliseconds from the first arrival.
    #[must_use]
    pub fn generate(&self, seed: u64) -> Vec<Request> {
        let mut arrivals = Rng::named(seed, "arrivals");
        let mut lengths = Rng::named(seed, "lengths");
        let mut requests = Vec::new();
        let mut first = None;
        let mut gap = self.arrivals.gap(&mut arrivals);
        for step in 0..(finite(self.duration_s) / STEP_S) as u64 {
            let start = step as f64 * STEP_S;
            let mass = self.rate(start) * STEP_S;
            let mut left = mass;
            while gap < left {
                left -= gap;
                let at = Picos::from_secs(start + STEP_S * (1.0 - left / mass));
                let ms = at.0 / PICOS_PER_MS;
                requests.push(Request {
                    at: Picos((ms - *first.get_or_insert(ms)) * PICOS_PER_MS),
                    input: self.input.draw(&mut lengths).max(1),
                    output: self.output.draw(&mut lengths),
                });
                gap = self.arrivals.gap(&mut arrivals);
            }
            gap -= left;
        }
        requests
    }
}

impl Burst {
    /// The factor at a time: 1 outside, rising and falling in a straight line.
    fn at(&self, at_s: f64) -> f64 {
        let inside = (at_s - self.start_s).min(self.start_s + self.length_s - at_s);
        let height = if self.ramp_s > 0.0 { inside / self.ramp_s } else { f64::from(inside > 0.0) };
        1.0 + (self.factor - 1.0) * height.clamp(0.0, 1.0)
    }
}

impl Arrivals {
    /// A gap of mean one.
    fn gap(self, random: &mut Rng) -> f64 {
        match self {
            Self::Poisson => random.exponential(),
            Self::Gamma { cv } => {
                let shape = 1.0 / (cv * cv);
                random.gamma(shape) / shape
            }
        }
    }
}

impl Lengths {
    fn draw(self, random: &mut Rng) -> u32 {
        let drawn = libm::round(random.lognormal(self.median, self.sigma)) as u32;
        drawn.max(self.min).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::trace::{Trace, parse, to_csv};
    use std::path::PathBuf;

    const SEED: u64 = 1;

    fn shipped() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("replay/diurnal-burst.csv")
    }

    /// Writes the shipped trace: `cargo test --lib write_the_shipped_trace -- --ignored`.
    #[test]
    #[ignore = "writes replay/diurnal-burst.csv; run it after changing the generator"]
    fn write_the_shipped_trace() {
        let text = to_csv(&Traffic::diurnal_burst().generate(SEED));
        std::fs::write(shipped(), text).expect("replay/ can be written");
    }

    #[test]
    fn the_shipped_trace_is_what_the_generator_writes() {
        let text = std::fs::read_to_string(shipped()).expect("replay/diurnal-burst.csv");
        let requests = Traffic::diurnal_burst().generate(SEED);
        assert!(text == to_csv(&requests), "regenerate it: see `write_the_shipped_trace`");
        assert!(text.len() < 500_000, "{} bytes", text.len());
        let Trace { requests: read, notes, .. } =
            parse("diurnal-burst.csv", text.as_bytes(), 1).expect("readable");
        assert!(read == requests, "reading gives what was generated");
        assert_eq!(notes, Vec::<String>::new());
    }

    #[test]
    fn the_shipped_trace_has_a_swing_and_a_burst() {
        let requests = Traffic::diurnal_burst().generate(SEED);
        let rate = |from: f64, to: f64| {
            let inside = |r: &&Request| (from..to).contains(&r.at.as_secs());
            requests.iter().filter(inside).count() as f64 / (to - from)
        };
        assert!((15_000..25_000).contains(&requests.len()), "{}", requests.len());
        assert!((2.5..4.0).contains(&rate(0.0, 200.0)), "{}", rate(0.0, 200.0));
        assert!((6.0..9.0).contains(&rate(900.0, 1_200.0)), "{}", rate(900.0, 1_200.0));
        assert!((35.0..44.0).contains(&rate(1_230.0, 1_450.0)), "{}", rate(1_230.0, 1_450.0));
    }

    #[test]
    fn the_number_of_requests_follows_the_rate_whatever_the_scatter() {
        for arrivals in [Arrivals::Poisson, Arrivals::Gamma { cv: 2.0 }] {
            let steady = Traffic {
                arrivals,
                bursts: Vec::new(),
                duration_s: 10_000.0,
                ..Traffic::diurnal_burst()
            };
            let expected: f64 = (0..10_000).map(|second| steady.rate(f64::from(second))).sum();
            let got = steady.generate(3).len() as f64;
            assert!((got - expected).abs() < 0.03 * expected, "{arrivals:?}: {got}, {expected}");
        }
    }

    #[test]
    fn lengths_stay_within_their_bounds_and_near_their_median() {
        let traffic = Traffic::diurnal_burst();
        let mut inputs: Vec<u32> = traffic.generate(5).iter().map(|r| r.input).collect();
        inputs.sort_unstable();
        assert!(inputs[0] >= 16 && inputs[inputs.len() - 1] <= 16_000);
        assert!((1_050..1_150).contains(&inputs[inputs.len() / 2]), "{}", inputs[inputs.len() / 2]);
    }

    #[test]
    fn other_lengths_leave_every_arrival_where_it_was() {
        let day = Traffic::diurnal_burst();
        let short = Traffic { output: Lengths { median: 5.0, ..day.output }, ..day.clone() };
        let times = |traffic: &Traffic| {
            traffic.generate(1).iter().map(|request| request.at).collect::<Vec<_>>()
        };
        assert!(times(&day) == times(&short));
    }
}
