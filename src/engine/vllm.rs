//! The vLLM dialect: its metric names over the versions, as a table.
//!
//! Names and meanings were read in the `loggers.py` of the wheels named in each row and checked
//! against pages of a running 0.32.0. Counters are exposed with `_total` in every version, however
//! they are declared. `until` is the first version without the name unless hidden metrics are
//! switched on.
//!
//! Worked number: a page of 0.32 with the old and the new KV gauge at 0.31 is 0.31, once.

use super::dialect::{Dialect, Family, Kind, Meaning, Note, Version};

const V1: &str = "vllm/v1/metrics/loggers.py";
const V0: &str = "vllm/engine/metrics.py (V0)";
const NIXL: &str = "vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py";
const FRONT: &str = "prometheus-fastapi-instrumentator, mounted by vllm/entrypoints";
const CLIENT: &str = "prometheus_client process collector; absent with several API servers";

/// Names older than this were not looked up.
const OLDEST: Version = Version(0, 8);

const fn row(
    name: &'static str,
    kind: Kind,
    meaning: Meaning,
    since: Version,
    source: &'static str,
) -> Family {
    Family { name, kind, meaning, preference: 0, split: None, since, until: None, source }
}

const fn split(family: Family, label: &'static str) -> Family {
    Family { split: Some(label), ..family }
}

const fn old(family: Family, until: Version) -> Family {
    Family { preference: 1, until: Some(until), ..family }
}

const fn unused(name: &'static str, kind: Kind, since: Version, source: &'static str) -> Family {
    row(name, kind, Meaning::Unused, since, source)
}

use Kind::{Counter, Gauge, Histogram, Info};

/// vLLM 0.8 to 0.32.
pub static VLLM: Dialect = Dialect {
    name: "vllm",
    prefix: "vllm:",
    rank_label: "engine",
    model_label: "model_name",
    families: FAMILIES,
    handlers: HANDLERS,
    notes: NOTES,
};

