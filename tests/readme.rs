//! README holds: its commands run and print what it says, its links lead somewhere.
//!
//! A block fenced as `sh run` is run line by line, against this build where it says `cargo run
//! --release --` or `spillgate`. If a block fenced as `text` follows, each of its lines must appear
//! in the output, in that order, numbers and hashes aside (they shift while the program is tuned;
//! `scripts/figures` prints those that README gives in its table). `...` stands for lines left out.
//!
//! Worked number: `GPU-hours     4.55 (1.54 x the floor of 2.95)` stands for any three numbers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Block {
    /// The line in README where it begins.
    line: usize,
    commands: Vec<String>,
    expected: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).expect("README.md")
}

/// Fenced blocks as (line, info string, lines).
fn fences(text: &str) -> Vec<(usize, String, Vec<String>)> {
    let mut found: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(info) if !inside => {
                found.push((number + 1, info.trim().to_owned(), Vec::new()));
                inside = true;
            }
            Some(_) => inside = false,
            None if inside => found.last_mut().expect("pushed").2.push(line.to_owned()),
            None => {}
        }
    }
    found
}

fn runnable(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut follows = false;
    for (line, info, lines) in fences(text) {
        if info == "sh run" {
            let joined = lines.join("\n").replace("\\\n", " ");
            let commands = joined.lines().map(str::to_owned).collect();
            blocks.push(Block { line, commands, expected: Vec::new() });
        } else if info == "text" && follows {
            blocks.last_mut().expect("a block before it").expected = lines;
        }
        follows = info == "sh run";
    }
    blocks
}

/// The folder of shared data as README's commands name it, if it is there.
fn shared() -> Option<PathBuf> {
    let said = std::env::var_os("SPILLGATE_SHARED").map(PathBuf::from);
    said.into_iter().chain([root().join("../shared")]).find(|folder| folder.is_dir())
}

/// What the command prints, both streams; it must exit 0.
fn run(command: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_spillgate"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().into_iter().map(PathBuf::from);
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).expect("a PATH");
    let output = Command::new("/bin/sh")
        .args([
            "-c",
            &format!("exec 2>&1\n{}", command.replace("cargo run --release --", "spillgate")),
        ])
        .current_dir(root())
        .env("PATH", path)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}\n{}\n{said}", output.status);
    said
}

/// A line without what tuning changes: numbers and hashes become `#`, blanks become one.
fn shape(line: &str) -> String {
    let number = |word: &str| word.chars().any(|c| c.is_ascii_digit());
    let words = line.split_whitespace().map(|word| {
        let hash = word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit());
        if hash {
            return "#".to_owned();
        }
        let mut shaped = String::new();
        for part in word.split_inclusive(|c: char| !(c.is_ascii_digit() || c == '.')) {
            let tail = part.chars().last().filter(|c| !(c.is_ascii_digit() || *c == '.'));
            let digits = &part[..part.len() - tail.map_or(0, char::len_utf8)];
            shaped.push_str(if number(digits) { "#" } else { digits });
            shaped.extend(tail);
        }
        shaped
    });
    // "21 126" is one number.
    words.collect::<Vec<_>>().join(" ").replace("# #", "#").replace("# #", "#")
}

/// The first expected line that the output lacks, in order.
fn first_missing<'a>(expected: &'a [String], output: &str) -> Option<&'a str> {
    let mut lines = output.lines().map(shape);
    let wanted = expected.iter().filter(|line| !line.trim().is_empty() && line.trim() != "...");
    wanted
        .map(String::as_str)
        .find(|wanted| !lines.any(|line| line.starts_with(shape(wanted).trim_end_matches(" ..."))))
}

