//! A small seeded random generator: xoshiro256++, its state filled by splitmix64.
//!
//! Every draw is integer arithmetic or `libm`, so that a seed gives the same bits on every machine,
//! libc and build. A seed is split into named streams: the spread of arrivals does not move when
//! somebody draws one number more for start times. Not for secrets.
//!
//! Worked number: a gamma gap with CV 2 has shape 1 / 2^2 = 0.25; scaled to mean 1 it is below 0.1
//! about half of the time and above 4 about one time in fifteen: bursts and silences.

use spillgate_core::units::finite;

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of splitmix64: spreads a seed over 64 bits.
const fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut fill = seed;
        let state = [
            splitmix64(&mut fill),
            splitmix64(&mut fill),
            splitmix64(&mut fill),
            splitmix64(&mut fill),
        ];
        Self { state }
    }

    /// The stream of a seed for one purpose: independent of the streams of other purposes.
    #[must_use]
    pub fn named(seed: u64, purpose: &str) -> Self {
        // FNV-1a: short, fixed for ever, and any two names of ours differ in it.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut mixed = seed;
        Self::new(splitmix64(&mut mixed) ^ hash)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A whole number in `0..limit`, each equally likely; 0 where `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // Lemire's method: the high half of a 128-bit product, with the biased low part refused.
        let refuse = limit.wrapping_neg().checked_rem(limit).unwrap_or(0);
        loop {
            let product = u128::from(self.next_u64()) * u128::from(limit);
            if product as u64 >= refuse {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in `[0, 1)`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Exponential with mean 1: the gaps of a Poisson process of rate 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log1p(-self.uniform())
    }

    /// Standard normal (Marsaglia's polar method; its second number is not kept, so that the
    /// stream has no hidden state).
    pub fn normal(&mut self) -> f64 {
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }

    /// Lognormal with this median, and `sigma` the standard deviation of its logarithm.
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * libm::exp(sigma * self.normal())
    }

    /// Gamma with this shape and scale 1 (Marsaglia and Tsang 2000). Shapes below 0.001 count as
    /// 0.001: below that nearly every draw is zero.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        let shape = finite(shape).max(1e-3);
        if shape < 1.0 {
            let boost = libm::pow(1.0 - self.uniform(), 1.0 / shape);
            return boost * self.gamma(shape + 1.0);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            let u = 1.0 - self.uniform();
            if libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_numbers() {
        let mut state = 1_234_567;
        let drawn: Vec<u64> = (0..5).map(|_| splitmix64(&mut state)).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, published);
    }

    #[test]
    fn xoshiro256_plus_plus_gives_the_published_numbers() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let drawn: Vec<u64> = (0..10).map(|_| rng.next_u64()).collect();
        let published = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
            14_011_001_112_246_962_877,
            12_406_186_145_184_390_807,
            15_849_039_046_786_891_736,
            10_450_023_813_501_588_000,
        ];
        assert_eq!(drawn, published);
    }

    /// Mean and standard deviation over mean of `n` draws.
    fn moments(n: u32, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / f64::from(n);
        (mean, variance.sqrt() / mean)
    }

    #[track_caller]
    fn near(got: f64, expected: f64) {
        assert!((got - expected).abs() < 0.03 * expected, "{got} is not near {expected}");
    }

    #[test]
    fn distributions_have_their_mean_and_spread() {
        let mut rng = Rng::new(7);
        let (mean, cv) = moments(100_000, || rng.exponential());
        near(mean, 1.0);
        near(cv, 1.0);
        for shape in [0.25, 1.0, 4.0] {
            let (mean, cv) = moments(100_000, || rng.gamma(shape));
            near(mean, shape);
            near(cv, 1.0 / libm::sqrt(shape));
        }
        let (mean, _) = moments(100_000, || rng.lognormal(100.0, 0.5));
        near(mean, 100.0 * libm::exp(0.125));
        let (mean, _) = moments(100_000, || rng.uniform());
        near(mean, 0.5);
    }

    #[test]
    fn a_whole_number_below_a_limit_is_even_and_below_it() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|n| (9_600..10_400).contains(n)), "{counts:?}");
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
    }

    #[test]
    fn absurd_shapes_end() {
        let mut rng = Rng::new(1);
        for shape in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert!(rng.gamma(shape).is_finite());
        }
    }

    #[test]
    fn streams_of_one_seed_differ_by_name_and_repeat() {
        let first = |name| Rng::named(1, name).next_u64();
        assert_ne!(first("spread"), first("scale"));
        assert_eq!(first("spread"), first("spread"));
        assert_ne!(first("spread"), Rng::named(2, "spread").next_u64());
    }
}