const FAMILIES: &[Family] = &[
    // Gauges.
    row("vllm:num_requests_running", Gauge, Meaning::Running, OLDEST, V1),
    row("vllm:num_requests_waiting", Gauge, Meaning::Waiting, OLDEST, V1),
    split(
        row(
            "vllm:num_requests_waiting_by_reason",
            Gauge,
            Meaning::WaitingByReason,
            Version(0, 20),
            V1,
        ),
        "reason",
    ),
    old(row("vllm:num_requests_swapped", Gauge, Meaning::Swapped, OLDEST, V0), Version(0, 9)),
    row("vllm:kv_cache_usage_perc", Gauge, Meaning::KvUsed, Version(0, 9), V1),
    old(row("vllm:gpu_cache_usage_perc", Gauge, Meaning::KvUsed, OLDEST, V1), Version(0, 12)),
    split(
        row("vllm:engine_sleep_state", Gauge, Meaning::SleepState, Version(0, 11), V1),
        "sleep_state",
    ),
    row("vllm:cache_config_info", Info, Meaning::CacheConfig, OLDEST, V1),
    // Counters.
    row("vllm:prompt_tokens_total", Counter, Meaning::PromptTokens, OLDEST, V1),
    split(
        row(
            "vllm:prompt_tokens_by_source_total",
            Counter,
            Meaning::PromptBySource,
            Version(0, 16),
            V1,
        ),
        "source",
    ),
    row("vllm:generation_tokens_total", Counter, Meaning::GenerationTokens, OLDEST, V1),
    split(
        row("vllm:request_success_total", Counter, Meaning::Finished, OLDEST, V1),
        "finished_reason",
    ),
    row("vllm:num_preemptions_total", Counter, Meaning::Preempted, OLDEST, V1),
    split(
        row("vllm:admission_rejections_total", Counter, Meaning::Rejected, Version(0, 32), V1),
        "reason",
    ),
    row("vllm:prefix_cache_hits_total", Counter, Meaning::PrefixHits, Version(0, 9), V1),
    row("vllm:prefix_cache_queries_total", Counter, Meaning::PrefixQueries, Version(0, 9), V1),
    old(
        row("vllm:gpu_prefix_cache_hits_total", Counter, Meaning::PrefixHits, OLDEST, V1),
        Version(0, 12),
    ),
    old(
        row("vllm:gpu_prefix_cache_queries_total", Counter, Meaning::PrefixQueries, OLDEST, V1),
        Version(0, 12),
    ),
    // Histograms.
    row("vllm:time_to_first_token_seconds", Histogram, Meaning::Ttft, OLDEST, V1),
    row("vllm:inter_token_latency_seconds", Histogram, Meaning::Itl, Version(0, 10), V1),
    old(
        row("vllm:time_per_output_token_seconds", Histogram, Meaning::Itl, OLDEST, V1),
        Version(0, 15),
    ),
    row("vllm:request_queue_time_seconds", Histogram, Meaning::Queue, OLDEST, V1),
    row("vllm:request_prompt_tokens", Histogram, Meaning::PromptLengths, OLDEST, V1),
    row("vllm:request_generation_tokens", Histogram, Meaning::OutputLengths, OLDEST, V1),
    // Beside the engine.
    split(row("http_requests_total", Counter, Meaning::HttpRequests, OLDEST, FRONT), "handler"),
    row("process_start_time_seconds", Gauge, Meaning::ProcessStart, OLDEST, CLIENT),
    // Known and not used.
    old(unused("vllm:cpu_cache_usage_perc", Gauge, OLDEST, V0), Version(0, 9)),
    old(unused("vllm:gpu_prefix_cache_hit_rate", Gauge, OLDEST, V0), Version(0, 9)),
    old(unused("vllm:cpu_prefix_cache_hit_rate", Gauge, OLDEST, V0), Version(0, 9)),
    old(unused("vllm:time_in_queue_requests", Histogram, OLDEST, V0), Version(0, 9)),
    unused("vllm:num_requests_kv_fetch_by_stage", Gauge, Version(0, 32), V1),
    unused("vllm:lora_requests_info", Info, OLDEST, V1),
    unused("vllm:prompt_tokens_cached_total", Counter, Version(0, 16), V1),
    unused("vllm:prompt_tokens_cached_by_source_total", Counter, Version(0, 32), V1),
    unused("vllm:external_prefix_cache_hits_total", Counter, Version(0, 11), V1),
    unused("vllm:external_prefix_cache_queries_total", Counter, Version(0, 11), V1),
    unused("vllm:mm_cache_hits_total", Counter, Version(0, 11), V1),
    unused("vllm:mm_cache_queries_total", Counter, Version(0, 11), V1),
    unused("vllm:estimated_flops_per_gpu_total", Counter, Version(0, 17), V1),
    unused("vllm:estimated_read_bytes_per_gpu_total", Counter, Version(0, 17), V1),
    unused("vllm:estimated_write_bytes_per_gpu_total", Counter, Version(0, 17), V1),
    unused("vllm:e2e_request_latency_seconds", Histogram, OLDEST, V1),
    unused("vllm:request_inference_time_seconds", Histogram, OLDEST, V1),
    unused("vllm:request_prefill_time_seconds", Histogram, OLDEST, V1),
    unused("vllm:request_decode_time_seconds", Histogram, OLDEST, V1),
    unused("vllm:request_time_per_output_token_seconds", Histogram, Version(0, 11), V1),
    unused("vllm:request_prefill_kv_computed_tokens", Histogram, Version(0, 13), V1),
    unused("vllm:request_num_preemptions", Histogram, Version(0, 30), V1),
    unused("vllm:request_max_num_generation_tokens", Histogram, OLDEST, V1),
    unused("vllm:request_params_n", Histogram, OLDEST, V1),
    unused("vllm:request_params_max_tokens", Histogram, OLDEST, V1),
    unused("vllm:iteration_tokens_total", Histogram, OLDEST, V1),
    unused("vllm:kv_block_lifetime_seconds", Histogram, Version(0, 12), V1),
    unused("vllm:kv_block_idle_before_evict_seconds", Histogram, Version(0, 12), V1),
    unused("vllm:kv_block_reuse_gap_seconds", Histogram, Version(0, 12), V1),
    unused("vllm:nixl_xfer_time_seconds", Histogram, Version(0, 11), NIXL),
    unused("vllm:nixl_post_time_seconds", Histogram, Version(0, 11), NIXL),
    unused("vllm:nixl_bytes_transferred", Histogram, Version(0, 11), NIXL),
    unused("vllm:nixl_num_descriptors", Histogram, Version(0, 11), NIXL),
    unused("vllm:nixl_num_failed_transfers_total", Counter, Version(0, 11), NIXL),
    unused("vllm:nixl_num_failed_notifications_total", Counter, Version(0, 11), NIXL),
    unused("vllm:nixl_num_kv_expired_reqs_total", Counter, Version(0, 15), NIXL),
    unused("vllm:nixl_num_notifications_after_expiry_total", Counter, Version(0, 32), NIXL),
];

