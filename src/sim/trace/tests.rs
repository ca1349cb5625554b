//! Whole files: those of our own making here, the public ones where `../shared` is beside the
//! repository.

use super::*;
use proptest::prelude::*;
use std::path::PathBuf;

fn read_text(text: &str) -> Trace {
    parse("text", text.as_bytes(), 1).expect("readable")
}

fn refused(text: &str) -> String {
    parse("text", text.as_bytes(), 1).expect_err("refused").to_string()
}

fn seconds(trace: &Trace) -> Vec<f64> {
    trace.requests.iter().map(|request| request.at.as_secs()).collect()
}

/// A file of the shared folder: named at build time, or beside the checkout or the folder of
/// checkouts. Where it is not there, that is said and the test is skipped.
fn shared(file: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = option_env!("SPILLGATE_SHARED").map(PathBuf::from);
    let places = named.into_iter().chain(["../shared", "../../shared"].map(|dir| root.join(dir)));
    let found = places.into_iter().find(|dir| dir.is_dir());
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    if found.is_none() {
        eprintln!("skipped: no ../shared beside the repository, so no {file}");
    }
    Some(found?.join(file))
}

const SUBMILLISECOND: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
    2026-01-15 09:00:00.0034567,1200,40\r\n\
    2026-01-15 09:00:00.0044567,800,12\r\n\
    2026-01-15 09:00:00.9999999,2048,128\r\n\
    2026-01-15 09:00:01,300,7\r\n\
    2026-01-15T09:01:01.5000000Z,900,0";

#[test]
fn azure_times_are_exact_to_a_tenth_of_a_microsecond() {
    let trace = read_text(SUBMILLISECOND);
    let at: Vec<u64> = trace.requests.iter().map(|request| request.at.0).collect();
    let picos = [0, 1_000_000_000, 996_543_200_000, 996_543_300_000, 61_496_543_300_000];
    assert_eq!(at, picos);
    assert_eq!(trace.requests[4], Request { at: Picos(picos[4]), input: 900, output: 0 });
    assert_eq!(trace.notes, ["requests with 0 output tokens, kept: 1"]);
}

#[test]
fn line_ends_and_a_byte_order_mark_change_the_hash_and_nothing_else() {
    let plain = read_text(SUBMILLISECOND);
    let other = read_text(&format!("\u{feff}{}\n\n", SUBMILLISECOND.replace("\r\n", "\n")));
    assert_eq!(plain.requests, other.requests);
    assert_ne!(plain.sha256, other.sha256);
}

#[test]
fn rows_out_of_order_are_sorted_stably_and_said() {
    let trace = read_text("arrival_s,input_tokens,output_tokens\n5,1,1\n2.5,2,1\n5,3,1\n2.5,4,1\n");
    assert_eq!(seconds(&trace), [0.0, 0.0, 2.5, 2.5]);
    assert_eq!(trace.requests.iter().map(|r| r.input).collect::<Vec<_>>(), [2, 4, 1, 3]);
    assert_eq!(trace.notes, ["2 rows arrived before the row above them: sorted by time"]);
}

#[test]
fn absolute_times_give_the_same_trace_as_relative_ones() {
    let relative = read_text("arrival_s,input_tokens,output_tokens\n0,1,1\n600.25,2,1\n");
    let absolute =
        read_text("arrival_s,input_tokens,output_tokens\n1700000000,1,1\n1700000600.25,2,1\n");
    assert_eq!(relative.requests, absolute.requests);
}

#[test]
fn mooncake_timestamps_are_milliseconds() {
    let trace = read_text(
        "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n\
         {\"timestamp\": 12000, \"input_length\": 1, \"output_length\": 1}\n\
         {\"timestamp\": 41500, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}\n",
    );
    assert_eq!(seconds(&trace), [0.0, 12.0, 41.5]);
    assert_eq!(trace.notes, ["hash ids of 1 rows are ignored: no prefix cache is modelled"]);
}

#[test]
fn rows_of_a_coarse_clock_are_spread_inside_its_ticks_in_their_order() {
    let rows: String = (0..40)
        .map(|row| {
            let tick = row / 4 * 3_000;
            format!("{{\"timestamp\":{tick},\"input_length\":{},\"output_length\":1}}\n", row + 1)
        })
        .collect();
    let trace = read_text(&rows);
    for (row, request) in trace.requests.iter().enumerate() {
        assert_eq!(request.input as usize, row + 1, "the order of the file");
        assert_eq!((request.at.as_secs() / 3.0) as usize, row / 4, "the tick of the row");
    }
    assert!(trace.requests.windows(2).all(|pair| pair[0].at < pair[1].at));
    let note = "timestamps have a clock of 3 s: spread uniformly inside each tick (seed 1)";
    assert_eq!(trace.notes, [note]);
    let again = |seed| parse("text", rows.as_bytes(), seed).expect("readable").requests;
    assert_eq!(again(1), trace.requests);
    assert_ne!(again(2), trace.requests);
}

