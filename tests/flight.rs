//! A flight record is proof: it runs again to the same decisions, what was tampered with shows,
//! and what is broken is refused with its line.
//!
//! Worked number: the shipped run is 2 407 ticks, 9 keyframes and 6.6 MB.

mod support;

use serde_json::Value;
use spillgate::driver::flight::{FlightError, Verdict, replay};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::OnceLock;
use support::{own, report, scratch, spillgate, text};

const CHAT: &str = "policies/chat-disaggregated.yaml";
const SHIPPED: &str = "replay/diurnal-burst.csv";

/// Lines of the shipped run, recorded once.
fn flight() -> &'static [String] {
    static LINES: OnceLock<Vec<String>> = OnceLock::new();
    LINES.get_or_init(|| {
        let file = scratch("shipped.flight.jsonl");
        shipped(&["--flight", text(&file)]);
        let text = std::fs::read_to_string(file).expect("the flight");
        text.lines().map(str::to_owned).collect()
    })
}

fn shipped(more: &[&str]) -> Value {
    let (policy, trace) = (own(CHAT), own(SHIPPED));
    let mut arguments = vec!["replay", "--policy", text(&policy), "--trace", text(&trace)];
    arguments.extend(["-o", "json"]);
    arguments.extend(more);
    report(&arguments)
}

fn run(lines: &[String]) -> Result<Verdict, FlightError> {
    replay("test", lines.join("\n").as_bytes())
}

fn exit_of(file: &Path) -> (Option<i32>, String) {
    let output = spillgate(&["replay", text(file)]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The error of a flight that must be refused, by the program with exit 3 as by the library.
fn refused(name: &str, lines: &[String]) -> String {
    let error = run(lines).expect_err(name).to_string();
    let file = scratch(&format!("{name}.jsonl"));
    std::fs::write(&file, lines.join("\n")).expect("a scratch file");
    let (code, said) = exit_of(&file);
    assert_eq!(code, Some(3), "{name}: {said}");
    assert!(!said.contains("panicked"), "{name}: {said}");
    assert!(said.contains(error.trim_start_matches("test")), "{name}: {said} and {error}");
    error
}

fn type_of(line: &str) -> &'static str {
    ["header", "keyframe", "tick"]
        .into_iter()
        .find(|kind| line.starts_with(&format!("{{\"type\":\"{kind}\"")))
        .expect("a line of a flight")
}

#[test]
fn a_recorded_run_runs_again_without_a_difference() {
    let verdict = run(flight()).expect("a flight");
    assert_eq!(verdict.ticks, 2_407);
    assert_eq!((verdict.differing, verdict.memories_differing), (0, 0), "{verdict:?}");
    assert_eq!(exit_of(&scratch("shipped.flight.jsonl")).0, Some(0));
}

#[test]
fn a_flight_cut_off_at_its_second_keyframe_runs_too() {
    let lines = flight();
    let keyframes: Vec<usize> =
        (0..lines.len()).filter(|&i| type_of(&lines[i]) == "keyframe").collect();
    assert!(keyframes.len() > 5, "{keyframes:?}");
    for second in [keyframes[1], keyframes[keyframes.len() - 2]] {
        let cut: Vec<String> = lines[..1].iter().chain(&lines[second..]).cloned().collect();
        let verdict = run(&cut).expect("a flight from a later keyframe");
        assert!(verdict.ticks > 300);
        assert_eq!((verdict.differing, verdict.memories_differing), (0, 0), "{verdict:?}");
    }
}

/// Where in a tick an engine's object is, and what it says of waiting.
type Engine = (String, String, usize);

/// The engines of a delta: whole lists, or objects by index.
fn engines(tick: &mut Value) -> Vec<(Engine, &mut Value)> {
    let mut found = Vec::new();
    let Some(pools) = tick["policies"][0]["observation"]["pools"].as_object_mut() else {
        return found;
    };
    for (pool, seen) in pools {
        let Some(pods) = seen["pods"].as_object_mut() else { continue };
        for (pod, seen) in pods {
            match seen.get_mut("engines") {
                Some(Value::Array(all)) => {
                    let all = all.iter_mut().enumerate();
                    found.extend(all.map(|(i, e)| ((pool.clone(), pod.clone(), i), e)));
                }
                Some(Value::Object(all)) => {
                    let all = all.iter_mut().map(|(i, e)| (i.parse().expect("an index"), e));
                    found.extend(all.map(|(i, e)| ((pool.clone(), pod.clone(), i), e)));
                }
                _ => {}
            }
        }
    }
    found
}

/// What was known of a pod's engines does not hold any more: it went, or they are given anew.
fn forgotten(tick: &Value, pool: &str, pod: &str) -> bool {
    let pods = &tick["policies"][0]["observation"]["pools"][pool]["pods"];
    let gone = pods["~gone"].as_array().is_some_and(|names| names.iter().any(|name| name == pod));
    gone || pods[pod]["engines"].is_array()
}

/// A tick: its line, its time, and what each engine says of waiting at it.
type Seen = (usize, u64, BTreeMap<Engine, u64>);

/// Ticks with what each engine says of waiting at them.
fn waiting_by_tick(lines: &[String]) -> Vec<Seen> {
    let mut now: BTreeMap<Engine, u64> = BTreeMap::new();
    let mut all = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if type_of(line) != "tick" {
            continue;
        }
        let mut tick: Value = serde_json::from_str(line).expect("JSON");
        now.retain(|(pool, pod, _), _| !forgotten(&tick, pool, pod));
        for (engine, said) in engines(&mut tick) {
            if let Some(waiting) = said.get("waiting").and_then(Value::as_u64) {
                now.insert(engine, waiting);
            }
        }
        all.push((number, tick["at"].as_u64().expect("a time"), now.clone()));
    }
    all
}

