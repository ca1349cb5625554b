//! Any bytes as a page: never a panic, every sample line accounted for, and a page written from
//! what was read is read as the same.
//!
//! Worked number: the four bytes `x 1\n` are one foreign sample.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spillgate::engine::exposition::page_text;
use spillgate::engine::{read_page, render};

fuzz_target!(|body: &[u8]| {
    let Ok(text) = page_text(body) else { return };
    let Ok(page) = read_page(text) else { return };
    let lines = text.split('\n').map(|line| line.trim_matches([' ', '\t', '\r']));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert_eq!((page.lines.samples() + page.lines.malformed) as usize, lines);
    let again = read_page(&render(&page.engines, "m")).map(|page| page.engines.len());
    assert_eq!(again, Ok(page.engines.len()));
});
