//! Pages of engines, whole: real ones against another parser's reading of them, and small ones
//! made here, one for each trap that is known from the field.
//!
//! The real ones are not part of this repository; where `../shared` is absent their tests print a
//! line and pass over it.
//!
//! Worked number: a p95 of 0.2390 s where the other parser says 0.239 is the same within 1/1000.

use serde_json::Value;
use spillgate::engine::dialect::Meaning;
use spillgate::engine::histogram::{Quantile, quantile};
use spillgate::engine::{Page, Signal, read_page, second_opinion};
use spillgate_core::observation::EngineSample;
use spillgate_core::units::{Ppm, Tokens};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of `../shared`: as named by the environment, or beside the repository (or beside the
/// folder that holds a work tree of it).
#[expect(clippy::disallowed_methods, reason = "a test finds its data")]
#[expect(clippy::print_stdout, reason = "a test that is passed over says so")]
fn shared(folder: &str) -> Option<PathBuf> {
    let named = std::env::var("SPILLGATE_SHARED").ok().map(PathBuf::from);
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1).take(2);
    let places = named.into_iter().chain(above.map(|place| place.join("shared")));
    let found = places.map(|place| place.join(folder)).find(|place| place.is_dir());
    if found.is_none() {
        println!("skipped: ../shared/{folder} is not here");
    }
    found
}

fn page(text: &str) -> Page {
    read_page(text).expect("a small page")
}

fn one(text: &str) -> EngineSample {
    let mut page = page(text);
    assert_eq!(page.engines.len(), 1, "{text}");
    page.engines.remove(0)
}

/// The report of the real binary as JSON, and its exit code.
fn inspect(path: &Path, flags: &[&str]) -> (Value, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["inspect", "-o", "json"])
        .arg(path)
        .args(flags)
        .output()
        .expect("the binary runs");
    let report = serde_json::from_slice(&output.stdout);
    (report.expect("the report is JSON"), output.status.code())
}

/// A page of our own making as a file that goes away.
struct Saved(PathBuf);

