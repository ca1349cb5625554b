//! The tree's own lint: what rustfmt and clippy do not say about these files.
//!
//! Sizes of files and functions, a module doc on each file, and the words that a file may not
//! contain: time and environment have one place each, and nothing iterates in random order. Code is
//! looked at with comments and the insides of strings blanked out, so that counting braces is enough.
//!
//! Worked number: a function whose `fn` stands on line 10 and whose last brace on line 79 has 70
//! lines, and passes; with one more it fails.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_MOST: usize = 400;
const TEST_FILE_MOST: usize = 450;
const FUNCTION_MOST: usize = 70;
/// Of code; rustfmt does not get into macros.
const COLUMNS_MOST: usize = 100;
/// Of a line with its comments and texts, which rustfmt leaves as they are.
const TEXT_COLUMNS_MOST: usize = 120;

/// (file, rule, why it may). An entry that is not needed any more fails.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("core/src/flow.rs", "columns", "`matches!` with a guard, which rustfmt does not wrap"),
    ("core/src/reason.rs", "function", "one arm a reason: the vocabulary reads as a list"),
    ("core/src/units.rs", "columns", "the rows of a macro's table, one a line"),
    ("core/src/window.rs", "columns", "a property inside `proptest!`, where rustfmt does not wrap"),
    (
        "src/engine/exposition/run.rs",
        "columns",
        "a property inside `proptest!`, where rustfmt does not wrap",
    ),
    (
        "src/engine/histogram.rs",
        "columns",
        "a property inside `proptest!`, where rustfmt does not wrap",
    ),
    (
        "src/engine/number.rs",
        "columns",
        "a property inside `proptest!`, where rustfmt does not wrap",
    ),
    ("src/policy/manifest.rs", "columns", "the rows of a macro's table, one a line"),
    ("src/policy/resolve.rs", "columns", "the text of an error message"),
    (
        "src/policy/values.rs",
        "columns",
        "a property inside `proptest!`, where rustfmt does not wrap",
    ),
    ("src/profile/fit.rs", "columns", "the text of an error message"),
    ("src/sim/score.rs", "columns", "a property inside `proptest!`, where rustfmt does not wrap"),
    ("tests/engine_pages.rs", "columns", "`matches!` with a guard, which rustfmt does not wrap"),
    (
        "tests/policy_check.rs",
        "columns",
        "a property inside `proptest!`, where rustfmt does not wrap",
    ),
    (
        "tests/small_worlds.rs",
        "columns",
        "the settings of `proptest!`, where rustfmt does not wrap",
    ),
];

struct Source {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
    /// The text with comments and the insides of literals blanked out, line for line.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for folder in ["benches", "core", "e2e", "fuzz", "src", "tests"] {
        collect(&root().join(folder), &mut files);
    }
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a readable file");
        let path = file.strip_prefix(root()).expect("below the root").display().to_string();
        Source { path, code: blanked(&text), text }
    };
    files.into_iter().map(read).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, into);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Comments and the insides of strings and character literals become spaces; lines stay.
fn blanked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or(' ');
    let find = |from: usize, what: &str| {
        let what: Vec<char> = what.chars().collect();
        let rest = chars.get(from..).unwrap_or_default();
        let place = rest.windows(what.len()).position(|window| window == what.as_slice());
        place.map_or(chars.len(), |place| from + place)
    };
    let named = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == '/' => find(at, "\n"),
        '/' if next(1) == '*' => (find(at + 2, "*/") + 2).min(chars.len()),
        '"' => closing(chars, at, '"'),
        'r' if !named || (at > 0 && chars[at - 1] == 'b') => {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            if next(1 + hashes) == '"' {
                let end = format!("\"{}", "#".repeat(hashes));
                (find(at + 2 + hashes, &end) + end.len()).min(chars.len())
            } else {
                at
            }
        }
        // A quote is a character, unless it is a lifetime.
        '\'' if next(1) == '\\' || next(2) == '\'' => closing(chars, at, '\''),
        _ => at,
    }
}

/// The place behind the quote that closes the one at `at`.
fn closing(chars: &[char], at: usize, quote: char) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// Each function's first line (from 1) and number of lines.
fn functions(code: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        if !line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "fn") {
            continue;
        }
        let (mut depth, mut opened, mut nested) = (0_i32, false, 0_i32);
        'body: for (offset, line) in lines[first..].iter().enumerate() {
            for c in line.chars() {
                match c {
                    '{' => (depth, opened) = (depth + 1, true),
                    '}' => depth -= 1,
                    '(' | '[' => nested += 1,
                    ')' | ']' => nested -= 1,
                    // A declaration, or a function type: no body.
                    ';' if !opened && nested <= 0 => break 'body,
                    _ => {}
                }
                if depth < 0 || (opened && depth == 0) {
                    found.push((first + 1, offset + 1));
                    break 'body;
                }
            }
        }
    }
    found
}

fn lines_of_code(source: &Source) -> usize {
    source.code.lines().filter(|line| !line.trim().is_empty()).count()
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs")
}

fn may_read_time_and_environment(path: &str) -> bool {
    let production = path.starts_with("src/") || path.starts_with("core/src/");
    !production || path == "src/live/clock.rs" || path.starts_with("src/cli/")
}

