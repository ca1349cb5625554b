//! The values of a YAML document, typed as `kubectl` types them, each with its line.
//!
//! Worked number: `port: 8000` on line 7 is a number that knows line 7; `"8000"` is text.

/// One value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Line in the file, from 1.
    pub(super) line: usize,
    pub(super) value: Value,
}

/// A value as `kubectl` would type it.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    /// As written: `true`, `yes`, `off` and so on.
    Bool(String),
    /// As written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key, its line and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

impl Node {
    /// What stands here, short enough for a message.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Value::Null => String::from("null"),
            Value::Bool(text) | Value::Number(text) => short(text),
            Value::Text(text) => format!("\"{}\"", short(text)),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(entries) => format!("a map of {}", entries.len()),
        }
    }

    /// The name of its type, for a message.
    pub(super) const fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The entry of a map with this key.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The same value for serde. Numbers that JSON cannot hold stay text, which no field accepts.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(text) => serde_json::Value::Bool(text == "true"),
            Value::Number(text) => {
                text.parse::<i64>().map_or_else(|_| text.clone().into(), serde_json::Value::from)
            }
            Value::Text(text) => text.clone().into(),
            Value::List(items) => items.iter().map(Self::json).collect(),
            Value::Map(entries) => serde_json::Value::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.node.json())).collect(),
            ),
        }
    }
}

pub(super) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}
