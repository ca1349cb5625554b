//! How fast a page is read: our scanner into samples against prometheus-parse behind its rewrite.
//!
//! The page is made by the renderer: data-parallel engines with vLLM's own bucket layouts, about
//! 60 KB. Both readers get the same text, in turns, so that a busy machine slows both. The other
//! side's time includes its rewrite, which it cannot do without, and ends with its list of samples;
//! ours ends with samples an engine, which is more. Exit code 1 below twenty times.
//!
//! Worked number: 1 500 us for the crate and 50 us for the scanner are a ratio of 30.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use spillgate::engine::{read_page, render, second_opinion};
use spillgate_core::observation::{EngineSample, Histogram};
use spillgate_core::units::{Ppm, Tokens};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const ROUNDS: usize = 400;
const NEEDED: f64 = 20.0;

const TTFT_MS: &[u64] = &[
    1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000, 20_000,
    40_000, 80_000, 160_000, 640_000, 2_560_000,
];
const ITL_MS: &[u64] = &[
    10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000, 20_000,
    40_000, 80_000,
];
const QUEUE_MS: &[u64] = &[
    300, 500, 800, 1_000, 1_500, 2_000, 2_500, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000,
    50_000, 60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 7_680_000,
];
const LENGTHS: &[u64] =
    &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];

fn histogram(bounds: &[u64], scale: u64, seed: u64) -> Option<Histogram> {
    let cumulative: Vec<u64> = (0..=bounds.len() as u64).map(|n| n * n * 37 + seed * n).collect();
    let bounds = bounds.iter().map(|bound| bound * scale).collect();
    Some(Histogram { bounds, cumulative, sum: 123_456_789 * (seed + 1) })
}

fn engine(rank: u32) -> EngineSample {
    let seed = u64::from(rank);
    EngineSample {
        rank,
        epoch: 1_796_135_291_610,
        awake: Some(true),
        waiting: Some(41 + seed),
        deferred: Some(3),
        running: Some(64),
        kv_used: Some(Ppm(985_137)),
        kv_capacity: Some(Tokens(1_048_576)),
        prompt_tokens: Some(6_610_123 + seed),
        computed_tokens: Some(4_000_321),
        generation_tokens: Some(4_134_500),
        finished: Some(20_831),
        preempted: Some(13),
        rejected: Some(41),
        http_requests: Some(21_007),
        ttft: histogram(TTFT_MS, 1_000, seed),
        itl: histogram(ITL_MS, 1_000, seed + 100),
        queue: histogram(QUEUE_MS, 1_000, seed),
        prompt_lengths: histogram(LENGTHS, 1, seed),
        output_lengths: histogram(LENGTHS, 1, seed + 7),
    }
}

fn page_of_sixty_kilobytes() -> (Vec<EngineSample>, String) {
    let mut engines = Vec::new();
    loop {
        engines.push(engine(u32::try_from(engines.len()).unwrap_or(0)));
        let page = render(&engines, "Qwen/Qwen3-32B");
        if page.len() >= 58_000 {
            return (engines, page);
        }
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() -> ExitCode {
    let (engines, page) = page_of_sixty_kilobytes();
    let read = read_page(&page);
    let lines = second_opinion::rewrite(&page).len();
    let theirs = second_opinion::read_rewritten(second_opinion::rewrite(&page)).len();
    if read.as_ref().map(|page| &page.engines) != Ok(&engines) || theirs != lines {
        println!("one of the readers does not read the page whole: nothing is measured");
        return ExitCode::FAILURE;
    }
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(timed(|| read_page(black_box(&page))));
        others.push(timed(|| {
            second_opinion::read_rewritten(second_opinion::rewrite(black_box(&page)))
        }));
    }
    let (ours, others) = (median(&mut ours), median(&mut others));
    let ratio = others / ours;
    println!(
        "page                 {} bytes, {lines} samples, {} engines",
        page.len(),
        engines.len()
    );
    println!("spillgate            {ours:.1} us (median of {ROUNDS})");
    println!("prometheus-parse     {others:.1} us with its rewrite");
    println!("ratio                {ratio:.1} (at least {NEEDED} is needed)");
    if ratio >= NEEDED { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