#[test]
fn batches_a_minute_apart_are_no_coarse_clock() {
    let rows: String = (0..12)
        .map(|row| {
            let at = row / 4 * 60_000;
            format!("{{\"timestamp\":{at},\"input_length\":1,\"output_length\":1}}\n")
        })
        .collect();
    let trace = read_text(&rows);
    assert_eq!(seconds(&trace)[3..9], [0.0, 60.0, 60.0, 60.0, 60.0, 120.0]);
    assert!(trace.notes[0].contains("left as they are"), "{:?}", trace.notes);
}

#[test]
fn every_bad_line_is_told_with_column_value_and_expectation() {
    let message = refused(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n\
         yesterday,1,1\n2023-11-16 18:15:47,-5,1\n2023-11-16 18:15:48,0,1\n\n\
         2023-11-16 18:15:49,7,1.5\n2023-11-16 18:15:50,7\n",
    );
    for said in [
        "text has 6 bad lines",
        "line 3, TIMESTAMP: found \"yesterday\", expected a UTC time such as",
        "line 4, ContextTokens: found \"-5\", expected a whole number",
        "line 5, ContextTokens: found \"0\", expected a whole number of tokens from 1",
        "line 6, whole line: found \"\", expected a row (blank lines",
        "line 7, GeneratedTokens: found \"1.5\"",
        "line 8, whole line: found \"2023-11-16 18:15:50,7\", expected three fields",
    ] {
        assert!(message.contains(said), "{said}\nis not in\n{message}");
    }
}

#[test]
fn reading_stops_after_twenty_bad_lines_and_says_so() {
    let rows = "x,1,1\n".repeat(1_000);
    let message = refused(&format!("arrival_s,input_tokens,output_tokens\n{rows}"));
    assert!(message.contains("at least 20 bad lines (reading stopped after these)"), "{message}");
    assert!(message.contains("line 21,") && !message.contains("line 22,"), "{message}");
}

#[test]
fn values_are_escaped_and_shortened() {
    let long = "9".repeat(5_000);
    let message =
        refused(&format!("arrival_s,input_tokens,output_tokens\n0,\u{1b}[31m,1\n0,{long},1"));
    assert!(message.contains("\\u{1b}[31m"), "{message}");
    assert!(message.len() < 600, "{}", message.len());
}

#[test]
fn a_file_of_no_known_format_is_refused_with_the_formats_that_are() {
    let message = refused("Timestamp,Model,Request tokens,Response tokens\n1,a,2,3\n");
    assert!(message.contains("TIMESTAMP,ContextTokens,GeneratedTokens"), "{message}");
    let gzip = parse("t.gz", &b"\x1f\x8b\x08\x00"[..], 1).expect_err("refused").to_string();
    assert!(gzip.contains("unpack it first"), "{gzip}");
}

