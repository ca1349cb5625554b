//! `spillgate fit`: measurements in, a profile file out, and what was refused on the way.
//!
//! Worked number: `spillgate fit rows.csv --model Qwen/Qwen3-32B --system h100_sxm --precision ''
//! --tp 2 --kv-bytes-per-token 262144` names its profile `qwen3-32b-h100-tp2`.

use super::files::keep_inputs;
use super::{Exit, Failure, complain, say};
use crate::profile::{self, Fitted, Given, Group, MAX_MEASUREMENT_BYTES, Memory, Rows};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Arguments of `fit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Steady-state measurements, a CSV with a row a measurement
    measurements: PathBuf,
    /// Where the profile goes; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Rows of this model, such as Qwen/Qwen3-32B
    #[arg(long)]
    model: String,
    /// Rows of this system, such as h100_sxm
    #[arg(long)]
    system: String,
    /// Rows of this precision, as the file spells it ('' where it says nothing)
    #[arg(long, default_value = "")]
    precision: String,
    /// Rows of this tensor parallelism; also the devices of a replica
    #[arg(long, value_name = "N")]
    tp: u32,
    /// Name of the profile [default: from model, system and tp]
    #[arg(long)]
    name: Option<String>,
    /// KV bytes per token over all devices: layers x KV heads x head dimension x 2 x bytes each
    #[arg(long, value_name = "BYTES")]
    kv_bytes_per_token: u64,
    /// The engine's max_num_seqs
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_sequences: u32,
    /// The engine's max_num_batched_tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 8_192)]
    token_budget: u32,
    /// At which KV moves between replicas
    #[arg(long, value_name = "BYTES", default_value_t = 50_000_000_000)]
    transfer_bytes_per_second: u64,
    /// From the order of a replica to its first request served
    #[arg(long, value_name = "TIME", default_value = "2m")]
    start_time: String,
    /// KV capacity of a replica, if known (the engine logs it at start)
    #[arg(long, value_name = "TOKENS")]
    kv_capacity_tokens: Option<u64>,
    /// Size of the weights over all devices, in 1e9 bytes; with it the KV capacity is computed
    #[arg(long, value_name = "GB")]
    weights_gb: Option<f64>,
    /// Memory of one device, in 1e9 bytes
    #[arg(long, value_name = "GB", default_value_t = 80.0)]
    device_memory_gb: f64,
    /// Share of it that the engine takes
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    memory_utilization: f64,
    /// Activations and graphs on each device, in 1e9 bytes
    #[arg(long, value_name = "GB", default_value_t = 2.0)]
    activations_gb: f64,
    /// Who measured
    #[arg(long, default_value = "unstated")]
    source: String,
    /// Licence of the measurements
    #[arg(long, default_value = "unstated")]
    licence: String,
    /// Day of the fit [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<jiff::civil::Date>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(output) = &args.output {
        keep_inputs(output, [args.measurements.as_path()])?;
    }
    let bytes = read(&args.measurements)?;
    let given = given(args);
    let place = |error: anyhow::Error| {
        Failure::invalid(error.context(args.measurements.display().to_string()))
    };
    let rows = profile::read(&bytes, &given.group).map_err(|error| place(error.into()))?;
    tell_refused(&args.measurements, &rows);
    let fitted = profile::fit(&rows, &bytes, &given).map_err(|error| place(error.into()))?;
    for warning in &fitted.warnings {
        complain(&format!("warning: {warning}"));
    }
    let text = profile::render(&fitted.file).context("writing the profile")?;
    match &args.output {
        None => say(text.trim_end()),
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
            summarise(&fitted, path);
        }
    }
    Ok(())
}

/// The whole file, and no more memory than a file of measurements may need.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    file.take(MAX_MEASUREMENT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {}", path.display()))?;
    if bytes.len() > MAX_MEASUREMENT_BYTES {
        let limit = MAX_MEASUREMENT_BYTES;
        let what = anyhow!("{}: more than {limit} bytes; cut it to one model", path.display());
        return Err(Failure::new(Exit::Invalid, what));
    }
    Ok(bytes)
}

fn given(args: &Args) -> Given {
    let group = Group {
        model: args.model.clone(),
        system: args.system.clone(),
        precision: args.precision.clone(),
        tensor_parallel: args.tp,
    };
    let name = args.name.clone().unwrap_or_else(|| default_name(&group));
    let date = args
        .date
        .unwrap_or_else(|| jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date());
    let date = date.to_string();
    Given {
        command: command(args, &name, &date),
        name,
        group,
        kv_bytes_per_token: args.kv_bytes_per_token,
        max_sequences: args.max_sequences,
        token_budget: args.token_budget,
        transfer_bytes_per_second: args.transfer_bytes_per_second,
        start_time: args.start_time.clone(),
        kv_capacity_tokens: args.kv_capacity_tokens,
        memory: args.weights_gb.map(|weights_gb| Memory {
            device_gb: args.device_memory_gb,
            utilization: args.memory_utilization,
            weights_gb,
            activations_gb: args.activations_gb,
        }),
        date,
        source: args.source.clone(),
        licence: args.licence.clone(),
    }
}

/// `Qwen/Qwen3-32B` on `h100_sxm` with tp 2 is `qwen3-32b-h100-tp2`.
fn default_name(group: &Group) -> String {
    let model = group.model.rsplit('/').next().unwrap_or_default();
    let system = group.system.split('_').next().unwrap_or_default();
    let name = format!("{model}-{system}-tp{}", group.tensor_parallel).to_lowercase();
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}

/// What makes the same file again, with every default spelled out, so that a later version with
/// other defaults still does. Run where the measurements are.
fn command(args: &Args, name: &str, date: &str) -> String {
    let file = args.measurements.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut words = vec!["spillgate".to_owned(), "fit".to_owned(), file];
    let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    flag("model", args.model.clone());
    flag("system", args.system.clone());
    flag("precision", args.precision.clone());
    flag("tp", args.tp.to_string());
    flag("name", name.to_owned());
    flag("kv-bytes-per-token", args.kv_bytes_per_token.to_string());
    flag("max-sequences", args.max_sequences.to_string());
    flag("token-budget", args.token_budget.to_string());
    flag("transfer-bytes-per-second", args.transfer_bytes_per_second.to_string());
    flag("start-time", args.start_time.clone());
    if let Some(tokens) = args.kv_capacity_tokens {
        flag("kv-capacity-tokens", tokens.to_string());
    }
    if let Some(weights) = args.weights_gb {
        flag("weights-gb", weights.to_string());
        flag("device-memory-gb", args.device_memory_gb.to_string());
        flag("memory-utilization", args.memory_utilization.to_string());
        flag("activations-gb", args.activations_gb.to_string());
    }
    flag("source", args.source.clone());
    flag("licence", args.licence.clone());
    flag("date", date.to_owned());
    flag("output", format!("{name}.yaml"));
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn tell_refused(path: &Path, rows: &Rows) {
    for refusal in &rows.refused {
        complain(&format!("{}: {refusal}", path.display()));
    }
    complain(&format!(
        "{}: {} rows of other groups left aside, {} refused",
        path.display(),
        rows.other_groups,
        rows.refused.len()
    ));
}

/// The result in a few lines.
fn summarise(fitted: &Fitted, path: &Path) {
    let spec = &fitted.file.spec;
    let step = &spec.step;
    if let Some(provenance) = &spec.provenance {
        for row in &provenance.rows.queueing {
            complain(&format!("queues for KV, bounds its capacity, not fitted: {row}"));
        }
        say(&format!("{}: {} rows fitted", fitted.file.metadata.name, provenance.rows.used));
    }
    say(&format!(
        "step ms = {} + {} a sequence + {} a thousand KV tokens + {} a prompt token \
         + {} a prompt token and thousand of context",
        step.base_ms,
        step.per_sequence_ms,
        step.per_kv_kilotoken_ms,
        step.per_prefill_token_ms,
        step.per_prefill_token_kilocontext_ms
    ));
    say(&format!(
        "KV capacity {} tokens ({:?})",
        spec.limits.kv_capacity_tokens, spec.limits.kv_capacity_known_by
    ));
    if let Some(accuracy) = &spec.accuracy {
        for (name, errors) in
            [("in sample", accuracy.in_sample), ("one row out", accuracy.leave_one_out)]
        {
            say(&format!(
                "error {name}: ITL median {} %, p90 {} %; TTFT median {} %, p90 {} %",
                errors.itl.median_percent,
                errors.itl.p90_percent,
                errors.ttft.median_percent,
                errors.ttft.p90_percent
            ));
        }
    }
    say(&format!("written to {}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_after_model_system_and_parallelism() {
        let group = |model: &str| Group {
            model: model.into(),
            system: "h100_sxm".into(),
            precision: "fp8".into(),
            tensor_parallel: 4,
        };
        assert_eq!(default_name(&group("meta-llama/Llama-3.1-70B")), "llama-3.1-70b-h100-tp4");
        assert_eq!(default_name(&group("a b")), "a-b-h100-tp4");
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("Qwen/Qwen3-32B"), "Qwen/Qwen3-32B");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