#[test]
#[expect(clippy::print_stdout, reason = "a skipped command says so")]
fn commands_print_what_the_readme_says() {
    let blocks = runnable(&readme());
    assert!(blocks.len() >= 4, "only {} blocks fenced as `sh run`", blocks.len());
    let shared = shared();
    for block in blocks {
        let mut output = String::new();
        let mut skipped = false;
        for command in block.commands {
            match &shared {
                Some(folder) => {
                    output += &run(&command.replace("../shared", &folder.display().to_string()));
                }
                None if command.contains("../shared") => {
                    println!("skipped: README line {}: no ../shared: {command}", block.line);
                    skipped = true;
                }
                None => output += &run(&command),
            }
        }
        if !skipped && let Some(missing) = first_missing(&block.expected, &output) {
            panic!("README line {}: not printed: {missing}\n\n{output}", block.line);
        }
    }
}

#[test]
fn numbers_may_shift_and_words_may_not() {
    let output = "attainment    85.2 % of all (TTFT 86.0 %)\n  12:00  prefill 3 -> 4\n";
    let expected = |lines: &[&str]| lines.iter().map(|&l| l.to_owned()).collect::<Vec<_>>();
    let missing = |lines: &[&str]| first_missing(&expected(lines), output).map(str::to_owned);
    assert_eq!(
        missing(&["attainment 1.0 % of all (TTFT 2 %)", "...", "0:30 prefill 11 -> 9"]),
        None
    );
    assert_eq!(missing(&["attainment 9 % of ..."]), None);
    assert!(missing(&["0:30 prefill 3 -> 4", "attainment 85.2 % of all"]).is_some(), "order");
    assert!(missing(&["0:30 decode 3 -> 4"]).is_some(), "another word");
    assert_eq!(shape("21 126 requests"), shape("9 requests"));
    assert_eq!(shape(&"ab12".repeat(16)), "#");
}

#[test]
fn links_and_the_layout_lead_somewhere() {
    for page in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/design.md"] {
        let file = root().join(page);
        let text = fs::read_to_string(&file).expect("the page is there");
        let folder = file.parent().expect("a folder");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://") && !link.starts_with('#')) {
            let target = folder.join(link.split('#').next().unwrap_or(link));
            assert!(target.exists(), "{page} links to {link}, which is not there");
        }
    }
    let text = readme();
    let layout = text.split("## Layout").nth(1).and_then(|t| t.split("\n## ").next());
    let rows = layout.expect("a layout section").lines().filter(|line| line.starts_with("| `"));
    let mut count = 0;
    for path in rows.flat_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`')) {
        let path = path.trim_matches([',', ' ']);
        if !path.is_empty() {
            count += 1;
            assert!(root().join(path).exists(), "the layout names {path}, which is not there");
        }
    }
    assert!(count > 10, "only {count} paths in the layout");
}

#[test]
fn the_test_command_is_what_ci_runs() {
    let ci = fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    assert!(readme().contains("\n.ci/test\n"), "README gives the test command");
    assert!(ci.contains(".ci/test"), ".ci/run calls it");
    assert!(root().join(".ci/test").exists());
}

/// The row of a run in README's table of figures, cell by cell.
fn figures(text: &str, run: &str) -> Option<Vec<String>> {
    let table = text.split("<!-- figures: begin").nth(1)?.split("<!-- figures: end").next()?;
    let row = table.lines().find(|line| line.starts_with(&format!("| {run} |")))?;
    Some(row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
}

#[test]
fn the_figures_of_the_shipped_trace_are_not_stale() {
    let row = figures(&readme(), "shipped").expect("the table has a row `shipped`");
    let percent = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().expect("a percentage");
    let report = run("spillgate replay --policy policies/chat-disaggregated.yaml \
                      --trace replay/diurnal-burst.csv -o json 2> /dev/null");
    let report: serde_json::Value = serde_json::from_str(&report).expect("a JSON report");
    let now = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64).expect("there");
    let close = |cell: &str, share: f64| (percent(cell) - 100.0 * share).abs() <= 1.0;
    let stale = "README's table is stale: run scripts/figures --write";
    assert_eq!(row[1], report["requests"].to_string(), "{stale}");
    assert!(close(&row[2], now("/slo/attainment")), "{stale}: {row:?}");
    assert!(close(&row[4], now("/overflow/share")), "{stale}: {row:?}");
}