/// The flight with `waiting` of every engine multiplied from `from` for 15 s, from the keyframe
/// before until a minute after.
fn tampered(lines: &[String], ticks: &[Seen], from: u64, times: u64) -> Vec<String> {
    let until = ticks.iter().find(|(_, at, _)| *at > from + 75_000);
    let until = until.map_or(lines.len(), |(number, ..)| *number);
    let window = ticks.iter().find(|(_, at, _)| *at >= from).expect("a time within the flight").0;
    let keyframe = lines[..window].iter().rposition(|line| type_of(line) == "keyframe");
    let keyframe = keyframe.expect("every flight begins with one");
    let mut lines = lines[..until].to_vec();
    let mut inside_before = false;
    for (number, at, waiting) in ticks.iter().filter(|(number, ..)| *number < until) {
        let (number, at) = (*number, *at);
        let inside = (from..from + 15_000).contains(&at);
        if !inside && !inside_before {
            continue;
        }
        let mut tick: Value = serde_json::from_str(&lines[number]).expect("JSON");
        let factor = if inside { times } else { 1 };
        let changing = inside != inside_before;
        let pools = &mut tick["policies"][0]["observation"]["pools"];
        for ((pool, pod, engine), now) in waiting {
            let said = &mut pools[pool.as_str()]["pods"][pod.as_str()];
            let whole = said["engines"].is_array();
            let place = if whole {
                said["engines"].get_mut(*engine)
            } else if changing || said["engines"][engine.to_string()].get("waiting").is_some() {
                Some(&mut said["engines"][engine.to_string()])
            } else {
                None
            };
            if let Some(place) = place {
                place["waiting"] = Value::from(now * factor);
            }
        }
        prune(pools);
        if pools.is_null()
            && let Some(observation) = tick["policies"][0]["observation"].as_object_mut()
        {
            observation.remove("pools");
        }
        lines[number] = tick.to_string();
        inside_before = inside;
    }
    lines.drain(1..keyframe);
    lines
}

/// Takes out the nulls that looking has put in.
fn prune(value: &mut Value) {
    let Some(pools) = value.as_object_mut() else { return };
    for pool in pools.values_mut() {
        let Some(pods) = pool.get_mut("pods").and_then(Value::as_object_mut) else { continue };
        for pod in pods.values_mut().filter_map(Value::as_object_mut) {
            if let Some(engines) = pod.get_mut("engines").and_then(Value::as_object_mut) {
                engines.retain(|_, said| !said.is_null());
            }
            pod.retain(|key, said| key != "engines" || !said.is_null());
        }
        pods.retain(|_, pod| !pod.is_null());
    }
}

#[test]
fn a_thousandfold_queue_in_any_window_in_which_there_was_one_is_found() {
    let lines = flight();
    let ticks = waiting_by_tick(lines);
    let queued =
        |window: &&[Seen]| window.iter().all(|(_, _, waiting)| waiting.values().sum::<u64>() > 0);
    let starts: Vec<u64> = ticks.windows(15).filter(queued).map(|window| window[0].1).collect();
    assert!(starts.len() >= 20, "the shipped run has hardly a queue: {starts:?}");
    let mut decided_otherwise = 0;
    for pick in 0..5 {
        let from = starts[pick * (starts.len() - 1) / 4];
        let changed = tampered(lines, &ticks, from, 1_000);
        let verdict = run(&changed).expect("still a flight");
        // A queue at a few replicas beside free ones decides nothing; the memory tells it all the same.
        let found = verdict.differing + verdict.memories_differing;
        assert!(found > 0, "window at {from} ms: nothing differs, {verdict:?}");
        decided_otherwise += u32::from(verdict.differing > 0);
        let file = scratch("tampered.jsonl");
        std::fs::write(&file, changed.join("\n")).expect("a scratch file");
        let (code, said) = exit_of(&file);
        assert_eq!(code, Some(5), "window at {from} ms: {said}");
    }
    assert!(decided_otherwise >= 3, "{decided_otherwise} of 5 windows decide otherwise");
}

