//! Hostile input as a whole page: any bytes, and any mixture of the pieces that pages are made of.
//!
//! Worked number: of the three lines `vllm:`, `# x` and ` 1` two are malformed and one a comment.

use proptest::prelude::*;
use spillgate::engine::exposition::page_text;
use spillgate::engine::{Page, read_page};

fn page(text: &str) -> Page {
    read_page(text).expect("a small page")
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        if let Ok(text) = page_text(&bytes) {
            page(text);
        }
        page(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_mixture_of_real_pieces_is_accounted_for(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)
    ) {
        let text = pieces.concat();
        let page = page(&text);
        let lines = text.lines().map(|line| line.trim_matches([' ', '\t', '\r']));
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        prop_assert_eq!((page.lines.samples() + page.lines.malformed) as usize, lines);
    }
}

const PIECES: &[&str] = &[
    "vllm:num_requests_waiting",
    "vllm:time_to_first_token_seconds",
    "_bucket",
    "_sum",
    "_count",
    "_created",
    "vllm:request_success_total",
    "{",
    "}",
    "engine=\"0\"",
    "engine=\"1\"",
    "le=\"+Inf\"",
    "le=\"0.1\"",
    "model_name=\"a\\\"b\"",
    ",",
    " 1",
    " NaN",
    " -1",
    " 1e300",
    "\n",
    "\n",
    "#",
    " # {a=\"b\"} 1",
    "\\",
    "\"",
    "vllm:",
    "é",
];

#[test]
fn stray_blanks_hide_no_engine_and_no_line() {
    let shown = page("\r\t\r vllm:num_requests_waiting 3\r\r\n");
    assert_eq!(shown.engines.first().and_then(|engine| engine.waiting), Some(3));
    // A vertical tab is no blank: the cut line is malformed, and counted.
    let cut = page("\u{b}");
    assert_eq!((cut.lines.samples(), cut.lines.malformed), (0, 1));
}
