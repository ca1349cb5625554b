//! YAML as a small tree with lines, so that every problem of a file can be named at once.
//!
//! Derived readers stop at the first fault and know no line afterwards. This one keeps the line of
//! every key and value, and goes on with the next document after a syntax error. What is plain
//! text, a number or a boolean is decided as `kubectl` does, since both read the same bytes.
//!
//! Bounds, so that a hostile file costs little: 1 MiB and 500 documents a file, 64 levels, 50 000
//! values with aliases written out. Worked number: nine aliases of nine aliases, nine levels deep, would be 387 million
//! values; it is refused at 50 000.

use super::node::{Entry, Node, Value, short};
use super::problem::{Problem, Report};
use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, Tag};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Largest file that is read.
pub const MOST_BYTES: usize = 1 << 20;
const MOST_LEVELS: usize = 64;
const MOST_VALUES: usize = 50_000;
const MOST_DOCUMENTS: usize = 500;

/// One document of a file, with the problems that reading it met.
pub(super) struct Document {
    pub(super) root: Node,
    /// The text from the document's first byte to its last, for readers of other kinds.
    pub(super) text: String,
    pub(super) report: Report,
}

/// All documents of `text`; what cannot be read is reported and skipped.
pub(super) fn parse(file: &str, text: &str, problems: &mut Vec<Problem>) -> Vec<Document> {
    let mut documents = Vec::new();
    if text.len() > MOST_BYTES {
        let mut report = Report::new(file, 0);
        let message = format!("the file has {} bytes, more than {MOST_BYTES}", text.len());
        report.push(Problem::error("TooLarge", message).mend("split it into several files"));
        problems.extend(report.into_problems());
        return documents;
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MOST_LEVELS;
    options.block_nesting_limit = MOST_LEVELS;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder::default();
    for number in 1..=MOST_DOCUMENTS {
        let mut report = Report::new(file, number);
        match read_document(&mut parser, &mut builder, text, &mut report) {
            Outcome::Document(root, text) => documents.push(Document { root, text, report }),
            Outcome::Skipped => problems.extend(report.into_problems()),
            Outcome::End => {
                problems.extend(report.into_problems());
                return documents;
            }
        }
    }
    let mut report = Report::new(file, MOST_DOCUMENTS);
    let message = format!("more than {MOST_DOCUMENTS} documents");
    report.push(Problem::error("TooLarge", message).mend("split it into several files"));
    problems.extend(report.into_problems());
    documents
}

enum Outcome {
    /// A document's value and its text.
    Document(Node, String),
    /// It cannot be read, the next one perhaps can.
    Skipped,
    End,
}

fn read_document<'a>(
    parser: &mut Parser<'a, StrInput<'a>>,
    builder: &mut Builder,
    text: &str,
    report: &mut Report,
) -> Outcome {
    builder.restart();
    let mut from = 0;
    while let Some(next) = parser.next_event() {
        let (event, span) = match next {
            Ok(pair) => pair,
            Err(error) => {
                let message = format!("this is not YAML: {}", error.info());
                report.push(Problem::error("Syntax", message).at("", error.marker().line()));
                return match parser.proceed_next_document() {
                    Ok(true) => Outcome::Skipped,
                    Ok(false) | Err(_) => Outcome::End,
                };
            }
        };
        match event {
            Event::DocumentStart(..) => from = byte(span.start.byte_offset()),
            Event::DocumentEnd => {
                let to = byte(span.start.byte_offset());
                let text = text.get(from..to).unwrap_or_default().to_owned();
                if let Some(root) = builder.root.take() {
                    return Outcome::Document(root, text);
                }
            }
            Event::StreamEnd => return Outcome::End,
            event => {
                if let Err(problem) = builder.take(event, &span, report) {
                    report.push(*problem);
                    return Outcome::End;
                }
            }
        }
    }
    Outcome::End
}

fn byte(offset: Option<usize>) -> usize {
    offset.unwrap_or_default()
}

#[derive(Default)]
struct Builder {
    open: Vec<Frame>,
    root: Option<Node>,
    /// Anchored values of this document, each with the number of values in it.
    anchors: BTreeMap<usize, (Node, usize)>,
    values: usize,
}

struct Frame {
    line: usize,
    anchor: usize,
    /// Values read when it was opened.
    values: usize,
    content: Content,
}