/// Everything wrong with a file, as (rule, words).
fn faults(source: &Source) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    let most = if is_test(&source.path) { TEST_FILE_MOST } else { FILE_MOST };
    let lines = lines_of_code(source);
    if lines > most {
        faults.push(("file", format!("{lines} lines of code, {most} allowed: split it")));
    }
    for (line, length) in functions(&source.code) {
        if length > FUNCTION_MOST {
            let words =
                format!("line {line}: a function of {length} lines, {FUNCTION_MOST} allowed");
            faults.push(("function", words));
        }
    }
    if !source.text.starts_with("//!") {
        faults.push(("module doc", "begin the file with `//!` and say what it is for".to_owned()));
    }
    for (number, line) in source.text.lines().enumerate() {
        let number = number + 1;
        if line.contains('\t') {
            faults.push(("tab", format!("line {number}: a tab")));
        }
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            if line.contains(word) {
                faults.push(("unfinished", format!("line {number}: {word}; do it or file it")));
            }
        }
    }
    for (number, (line, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
        let (columns, text_columns) = (code.trim_end().chars().count(), line.chars().count());
        if columns > COLUMNS_MOST || text_columns > TEXT_COLUMNS_MOST {
            faults.push(("columns", format!("line {}: {text_columns} columns", number + 1)));
        }
    }
    for (word, rule) in [
        ("HashMap", "order"),
        ("HashSet", "order"),
        ("Instant::now", "time"),
        ("SystemTime::now", "time"),
        ("env::var", "environment"),
    ] {
        let allowed = rule != "order" && may_read_time_and_environment(&source.path);
        if source.code.contains(word) && !allowed {
            faults.push((rule, format!("{word} is used")));
        }
    }
    faults
}

#[test]
fn every_file_keeps_the_house_rules() {
    let sources = sources();
    assert!(sources.len() > 100, "only {} files found", sources.len());
    let mut wrong = Vec::new();
    let mut used = vec![false; ALLOWED.len()];
    for source in &sources {
        for (rule, words) in faults(source) {
            let allowed =
                ALLOWED.iter().position(|&(path, what, _)| path == source.path && what == rule);
            match allowed {
                Some(index) => used[index] = true,
                None => wrong.push(format!("{}: {rule}: {words}", source.path)),
            }
        }
    }
    for ((path, rule, _), used) in ALLOWED.iter().zip(used) {
        if !used {
            wrong.push(format!("{path}: {rule}: allowed, and not needed any more"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn each_rule_finds_what_it_forbids() {
    let find = |path: &str, text: &str| -> Vec<&'static str> {
        let source = Source { path: path.to_owned(), text: text.to_owned(), code: blanked(text) };
        faults(&source).into_iter().map(|(rule, _)| rule).collect()
    };
    let long = |lines: usize| format!("//! Doc.\nfn a() {{\n{}}}\n", "x();\n".repeat(lines - 2));
    assert_eq!(find("src/a.rs", &long(FUNCTION_MOST)), Vec::<&str>::new());
    assert_eq!(find("src/a.rs", &long(FUNCTION_MOST + 1)), ["function"]);
    let array = long(FUNCTION_MOST + 1).replace("a()", "a(b: [u8; 3])");
    assert_eq!(find("src/a.rs", &array), ["function"]);
    let constants = format!("//! Doc.\n{}", "const A: u8 = 1;\n".repeat(FILE_MOST + 1));
    assert_eq!(find("src/a.rs", &constants), ["file"]);
    assert_eq!(find("tests/a.rs", &constants), Vec::<&str>::new());
    assert_eq!(find("src/a.rs", "fn a() {}\n"), ["module doc"]);
    assert_eq!(find("src/a.rs", "//! A\ttab.\n"), ["tab"]);
    let comment = |length: usize| format!("//! {}\n", "a".repeat(length - 4));
    assert_eq!(find("src/a.rs", &comment(TEXT_COLUMNS_MOST)), Vec::<&str>::new());
    assert_eq!(find("src/a.rs", &comment(TEXT_COLUMNS_MOST + 1)), ["columns"]);
    let code = format!("//! Doc.\n{}\n", "a".repeat(COLUMNS_MOST + 1));
    assert_eq!(find("src/a.rs", &code), ["columns"]);
    assert_eq!(find("src/a.rs", concat!("//! TO", "DO\n")), ["unfinished"]);
    assert_eq!(find("tests/a.rs", "//! Doc.\nuse std::collections::HashMap;\n"), ["order"]);
    let clock = "//! Doc.\nfn a() { Instant::now(); std::env::var(\"A\"); }\n";
    assert_eq!(find("src/driver/mod.rs", clock), ["time", "environment"]);
    assert_eq!(find("src/live/clock.rs", clock), Vec::<&str>::new());
}

#[test]
fn comments_and_literals_are_no_code() {
    let text = "a /* { */ \"{\\\"\" r#\"{\"{\"# '{' '\\'' b\"{\" // {\n'static c";
    let code = blanked(text);
    assert!(!code.contains('{') && !code.contains('"'), "{code}");
    assert!(code.starts_with("a ") && code.ends_with("\n'static c"), "{code}");
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let registry = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let (ours, others): (Vec<&str>, Vec<&str>) =
        lock.lines().filter(|line| line.starts_with("source = ")).partition(|&l| l == registry);
    assert!(ours.len() > 100, "{} crates in Cargo.lock", ours.len());
    assert_eq!(others, Vec::<&str>::new());
}

#[test]
fn every_dependency_has_a_line_of_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let mut section = "";
    let mut seen = 0;
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let dependency = matches!(section, "[dependencies]" | "[dev-dependencies]")
            && line.contains('=')
            && !line.contains("path = ");
        if dependency {
            seen += 1;
            let reason = line.rsplit_once(" # ").map_or("", |(_, reason)| reason);
            assert!(reason.len() > 10, "say why, behind ` # `: {line}");
        }
    }
    assert!(seen > 15, "only {seen} dependencies found");
}
