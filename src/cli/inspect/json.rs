//! The report as JSON. What the page does not say is null; no number is infinite or NaN.
//!
//! Worked number: a p95 beyond the last finite bound of 10 s is `"p95": null` and
//! `"p95_at_least": 10.0`.

use super::Inspected;
use crate::engine::Page;
use crate::engine::dialect::Meaning;
use crate::engine::histogram::{Quantile, quantile};
use serde_json::{Map, Value, json};
use spillgate_core::observation::{EngineSample, Histogram};

/// The whole report, pretty-printed.
pub(super) fn report(inspected: &Inspected<'_>) -> String {
    let page = inspected.page;
    let mut report = Map::new();
    let mut put = |name: &str, value: Value| report.insert(name.to_owned(), value);
    put("source", json!(inspected.source));
    put("dialect", json!(page.dialect.map(|dialect| dialect.name)));
    put("signal", json!(page.signal(inspected.expected).to_string()));
    put("samples", json!(page.lines.samples()));
    put("expected_engines", json!(inspected.expected));
    totals(page, &mut put);
    put("engine_version_at_least", json!(page.version_from.map(|version| version.to_string())));
    put("per_engine", page.engines.iter().map(engine).collect());
    let lines = page.lines;
    put(
        "lines",
        json!({
            "used": lines.used, "known_unused": lines.unused, "unknown": lines.unknown,
            "foreign": lines.foreign, "refused": lines.refused, "malformed": lines.malformed,
        }),
    );
    put("unknown_families", json!(page.unknown));
    put("foreign_families", json!(page.foreign));
    let complaints = page.complaints.iter();
    let complaints: Vec<Value> =
        complaints.map(|one| json!({ "line": one.line, "text": one.text })).collect();
    put("complaints", json!(complaints));
    put("complaints_left_out", json!(page.complaints_left));
    put("unterminated", json!(page.unterminated));
    put("notes", json!(super::table::notes(page)));
    if let Some(verdict) = inspected.verdict {
        put(
            "cross_check",
            json!({
                "agrees": verdict.agrees(), "fed": verdict.fed, "returned": verdict.returned,
                "differing": verdict.differing,
            }),
        );
    }
    format!("{:#}", Value::Object(report))
}

/// What the page says over all its engines.
fn totals(page: &Page, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
    let sum = |field: fn(&EngineSample) -> Option<u64>| json!(page.sum(field));
    let split = |meaning| json!(page.splits.get(&meaning).cloned().unwrap_or_default());
    put("model_names", json!(page.model_names));
    put("engines", json!(page.reporting()));
    put("waiting", sum(|engine| engine.waiting));
    put("deferred", sum(|engine| engine.deferred));
    put("running", sum(|engine| engine.running));
    put("waiting_by_reason", split(Meaning::WaitingByReason));
    put("kv_usage_max", json!(page.kv_usage_max));
    put("kv_capacity_tokens", sum(|engine| engine.kv_capacity.map(|size| size.0)));
    put("prompt_tokens_total", sum(|engine| engine.prompt_tokens));
    put("prompt_tokens_by_source", split(Meaning::PromptBySource));
    put("generation_tokens_total", sum(|engine| engine.generation_tokens));
    put("preemptions_total", sum(|engine| engine.preempted));
    put("request_success_total", json!(page.split_total(Meaning::Finished)));
    put("request_success_by_reason", split(Meaning::Finished));
    put("admission_rejections_total", json!(page.split_total(Meaning::Rejected)));
    put("http_inference_requests_total", sum(|engine| engine.http_requests));
    put("prefix_cache_hits_total", json!(page.prefix_hits));
    put("prefix_cache_queries_total", json!(page.prefix_queries));
    let seconds =
        |histogram: Option<Histogram>| histogram.map_or(Value::Null, |h| lengths(&h, 1e6));
    let tokens = |histogram: Option<Histogram>| histogram.map_or(Value::Null, |h| lengths(&h, 1.0));
    put("ttft_seconds", seconds(page.histogram(|engine| engine.ttft.as_ref())));
    put("itl_seconds", seconds(page.histogram(|engine| engine.itl.as_ref())));
    put("itl_tokens_per_observation", json!(page.tokens_per_itl()));
    put("queue_seconds", seconds(page.histogram(|engine| engine.queue.as_ref())));
    put("prompt_length_tokens", tokens(page.histogram(|engine| engine.prompt_lengths.as_ref())));
    put("output_length_tokens", tokens(page.histogram(|engine| engine.output_lengths.as_ref())));
}

/// One engine's own words.
fn engine(sample: &EngineSample) -> Value {
    let seconds = |histogram: &Option<Histogram>| {
        histogram.as_ref().map_or(Value::Null, |histogram| lengths(histogram, 1e6))
    };
    json!({
        "rank": sample.rank,
        "started_ms": Some(sample.epoch).filter(|epoch| *epoch > 0),
        "awake": sample.awake,
        "waiting": sample.waiting,
        "deferred": sample.deferred,
        "running": sample.running,
        "kv_usage": sample.kv_used.map(|ppm| f64::from(ppm.0) / 1e6),
        "kv_capacity_tokens": sample.kv_capacity.map(|size| size.0),
        "prompt_tokens_total": sample.prompt_tokens,
        "computed_prompt_tokens_total": sample.computed_tokens,
        "generation_tokens_total": sample.generation_tokens,
        "finished_total": sample.finished,
        "preemptions_total": sample.preempted,
        "ttft_seconds": seconds(&sample.ttft),
        "itl_seconds": seconds(&sample.itl),
        "queue_seconds": seconds(&sample.queue),
    })
}

/// A histogram: counts, mean and two quantiles in the unit of the page.
fn lengths(histogram: &Histogram, scale: f64) -> Value {
    let mut value = json!({
        "count": histogram.count(),
        "sum": histogram.sum as f64 / scale,
        "mean": histogram.mean().map(|mean| mean / scale),
        "buckets": histogram.cumulative.len(),
    });
    for (name, q) in [("p50", 0.5), ("p95", 0.95)] {
        let (inside, beyond) = match quantile(histogram, q) {
            Quantile::Unknown => (None, None),
            Quantile::At(at) => (Some(at / scale), None),
            Quantile::AtLeast(bound) => (None, Some(bound / scale)),
        };
        value[name] = json!(inside);
        if beyond.is_some() {
            value[format!("{name}_at_least")] = json!(beyond);
        }
    }
    value
}