impl Frame {
    /// The value of the key `name`, where it was read already.
    fn name(&self) -> Option<&str> {
        let Content::Map { entries, .. } = &self.content else { return None };
        match entries.iter().find(|entry| entry.key == "name").map(|entry| &entry.node.value) {
            Some(Value::Text(name)) => Some(name),
            _ => None,
        }
    }
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: BTreeSet<String>, key: Option<(String, usize)> },
}

impl Builder {
    fn restart(&mut self) {
        self.open.clear();
        self.root = None;
        self.anchors.clear();
    }

    fn take(
        &mut self,
        event: Event<'_>,
        span: &Span,
        report: &mut Report,
    ) -> Result<(), Box<Problem>> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // Long texts weigh more, or an alias of one would multiply memory unseen.
                let weight = 1 + text.len() / 64;
                self.count(weight, line)?;
                let value = scalar(text, style, tag.as_deref(), line, report);
                self.keep(Node { line, value }, anchor, weight, report);
            }
            Event::Alias(id) => {
                // An alias inside its own anchor finds nothing here: that would never end.
                let Some((node, size)) = self.anchors.get(&id).cloned() else {
                    let message = "an alias stands inside its own anchor";
                    let problem = Problem::error("Alias", message).at(self.path(), line);
                    return Err(Box::new(problem.mend("write the value out")));
                };
                self.count(size, line)?;
                self.keep(Node { line, value: node.value }, 0, size, report);
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(line, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, _) => {
                let seen = BTreeSet::new();
                self.open(line, anchor, Content::Map { entries: Vec::new(), seen, key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.open.pop() {
                    let size = self.values - frame.values;
                    let value = match frame.content {
                        Content::List(items) => Value::List(items),
                        Content::Map { entries, .. } => Value::Map(entries),
                    };
                    self.keep(Node { line: frame.line, value }, frame.anchor, size, report);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, line: usize, anchor: usize, content: Content) -> Result<(), Box<Problem>> {
        let values = self.values;
        self.count(1, line)?;
        if self.open.len() >= MOST_LEVELS {
            let message = format!("more than {MOST_LEVELS} levels of nesting");
            return Err(Box::new(Problem::error("TooDeep", message).at(self.path(), line)));
        }
        self.open.push(Frame { line, anchor, values, content });
        Ok(())
    }

    fn count(&mut self, more: usize, line: usize) -> Result<(), Box<Problem>> {
        self.values += more;
        if self.values > MOST_VALUES {
            let message = format!("more than {MOST_VALUES} values, aliases written out");
            let problem = Problem::error("TooLarge", message).at(self.path(), line);
            return Err(Box::new(problem.mend("split the file")));
        }
        Ok(())
    }

    /// The path of what is being read: list items by name where it is known already.
    fn path(&self) -> String {
        let mut path = String::new();
        for (depth, frame) in self.open.iter().enumerate() {
            match &frame.content {
                Content::Map { key: Some((key, _)), .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&short(key));
                }
                Content::Map { .. } => {}
                Content::List(items) => {
                    let name = self.open.get(depth + 1).and_then(Frame::name);
                    let label = name.map_or_else(|| items.len().to_string(), short);
                    path.push_str(&format!("[{label}]"));
                }
            }
        }
        path
    }

    /// Puts a finished value where it belongs: as key, value, item or root.
    fn keep(&mut self, node: Node, anchor: usize, size: usize, report: &mut Report) {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut frame.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, seen, key } => match key.take() {
                None => *key = Some((key_text(&node, report), node.line)),
                Some((name, line)) => {
                    if seen.insert(name.clone()) {
                        entries.push(Entry { key: name, line, node });
                    } else if !report.is_full() {
                        let first = entries.iter().find(|entry| entry.key == name);
                        let first = first.map_or(0, |entry| entry.line);
                        let outer = self.path();
                        let dot = if outer.is_empty() { "" } else { "." };
                        report.push(
                            Problem::error("DuplicateKey", format!("first given on line {first}"))
                                .at(format!("{outer}{dot}{}", short(&name)), line)
                                .value(node.shown())
                                .mend("keep one of the two"),
                        );
                    }
                }
            },
        }
    }
}