/// Handlers that take inference requests; `/metrics`, `/health` and `/v1/models` are not demand.
const HANDLERS: &[&str] = &[
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/pooling",
    "/classify",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/inference/v1/generate",
];

const NOTES: &[Note] = &[
    Note {
        when: |_| true,
        text: "aborted requests are in no per-request family: when clients give up, finished \
               requests fall while load rises; compare HTTP answers with finished ones",
    },
    Note {
        when: |_| true,
        text: "a stream refused at admission is HTTP 200 with an error inside: no proxy and no \
               status code shows it",
    },
    Note {
        when: |_| true,
        text: "TTFT is seen when the first token leaves and queue time at finish: both lag \
               behind the waiting gauge",
    },
    Note {
        when: |page| !page.has(Meaning::Rejected),
        text: "refusals at admission are not counted by this version (0.32 and later do)",
    },
    Note {
        when: |page| page.has(Meaning::Waiting) && !page.has(Meaning::WaitingByReason),
        text: "waiting is not split by reason (0.20 and later do): it may include requests that \
               wait for a KV transfer, which more replicas do not help",
    },
    Note {
        when: |page| page.has(Meaning::PromptTokens) && !page.has(Meaning::PromptBySource),
        text: "prompt tokens are not split by source (0.16 and later do): computed and cached \
               ones cannot be told apart",
    },
    Note {
        when: |page| page.has(Meaning::Running) && !page.has(Meaning::SleepState),
        text: "sleep state is not said: a sleeping engine would look idle",
    },
    Note {
        when: |page| {
            !page.engines.is_empty() && page.engines.iter().all(|engine| engine.epoch == 0)
        },
        text: "no start time and no creation times (several API servers?): a restart shows only \
               in counters that fall",
    },
    Note {
        when: |page| page.has(Meaning::Swapped),
        text: "swapped requests (V0) are counted as waiting",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::dialect::Part;

    #[test]
    fn every_name_stands_once_and_counters_end_in_total() {
        for (index, family) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES[..index].iter().all(|earlier| earlier.name != family.name));
            assert_eq!(
                family.kind == Counter,
                family.kind != Histogram && family.name.ends_with("_total"),
                "{}",
                family.name
            );
            assert!(family.until.is_none_or(|until| until > family.since), "{}", family.name);
        }
    }

    #[test]
    fn every_old_name_has_todays_name_beside_it() {
        let aliased = |family: &&Family| {
            family.preference > 0 && !matches!(family.meaning, Meaning::Unused | Meaning::Swapped)
        };
        let olds: Vec<_> = FAMILIES.iter().filter(aliased).collect();
        assert_eq!(olds.len(), 4);
        assert!(olds.iter().all(|family| VLLM.current(family.meaning).is_some()));
    }

    #[test]
    fn suffixes_lead_to_the_family_they_belong_to() {
        let find = |name| VLLM.find(name).map(|(family, part)| (family.name, part));
        assert_eq!(
            find("vllm:iteration_tokens_total_bucket"),
            Some(("vllm:iteration_tokens_total", Part::Bucket))
        );
        assert_eq!(
            find("vllm:generation_tokens_created"),
            Some(("vllm:generation_tokens_total", Part::Created))
        );
        assert_eq!(find("vllm:iteration_tokens_total"), None);
        assert_eq!(find("vllm:num_requests_running_sum"), None);
        assert_eq!(find("vllm:brand_new_total"), None);
    }
}