impl Saved {
    fn new(name: &str, body: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("spillgate-{}-{name}", std::process::id()));
        std::fs::write(&path, body).expect("a temporary file");
        Self(path)
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Everything in `wanted` is in `seen`, numbers within a thousandth.
fn differences(path: &str, seen: &Value, wanted: &Value, out: &mut Vec<String>) {
    match (seen, wanted) {
        (Value::Object(seen), Value::Object(wanted)) => {
            for (name, value) in wanted {
                let seen = seen.get(name).cloned().unwrap_or(Value::String("absent".into()));
                differences(&format!("{path}.{name}"), &seen, value, out);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            if a.is_nan() || (a - b).abs() > 1e-3 * b.abs() {
                out.push(format!("{path}: {a} is not {b}"));
            }
        }
        _ if seen == wanted => {}
        _ => out.push(format!("{path}: {seen} is not {wanted}")),
    }
}

#[test]
fn every_saved_page_is_read_as_the_other_parser_read_it() {
    let Some(folder) = shared("expositions") else { return };
    let mut read = 0;
    for entry in std::fs::read_dir(folder).expect("the folder opens") {
        let path = entry.expect("an entry").path();
        let expectation = path.with_extension("expect.json");
        if path.extension().is_none_or(|ending| ending != "txt") || !expectation.exists() {
            continue;
        }
        let wanted = std::fs::read(&expectation).expect("the expectation opens");
        let wanted: Value = serde_json::from_slice(&wanted).expect("the expectation is JSON");
        let (report, code) = inspect(&path, &["--cross-check"]);
        let mut wrong = Vec::new();
        differences("", &report, &wanted, &mut wrong);
        assert_eq!(wrong, Vec::<String>::new(), "{}", path.display());
        assert_eq!((code, &report["cross_check"]["agrees"]), (Some(0), &Value::Bool(true)));
        assert_eq!(report["unknown_families"], serde_json::json!({}), "{}", path.display());
        assert_eq!(report["complaints"], serde_json::json!([]), "{}", path.display());
        read += 1;
    }
    assert!(read > 0, "the folder has no page with an expectation");
}

#[test]
fn four_engines_with_hard_labels_lose_nothing() {
    let Some(folder) = shared("cases") else { return };
    let text = std::fs::read_to_string(folder.join("a-dp4-labels.prom")).expect("the case opens");
    let page = page(&text);
    assert_eq!(page.signal(Some(4)), Signal::Full);
    assert_eq!((page.lines.samples(), page.lines.refused, page.lines.malformed), (121, 0, 0));
    assert!(page.unknown.is_empty() && page.complaints.is_empty());
    let names: Vec<&String> = page.model_names.iter().collect();
    assert_eq!(names, ["acme/chat-8b, rev {7}"]);
    let each = |field: fn(&EngineSample) -> Option<u64>| -> Vec<Option<u64>> {
        page.engines.iter().map(field).collect()
    };
    assert_eq!(each(|engine| Some(u64::from(engine.rank))), [0, 1, 2, 3].map(Some));
    assert_eq!(each(|engine| engine.running), [12, 0, 64, 9].map(Some));
    assert_eq!(each(|engine| engine.waiting), [0, 0, 41, 3].map(Some));
    assert_eq!(each(|engine| engine.deferred), [0, 0, 3, 0].map(Some));
    assert_eq!(
        each(|engine| engine.kv_used.map(|ppm| u64::from(ppm.0))),
        [310_000, 20_000, 985_000, 440_000].map(Some)
    );
    assert_eq!(page.kv_usage_max, Some(0.985));
    assert_eq!(page.splits[&Meaning::WaitingByReason]["capacity"], 41.0);
    assert_eq!(page.sum(|engine| engine.generation_tokens), Some(4_134_500));
    assert_eq!(page.sum(|engine| engine.prompt_tokens), Some(6_610_000));
    assert_eq!(page.sum(|engine| engine.finished), Some(208));
    let ttft = page.histogram(|engine| engine.ttft.as_ref()).expect("TTFT");
    assert_eq!(ttft.cumulative, [30, 90, 142, 162, 170, 180, 208, 280]);
    assert_eq!(ttft.mean(), Some(9_175_000.0));
    assert!(matches!(quantile(&ttft, 0.5), Quantile::At(us) if (us - 490_385.0).abs() < 1.0));
    assert_eq!(quantile(&ttft, 0.95), Quantile::AtLeast(10_000_000.0));
    let first = page.engines[0].ttft.as_ref().expect("TTFT of engine 0");
    assert_eq!(first.cumulative[3], 99);
    let silent = page.engines[1].ttft.as_ref().expect("TTFT of engine 1");
    assert_eq!((silent.mean(), quantile(silent, 0.95)), (None, Quantile::Unknown));
    let itl = page.histogram(|engine| engine.itl.as_ref()).expect("ITL");
    assert_eq!((itl.count(), itl.sum), (35_000, 1_927_000_000));
    assert!(matches!(quantile(&itl, 0.95), Quantile::At(us) if (us - 121_600.0).abs() < 100.0));
    assert!(second_opinion::compare(&text).expect("a small page").agrees());
}

#[test]
fn a_page_without_a_sample_of_waiting_is_not_a_page_with_waiting_zero() {
    let text = "# TYPE vllm:num_requests_waiting gauge\n\
        vllm:num_requests_running{engine=\"0\"} 1\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n";
    assert_eq!((one(text).waiting, one(text).running), (None, Some(1)));
    assert_eq!(page(text).signal(None), Signal::Partial);
    let nan = "vllm:num_requests_waiting{engine=\"0\"} NaN\nvllm:num_requests_running 1\n";
    assert_eq!(one(nan).waiting, None);
    assert_eq!((page(nan).lines.refused, page(nan).complaints[0].line), (1, 1));
}

#[test]
fn a_page_without_an_engine_is_none_with_a_hint_and_never_zero() {
    let wrapper = page("python_gc_objects_total 8\nhttp_requests_total{handler=\"/\"} 3\n");
    assert_eq!((wrapper.signal(None), wrapper.engines.len()), (Signal::None, 0));
    assert!(wrapper.foreign.contains("python_gc_objects_total"));
    assert_eq!(page("").signal(None), Signal::None);
    let html = page("<!DOCTYPE html>\n<html><body>Please log in</body></html>\n");
    assert!(html.signal(None) == Signal::None && html.is_unreadable());
    let other = page("sglang:num_running_reqs{phase=\"decode\"} 12\nsglang:num_queue_reqs 5\n");
    assert_eq!(other.signal(None), Signal::None);
    assert!(other.foreign.contains("sglang:num_queue_reqs"));
}

#[test]
fn fewer_engines_than_expected_are_a_partial_signal() {
    let text = "vllm:num_requests_waiting{engine=\"3\"} 2\nvllm:num_requests_running{engine=\"3\"} 1\n\
        vllm:kv_cache_usage_perc{engine=\"3\"} 0.5\n";
    assert_eq!(page(text).signal(None), Signal::Full);
    assert_eq!(page(text).signal(Some(4)), Signal::Partial);
    assert_eq!(one(text).rank, 3);
}

#[test]
fn the_new_name_wins_over_the_old_one_in_either_order() {
    let (new, old) = ("vllm:kv_cache_usage_perc 0.77\n", "vllm:gpu_cache_usage_perc 0.81\n");
    let used = |text: &str| one(text).kv_used;
    assert_eq!(used(old), Some(Ppm(810_000)));
    assert_eq!(used(new), Some(Ppm(770_000)));
    assert_eq!(used(&format!("{new}{old}")), Some(Ppm(770_000)));
    assert_eq!(used(&format!("{old}{new}")), Some(Ppm(770_000)));
    let itl = |name: &str, count: u32| {
        format!("vllm:{name}_bucket{{le=\"+Inf\"}} {count}\nvllm:{name}_sum 1\n")
    };
    let (new, old) =
        (itl("inter_token_latency_seconds", 5), itl("time_per_output_token_seconds", 4));
    let count = |text: &str| one(text).itl.map(|histogram| histogram.count());
    assert_eq!((count(&old), count(&new)), (Some(4), Some(5)));
    assert_eq!(count(&format!("{old}{new}")), Some(5));
    assert_eq!(count(&format!("{new}{old}")), Some(5));
    let prefix = page("vllm:gpu_prefix_cache_hits_total 3\nvllm:prefix_cache_hits_total 4\n");
    assert_eq!(prefix.prefix_hits, Some(4));
}

#[test]
fn the_epoch_is_the_process_start_or_else_the_first_creation() {
    let created = "vllm:num_preemptions_total{engine=\"0\"} 0\n\
        vllm:num_preemptions_created{engine=\"0\"} 1.7961355340676382e+09\n\
        vllm:request_success_created{engine=\"0\"} 1.7961355360e+09\n";
    assert_eq!(one(created).epoch, 1_796_135_534_068);
    let process = format!("{created}process_start_time_seconds 1.79613529161e+09\n");
    assert_eq!(one(&process).epoch, 1_796_135_291_610);
    assert_eq!(one("vllm:num_preemptions_total 0\n").epoch, 0);
    assert_eq!(one(created).preempted, Some(0));
}

#[test]
fn several_api_servers_write_sums_first_and_no_creation_times() {
    let text = "vllm:request_prompt_tokens_sum{engine=\"0\"} 900.0\n\
        vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"1.0\"} 1.0\n\
        vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"2.097152e+06\"} 3.0\n\
        vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"+Inf\"} 3.0\n\
        vllm:request_prompt_tokens_count{engine=\"0\"} 3.0\n";
    let lengths = one(text).prompt_lengths.expect("prompt lengths");
    assert_eq!((lengths.bounds.as_ref(), lengths.sum), (&[1, 2_097_152][..], 900));
    assert_eq!(lengths.cumulative, [1, 3, 3]);
}

#[test]
fn waiting_is_split_by_what_it_waits_for() {
    let text = "vllm:num_requests_waiting{engine=\"0\"} 60\n\
        vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 2\n\
        vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"deferred\"} 58\n";
    assert_eq!((one(text).waiting, one(text).deferred), (Some(60), Some(58)));
}

#[test]
fn refusals_without_a_rank_belong_to_the_server_and_make_no_engine() {
    let refused = "vllm:admission_rejections_total{reason=\"max_num_queued_reqs\"} 41\n\
        vllm:admission_rejections_total{reason=\"max_num_queued_tokens\"} 1\n";
    assert_eq!(page(refused).engines, []);
    assert_eq!(page(refused).split_total(Meaning::Rejected), Some(42.0));
    let text = format!("{refused}vllm:num_requests_running{{engine=\"2\"}} 1\n");
    assert_eq!((one(&text).rank, one(&text).rejected), (2, Some(42)));
}

#[test]
fn only_inference_calls_are_counted_as_http_requests_and_aborts_are_not_finished() {
    let text = "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\"} 7\n\
        vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"} 2\n\
        http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 60\n\
        http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"5xx\"} 11\n\
        http_requests_total{handler=\"/metrics\",method=\"GET\",status=\"2xx\"} 900\n";
    assert_eq!((one(text).finished, one(text).http_requests), (Some(7), Some(71)));
    assert_eq!(page(text).split_total(Meaning::Finished), Some(9.0));
}

#[test]
fn sleep_state_and_cache_size_are_read_from_labels() {
    let asleep = "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n\
        vllm:engine_sleep_state{sleep_state=\"discard_all\"} 1\n";
    assert_eq!(one(asleep).awake, Some(false));
    let size = |labels: &str| one(&format!("vllm:cache_config_info{{{labels}}} 1\n")).kv_capacity;
    let blocks = "block_size=\"16\",num_gpu_blocks=\"100\"";
    assert_eq!(size(blocks), Some(Tokens(1_600)));
    assert_eq!(size(&format!("kv_cache_size_tokens=\"7\",{blocks}")), Some(Tokens(7)));
    assert_eq!(size("block_size=\"16\",num_gpu_blocks=\"None\""), None);
}

#[test]
fn one_speculative_observation_stands_for_several_tokens() {
    let text = "vllm:generation_tokens_total 24100\n\
        vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 100\n\
        vllm:time_to_first_token_seconds_sum 9\n\
        vllm:inter_token_latency_seconds_bucket{le=\"+Inf\"} 6000\n\
        vllm:inter_token_latency_seconds_sum 480\n";
    assert_eq!(page(text).tokens_per_itl(), Some(4.0));
    assert_eq!(page("vllm:generation_tokens_total 24100\n").tokens_per_itl(), None);
}

#[test]
fn unknown_families_of_a_known_engine_are_listed() {
    let text = "vllm:warp_factor{engine=\"0\"} 9\nvllm:warp_time_bucket{le=\"1\"} 2\n\
        vllm:warp_time_sum 2\nvllm:num_requests_running 1\n";
    let page = page(text);
    let unknown: Vec<(&str, u64)> =
        page.unknown.iter().map(|(name, lines)| (name.as_str(), *lines)).collect();
    assert_eq!(unknown, [("vllm:warp_factor", 1), ("vllm:warp_time", 2)]);
    assert_eq!((page.lines.unknown, page.lines.used), (3, 1));
}

#[test]
fn two_models_on_one_rank_are_added_and_a_line_said_twice_is_not() {
    let waiting = |model: &str, count: u32| {
        format!("vllm:num_requests_waiting{{engine=\"0\",model_name=\"{model}\"}} {count}\n")
    };
    assert_eq!(one(&format!("{}{}", waiting("a", 2), waiting("b", 3))).waiting, Some(5));
    let twice = format!("{}{}", waiting("a", 2), waiting("a", 3));
    assert_eq!((one(&twice).waiting, page(&twice).lines.refused), (Some(2), 1));
}

#[test]
fn a_histogram_that_contradicts_itself_is_left_out_and_named() {
    let text = "vllm:num_requests_running 1\n\
        vllm:time_to_first_token_seconds_bucket{le=\"0.1\"} 5\n\
        vllm:time_to_first_token_seconds_bucket{le=\"0.2\"} 4\n\
        vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 5\n\
        vllm:time_to_first_token_seconds_sum 1\n";
    assert_eq!(one(text).ttft, None);
    assert!(page(text).complaints[0].text.contains("counts fall"), "{:?}", page(text).complaints);
}

#[test]
fn hostile_pages_are_bounded() {
    let many = |lines: u32, line: fn(u32) -> String| (0..lines).map(line).collect::<String>();
    let engines = many(5_000, |n| format!("vllm:num_requests_running{{engine=\"{n}\"}} 1\n"));
    assert_eq!((page(&engines).engines.len(), page(&engines).lines.refused), (1_024, 3_976));
    let families = many(5_000, |n| format!("vllm:f{n} 1\n"));
    assert!(page(&families).unknown.len() <= 257);
    assert_eq!(page(&families).lines.unknown, 5_000);
    let bad = many(5_000, |_| "?\n".to_owned());
    assert_eq!(page(&bad).complaints.len() as u64 + page(&bad).complaints_left, 5_000);
    assert!(page(&bad).complaints.len() <= 32);
    let ranks = page("vllm:num_requests_running{engine=\"-1\"} 1\n");
    assert_eq!((ranks.engines.len(), ranks.lines.refused), (0, 1));
}

#[test]
fn exit_codes_tell_an_unreadable_page_from_a_missing_file() {
    let html = Saved::new("html", b"<html>\n");
    assert_eq!(inspect(&html.0, &[]).1, Some(3));
    let quiet = |path: &Path| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_spillgate")).arg("inspect").arg(path).output();
        let output = output.expect("the binary runs");
        (
            output.status.code(),
            output.stdout.len(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let binary = Saved::new("binary", b"x 1\n\xff\xfe");
    assert!(matches!(quiet(&binary.0), (Some(3), 0, text) if text.contains("UTF-8")));
    let large = Saved::new("large", "x 1\n".repeat(1_100_000).as_bytes());
    assert!(matches!(quiet(&large.0), (Some(3), 0, text) if text.contains("larger than")));
    assert!(
        matches!(quiet(Path::new("no/such/page")), (Some(1), 0, text) if text.contains("cannot open"))
    );
}

#[test]
fn a_cross_check_that_fails_is_exit_code_one() {
    let page =
        Saved::new("differs", b"vllm:num_requests_running 1\nvllm:num_requests_waiting 1 2 3\n");
    let (report, code) = inspect(&page.0, &["--cross-check"]);
    assert_eq!((code, &report["cross_check"]["differing"]), (Some(1), &Value::from(1)));
}

#[test]
fn a_saturated_quantile_is_said_as_at_least() {
    let text = "vllm:time_to_first_token_seconds_bucket{le=\"10.0\"} 60\n\
        vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 100\n\
        vllm:time_to_first_token_seconds_sum 2400\n";
    let saved = Saved::new("saturated", text.as_bytes());
    let (report, _) = inspect(&saved.0, &[]);
    let ttft = &report["ttft_seconds"];
    assert_eq!((&ttft["p95"], &ttft["p95_at_least"]), (&Value::Null, &Value::from(10.0)));
    assert_eq!(ttft["mean"], Value::from(24.0));
    let table = Command::new(env!("CARGO_BIN_EXE_spillgate")).arg("inspect").arg(&saved.0).output();
    let table = String::from_utf8(table.expect("the binary runs").stdout).expect("text");
    let row = table.lines().find(|line| line.starts_with("TTFT")).expect("a row of TTFT");
    assert!(row.contains(">= 10 s") && row.contains("24.0 s"), "{row}");
    assert!(!row.contains("inf") && !row.contains("NaN"), "{row}");
}

#[test]
fn the_value_of_a_line_that_is_cut_is_not_believed() {
    // Of `120.0` the cut leaves `1`, which would read as an idle engine.
    let page =
        "vllm:num_requests_running{engine=\"0\"} 4.0\nvllm:num_requests_waiting{engine=\"0\"} 1";
    let page = read_page(page).expect("small");
    assert_eq!(page.engines[0].running, Some(4));
    assert_eq!(page.engines[0].waiting, None);
    assert_eq!((page.lines.used, page.lines.malformed), (1, 1));
    assert!(page.complaints[0].text.contains("cut short"), "{:?}", page.complaints);
}

#[test]
fn a_kv_usage_in_percent_is_refused_not_taken_for_fifty_full_caches() {
    for (said, kept) in [("50.0", None), ("1.0", Some(1_000_000)), ("0.5", Some(500_000))] {
        let page = format!("vllm:kv_cache_usage_perc{{engine=\"0\"}} {said}\n");
        let page = read_page(&page).expect("small");
        let used = page.engines.first().and_then(|engine| engine.kv_used).map(|ppm| ppm.0);
        assert_eq!(used, kept, "{said}: {:?}", page.complaints);
    }
}