fn key_text(node: &Node, report: &mut Report) -> String {
    match &node.value {
        Value::Text(text) | Value::Bool(text) | Value::Number(text) => text.clone(),
        _ => {
            let message = format!("a key must be text, this one is {}", node.kind());
            report.push(Problem::error("WrongType", message).at("", node.line));
            node.shown()
        }
    }
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
    report: &mut Report,
) -> Value {
    if let Some(tag) = tag {
        if !tag.is_yaml_core_schema_tag("str") {
            let message = format!("the YAML tag {} is not used here", short(&tag.original()));
            report.push(Problem::error("Tag", message).at("", line).mend("leave it out"));
        }
        return Value::Text(text.into_owned());
    }
    if style == ScalarStyle::Plain { plain(text.into_owned()) } else { Value::Text(text.into()) }
}

/// A scalar without quotes, typed as YAML 1.1 does (`kubectl` too): `yes` and `off` are booleans.
fn plain(text: String) -> Value {
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        _ => {}
    }
    match text.to_ascii_lowercase().as_str() {
        "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" => Value::Bool(text),
        lower => {
            let digits = lower.trim_start_matches(['+', '-', '.']);
            let number = digits.starts_with(|c: char| c.is_ascii_digit())
                && (lower.parse::<f64>().is_ok() || lower.replace('_', "").parse::<f64>().is_ok());
            if number || matches!(digits, "inf" | "nan") && lower.contains('.') {
                Value::Number(text)
            } else {
                Value::Text(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Node>, Vec<Problem>) {
        let mut problems = Vec::new();
        let documents = parse("test.yaml", text, &mut problems);
        let roots = documents.into_iter().map(|document| {
            problems.extend(document.report.into_problems());
            document.root
        });
        (roots.collect(), problems)
    }

    #[test]
    fn every_key_and_value_knows_its_line() {
        let (documents, problems) = read("a: 1\nb:\n- x\n- {c: 5m}\n---\nd: yes\n");
        assert!(problems.is_empty(), "{problems:?}");
        let b = documents[0].entry("b").unwrap();
        assert_eq!(b.line, 2);
        let Value::List(items) = &b.node.value else { panic!("{b:?}") };
        assert_eq!((items[0].line, items[1].line), (3, 4));
        let d = documents[1].entry("d").unwrap();
        assert!(matches!(d.node.value, Value::Bool(_)));
        assert_eq!(d.line, 6);
    }

    #[test]
    fn a_duplicate_key_names_its_path_and_both_lines() {
        let (_, problems) = read("a: 1\np:\n- name: x\n  b: 2\n  b: 3\n");
        assert_eq!(problems.len(), 1);
        assert_eq!((problems[0].code, problems[0].line), ("DuplicateKey", 5));
        assert_eq!(problems[0].path, "p[x].b");
        assert!(problems[0].message.contains("line 4"));
    }

    #[test]
    fn a_document_after_a_broken_one_is_still_read() {
        let (documents, problems) = read("a: [1\n---\nb: 2\n");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(documents.len(), 1);
        assert!(documents[0].entry("b").is_some());
    }

    #[test]
    fn a_mark_of_byte_order_and_windows_line_ends_change_nothing() {
        let (documents, problems) = read("\u{feff}a: 1\r\nb: x\r\n");
        assert!(problems.is_empty(), "{problems:?}");
        let b = documents[0].entry("b").unwrap();
        assert!(b.line == 2 && b.node.shown() == "\"x\"", "{b:?}");
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..20 {
            let row = vec![format!("*a{}", level - 1); 9].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{row}]\n"));
        }
        let (_, problems) = read(&bomb);
        assert_eq!(problems.last().map(|problem| problem.code), Some("TooLarge"));
    }

    #[test]
    fn deep_and_long_files_are_refused() {
        let (_, problems) = read(&"[".repeat(100_000));
        assert!(!problems.is_empty());
        let (_, problems) = read(&" ".repeat(MOST_BYTES + 1));
        assert_eq!(problems[0].code, "TooLarge");
        let (_, problems) = read(&"---\n".repeat(200_000));
        assert_eq!(problems.last().map(|problem| problem.code), Some("TooLarge"));
        // One long text, many aliases of it: few values, much memory.
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a,".repeat(100_000));
        let (_, problems) = read(&long);
        assert_eq!(problems.last().map(|problem| problem.code), Some("TooLarge"));
    }

    #[test]
    fn an_alias_of_what_holds_it_is_refused() {
        let (_, problems) = read("a: &a [*a]\n");
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