#[test]
fn files_without_a_request_are_refused() {
    for text in ["", "arrival_s,input_tokens,output_tokens\n"] {
        assert!(refused(text).contains("holds no request"), "{text}");
    }
    let missing = read(Path::new("no/such/trace.csv"), 1).expect_err("refused").to_string();
    assert!(missing.contains("no/such/trace.csv"), "{missing}");
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_memory() {
    let endless = BufReader::new(std::io::repeat(b'x'));
    let error = parse("endless", endless, 1).expect_err("refused").to_string();
    assert!(error.contains("line 1: longer than 1048576 bytes"), "{error}");
}

#[test]
fn a_span_beyond_virtual_time_is_refused() {
    let trace = read_text("arrival_s,input_tokens,output_tokens\n0,1,1\n8000000,1,1\n");
    assert!(trace.notes[0].contains("right unit?"), "{:?}", trace.notes);
    let message = refused("arrival_s,input_tokens,output_tokens\n0,1,1\n9000000,1,1\n");
    assert!(message.contains("more than 100 days"), "{message}");
}

#[test]
fn the_summary_is_one_line() {
    let text = read_text(SUBMILLISECOND).summary().to_string();
    assert_eq!(
        text,
        "span 61.497 s, 5 requests (0.081 a second), 5248 input tokens, 187 output tokens, \
         1 with 0 output tokens (kept)"
    );
}

#[test]
fn the_submillisecond_case_is_read_as_it_must() {
    let Some(path) = shared("cases/l-azure-subms.trace.csv") else { return };
    let trace = read(&path, 1).expect("readable");
    let must = [0.0, 0.001, 0.014, 0.016, 0.996_543_2, 0.996_543_3, 61.496_543_3];
    assert_eq!(trace.requests.len(), 7);
    for (got, must) in seconds(&trace).into_iter().zip(must) {
        assert!((got - must).abs() < 1e-9, "{got} is not {must}");
    }
    let said = trace.summary().to_string();
    assert!(said.starts_with("span 61.497 s, 7 requests"), "{said}");
    assert!(said.contains("9312 input tokens, 452 output tokens, 1 with 0 output"), "{said}");
}

#[test]
fn the_public_traces_are_read_to_the_last_row() {
    for (file, rows, input_mean, output_mean, hash) in [
        ("AzureLLMInferenceTrace_conv_2023.csv", 19_366, 1_155, 211, "2f1e5b66"),
        ("AzureLLMInferenceTrace_code_2023.csv", 8_819, 2_048, 28, "54e9a6d2"),
        ("mooncake_conversation_trace.jsonl", 12_031, 12_035, 343, "b8cbb061"),
    ] {
        let Some(path) = shared(&format!("traces/{file}")) else { return };
        let trace = read(&path, 1).expect("readable");
        let summary = trace.summary();
        assert_eq!(summary.requests, rows, "{file}");
        assert_eq!((summary.input_tokens + rows / 2) / rows, input_mean, "{file}");
        assert_eq!((summary.output_tokens + rows / 2) / rows, output_mean, "{file}");
        assert!(trace.sha256.starts_with(hash), "{file}: {}", trace.sha256);
        assert!(trace.requests.is_sorted_by_key(|request| request.at), "{file}");
    }
}

#[test]
fn the_conversation_trace_times_ten_is_ten_times_as_long() {
    let Some(path) = shared("traces/AzureLLMInferenceTrace_conv_2023.csv") else { return };
    let ten = std::num::NonZeroU32::new(10).expect("above zero");
    let trace = scaled(&read(&path, 1).expect("readable"), ten, 1).expect("scaled");
    assert_eq!(trace.requests.len(), 193_660);
}

#[test]
fn mooncakes_clock_is_found() {
    let Some(path) = shared("traces/mooncake_conversation_trace.jsonl") else { return };
    let trace = read(&path, 1).expect("readable");
    assert!(trace.notes.iter().any(|note| note.contains("clock of 3 s")), "{:?}", trace.notes);
    assert!(trace.notes.iter().any(|note| note.contains("hash ids of 12031")), "{:?}", trace.notes);
    let ties = trace.requests.windows(2).filter(|pair| pair[0].at == pair[1].at).count();
    assert_eq!(ties, 0);
}

const ANY_HEADER: [&str; 4] = [
    "",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n",
    "arrival_s,input_tokens,output_tokens\n",
    "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n",
];

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(
        header in 0..ANY_HEADER.len(),
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut file = ANY_HEADER[header].as_bytes().to_vec();
        file.extend(bytes);
        if let Err(error) = parse("bytes", file.as_slice(), 1) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn nearly_good_rows_are_used_or_refused_with_their_line(
        header in 1..3_usize,
        rows in proptest::collection::vec("[-0-9T:Z., eE+]{0,30}", 1..20),
    ) {
        let text = format!("{}{}", ANY_HEADER[header], rows.join("\n"));
        match parse("rows", text.as_bytes(), 1) {
            Ok(trace) => {
                let used = rows.iter().rev().skip_while(|row| row.trim().is_empty()).count();
                prop_assert_eq!(trace.requests.len(), used);
            }
            Err(TraceError::Rows { problems, .. }) => prop_assert!(!problems.is_empty()),
            Err(TraceError::Empty { .. }) => {
                prop_assert!(rows.iter().all(|row| row.trim().is_empty()));
            }
            Err(TraceError::TooLong { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn what_is_written_is_read_again(
        rows in proptest::collection::vec((0_u64..10_000_000, 1_u32.., 0_u32..), 1..50),
    ) {
        let mut requests: Vec<Request> = rows
            .into_iter()
            .map(|(ms, input, output)| Request { at: Picos(ms * 1_000_000_000), input, output })
            .collect();
        requests.sort_by_key(|request| request.at);
        let first = requests[0].at;
        let read = parse("written", to_csv(&requests).as_bytes(), 1).expect("readable");
        for request in &mut requests {
            request.at = request.at.less(first);
        }
        prop_assert_eq!(read.requests, requests);
    }
}