#[test]
fn tampering_with_nothing_changes_nothing() {
    let lines = flight();
    let ticks = waiting_by_tick(lines);
    let verdict = run(&tampered(lines, &ticks, 1_250_000, 1)).expect("a flight");
    assert!(verdict.ticks > 90, "{verdict:?}");
    assert_eq!((verdict.differing, verdict.memories_differing), (0, 0));
}

#[test]
fn broken_flights_are_refused_with_the_line() {
    let whole = &flight()[..400];
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = whole.to_vec();
        change(&mut lines);
        lines
    };
    let cut = with(&|lines| {
        let last = lines.last_mut().expect("lines");
        last.truncate(last.len() / 2);
    });
    assert!(refused("truncated", &cut).starts_with("test:400:"));
    let garbage = with(&|lines| lines[200] = "\u{1f4a5} not JSON at all {".to_owned());
    assert!(refused("garbage", &garbage).starts_with("test:201:"));
    let headless = with(&|lines| drop(lines.remove(0)));
    let error = refused("headless", &headless);
    assert!(error.starts_with("test:1:") && error.contains("header"), "{error}");
    let keyless = with(&|lines| lines.retain(|line| type_of(line) != "keyframe"));
    let error = refused("keyless", &keyless);
    assert!(error.starts_with("test:2:") && error.contains("keyframe"), "{error}");
    let early = with(&|lines| lines.swap(1, 2));
    let error = refused("early", &early);
    assert!(error.starts_with("test:2:") && error.contains("keyframe"), "{error}");
    let future = with(&|lines| lines[0] = lines[0].replace("\"schema\":1", "\"schema\":99"));
    let error = refused("future", &future);
    assert!(error.starts_with("test:1:") && error.contains("99"), "{error}");
    let twice = with(&|lines| lines.insert(100, lines[0].clone()));
    assert!(refused("twice", &twice).starts_with("test:101:"));
    let error = refused("only-start", &whole[..2]);
    assert!(error.contains("no tick"), "{error}");
    assert!(refused("empty", &[]).contains("empty"));
}

#[test]
fn a_line_of_three_hundred_megabytes_is_refused_with_bounded_memory() {
    let header = format!("{}\n", flight()[0]);
    let endless = std::io::repeat(b'x').take(300 << 20);
    let input = BufReader::with_capacity(1 << 20, header.as_bytes().chain(endless));
    let error = replay("test", input).expect_err("too long").to_string();
    assert!(error.starts_with("test:2:") && error.contains("longer than"), "{error}");
    // On disk it is a hole behind the header, and costs nothing.
    let file = scratch("long-line.jsonl");
    std::fs::write(&file, header).expect("a scratch file");
    let open = std::fs::OpenOptions::new().write(true).open(&file).expect("it is there");
    open.set_len(300 << 20).expect("room for a hole");
    let (code, said) = exit_of(&file);
    assert_eq!(code, Some(3), "{said}");
    std::fs::remove_file(file).expect("it is there");
}

#[test]
fn a_flipped_byte_is_an_error_or_a_difference_or_harmless_but_never_a_panic() {
    let lines = &flight()[..60];
    let text = lines.join("\n");
    for step in 0..120_usize {
        let mut bytes = text.clone().into_bytes();
        let at = (step * 7_919 + 13) * 104_729 % bytes.len();
        bytes[at] ^= 1 << (step % 7);
        match replay("test", bytes.as_slice()) {
            Ok(verdict) => assert!(verdict.ticks > 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(text.as_bytes().lines().count() == 60);
}

#[test]
fn expectations_are_met_by_the_same_run_and_missed_by_another() {
    let (policy, trace) = (own(CHAT), own(SHIPPED));
    let expected = scratch("expected.json");
    let flight_file = scratch("expected.flight.jsonl");
    let first = shipped(&["--flight", text(&flight_file)]);
    std::fs::write(&expected, first.to_string()).expect("a scratch file");
    for file in [&expected, &flight_file] {
        let with = |seed: &str| {
            let arguments = ["replay", "--policy", text(&policy), "--trace", text(&trace)];
            let more = ["--seed", seed, "--expect", text(file)];
            spillgate(&[&arguments[..], &more[..]].concat()).status.code()
        };
        assert_eq!(with("1"), Some(0), "{}", file.display());
        assert_eq!(with("2"), Some(5), "{}", file.display());
    }
}
