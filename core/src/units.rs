//! Units are types: times, rates, tokens, replicas and ratios as newtypes whose arithmetic only
//! allows what makes sense.
//!
//! Integers cross the boundary (`Stamp`, `Span`, `Micros`, `Tokens`, `Replicas`, `Gpus`, `Ppm`,
//! `Permille`) and saturate instead of wrapping. Floats (`ReqRate`, `TokenRate`, `Ratio`) live in
//! the core's memory only and are always finite: a constructor turns NaN, infinities and negatives
//! into zero.
//!
//! Worked number: `ReqRate::new(5.0) * 1_155.0 tokens` is a `TokenRate` of 5 775 tokens/s, and
//! `Replicas(3) * GpusEach(2)` is `Gpus(6)`.

use core::fmt;
use core::ops::{Add, Div, Mul, Sub};
use serde::{Deserialize, Serialize};

macro_rules! whole {
    ($(#[$doc:meta])* $name:ident($int:ty), $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);
        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);
            /// The larger number the type can hold.
            pub const MAX: Self = Self(<$int>::MAX);
            /// `self - other`, zero where that would be negative.
            #[must_use]
            pub const fn less(self, other: Self) -> Self { Self(self.0.saturating_sub(other.0)) }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self { Self(self.0.saturating_add(other.0)) }
        }
        impl core::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self { iter.fold(Self::ZERO, |a, b| a + b) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, concat!("{}", $unit), self.0) }
        }
    };
}

whole!(/** A length of time in microseconds: latencies and targets. */ Micros(u64), " us");
whole!(/** Virtual time or step time in integer picoseconds. */ Picos(u64), " ps");
whole!(/** A number of tokens. */ Tokens(u64), " tokens");
whole!(/** A number of replicas: what `/scale` counts (a pod, or a whole replica group). */ Replicas(u32), "");
whole!(/** A number of accelerator devices, whatever the resource is called. */ Gpus(u32), " GPUs");
whole!(/** Parts per million of a whole (1 000 000 = 100 %). */ Ppm(u32), " ppm");
whole!(/** Parts per thousand of a whole (1 000 = 100 %): traffic shares. */ Permille(u32), " permille");
whole!(/** Money in millionths of a US dollar. */ MicroUsd(u64), " uUSD");

/// A moment: milliseconds since the Unix epoch (or since the start of a replay), given by the body.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Stamp(pub u64);

/// A length of time in milliseconds: windows, intervals, start times.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Stamp {
    /// Time passed since `earlier`; zero if the clock went back.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Stamp {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// `n` minutes.
    #[must_use]
    pub const fn mins(n: u64) -> Self {
        Self(n.saturating_mul(60_000))
    }
    /// The length in seconds.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Span {
    /// Go's way, the largest unit first and no zero parts: `1h30m`, `90s` is `1m30s`, `1500ms` is `1s500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let parts = [
            (self.0 / 3_600_000, "h"),
            (self.0 / 60_000 % 60, "m"),
            (self.0 / 1_000 % 60, "s"),
            (self.0 % 1_000, "ms"),
        ];
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

impl Micros {
    /// The length in seconds.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// The same length in picoseconds.
    #[must_use]
    pub const fn picos(self) -> Picos {
        Picos(self.0.saturating_mul(1_000_000))
    }
}

impl Picos {
    /// The length in seconds.
    #[must_use]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// Seconds to picoseconds; zero for what is not a positive number.
    #[must_use]
    pub fn from_secs(secs: f64) -> Self {
        Self(libm::round(finite(secs) * 1e12) as u64)
    }
    /// Whole microseconds, rounded down.
    #[must_use]
    pub const fn micros(self) -> Micros {
        Micros(self.0 / 1_000_000)
    }
}

/// Devices that one replica occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpusEach(pub u32);

impl Mul<GpusEach> for Replicas {
    type Output = Gpus;
    fn mul(self, each: GpusEach) -> Gpus {
        Gpus(self.0.saturating_mul(each.0))
    }
}

impl Div<GpusEach> for Gpus {
    type Output = Replicas;
    /// Whole replicas that fit; none where a replica is said to take no device.
    fn div(self, each: GpusEach) -> Replicas {
        Replicas(self.0.checked_div(each.0).unwrap_or(0))
    }
}

/// A finite, non-negative number; NaN, infinities and negatives become 0.
#[must_use]
pub fn finite(x: f64) -> f64 {
    if x.is_finite() && x > 0.0 { x } else { 0.0 }
}

macro_rules! real {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(f64);
        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0.0);
            /// A finite, non-negative value; anything else is zero.
            #[must_use]
            pub fn new(value: f64) -> Self { Self(finite(value)) }
            /// The plain number, in the unit of the type.
            #[must_use]
            pub const fn get(self) -> f64 { self.0 }
            /// The larger of the two.
            #[must_use]
            pub fn max(self, other: Self) -> Self { Self(self.0.max(other.0)) }
        }
        impl Add for $name { type Output = Self; fn add(self, o: Self) -> Self { Self::new(self.0 + o.0) } }
        impl Sub for $name { type Output = Self; fn sub(self, o: Self) -> Self { Self::new(self.0 - o.0) } }
        impl Mul<Ratio> for $name { type Output = Self; fn mul(self, o: Ratio) -> Self { Self::new(self.0 * o.get()) } }
        impl Div for $name { type Output = Ratio; fn div(self, o: Self) -> Ratio { Ratio::new(self.0 / o.0) } }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, concat!("{:.2}", $unit), self.0) }
        }
    };
}

real!(/** Requests per second. */ ReqRate, " req/s");
real!(/** Tokens per second. */ TokenRate, " tok/s");
real!(/** Busy replicas: seconds of one replica's time asked for per second (Erlangs). */ Load, " busy");

/// A dimensionless, finite, non-negative number.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// One: the neutral factor.
    pub const ONE: Self = Self(1.0);
    /// A finite, non-negative value; anything else is zero.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self(finite(value))
    }
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
    /// In parts per thousand, rounded and capped at one whole.
    #[must_use]
    pub fn permille(self) -> Permille {
        Permille(libm::round(self.0.min(1.0) * 1e3) as u32)
    }
}

impl Permille {
    /// As a ratio.
    #[must_use]
    pub fn ratio(self) -> Ratio {
        Ratio::new(f64::from(self.0) / 1e3)
    }
}

impl Mul<f64> for ReqRate {
    type Output = TokenRate;
    /// Requests per second times mean tokens per request.
    fn mul(self, tokens_each: f64) -> TokenRate {
        TokenRate::new(self.0 * tokens_each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_print_as_go_does() {
        assert_eq!(Span(90_000).to_string(), "1m30s");
        assert_eq!(Span(1_500).to_string(), "1s500ms");
        assert_eq!(Span(86_400_000).to_string(), "24h");
        assert_eq!(Span::ZERO.to_string(), "0s");
    }

    #[test]
    fn floats_are_finite_and_not_negative() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            assert_eq!(ReqRate::new(bad).get(), 0.0);
        }
        assert_eq!((ReqRate::ZERO / ReqRate::ZERO).get(), 0.0);
    }

    #[test]
    fn whole_numbers_saturate() {
        assert_eq!(Replicas(u32::MAX) * GpusEach(2), Gpus(u32::MAX));
        assert_eq!(Replicas(1).less(Replicas(2)), Replicas(0));
        assert_eq!(Gpus(7) / GpusEach(2), Replicas(3));
        assert_eq!(Gpus(7) / GpusEach(0), Replicas(0));
    }
}
