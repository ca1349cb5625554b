//! A place in a document: a node, its path and its line, from which the rules read what they need.
//!
//! Reading is lenient, since the walk has already named what has a wrong type: a rule that cannot
//! read its inputs says nothing, and all others still run.
//!
//! Worked number: the second pool's floor is `spec.pools[decode-h100].minReplicas`, by name and not
//! by position, as a list keyed by name has it.

use super::node::{Node, Value};
use super::problem::Problem;
use super::values::{self, Time};

/// A place in a document.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub(super) node: &'a Node,
    pub(super) path: String,
    pub(super) line: usize,
}

impl<'a> At<'a> {
    /// The document itself.
    pub(super) const fn root(node: &'a Node) -> Self {
        Self { node, path: String::new(), line: node.line }
    }

    /// The field `name`, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let entry = self.node.entry(name)?;
        Some(Self { node: &entry.node, path: self.inside(name), line: entry.line })
    }

    /// The path of a field, whether it is there or not.
    pub(super) fn inside(&self, name: &str) -> String {
        let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
        if self.path.is_empty() { shown } else { format!("{}.{shown}", self.path) }
    }

    /// The field at the end of a dotted path.
    pub(super) fn find(&self, path: &str) -> Option<Self> {
        path.split('.').try_fold(self.clone(), |at, name| at.get(name))
    }

    /// The items of a list, named by `key` where they have it.
    pub(super) fn items(&self, key: &str) -> Vec<Self> {
        let Value::List(items) = &self.node.value else { return Vec::new() };
        let label = |index: usize, node: &Node| match node.entry(key).map(|e| &e.node.value) {
            Some(Value::Text(name)) => name.chars().take(64).flat_map(char::escape_debug).collect(),
            _ => index.to_string(),
        };
        items
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let path = format!("{}[{}]", self.path, label(index, node));
                Self { node, path, line: node.line }
            })
            .collect()
    }

    /// The items of the list at `path`; none where there is no list.
    pub(super) fn list(&self, path: &str, key: &str) -> Vec<Self> {
        self.find(path).map(|at| at.items(key)).unwrap_or_default()
    }

    /// Text, if it is text.
    pub(super) fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a field.
    pub(super) fn text_of(&self, path: &str) -> Option<&'a str> {
        self.find(path)?.text()
    }

    /// A whole number, if it is one.
    pub(super) fn whole(&self) -> Option<i64> {
        match &self.node.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The whole number of a field.
    pub(super) fn whole_of(&self, path: &str) -> Option<i64> {
        self.find(path)?.whole()
    }

    /// The duration of a field, if it is a good one.
    pub(super) fn time_of(&self, path: &str) -> Option<Time> {
        self.find(path)?.text().and_then(|text| values::duration(text).ok())
    }

    /// Puts a problem here.
    pub(super) fn mark(&self, problem: Problem) -> Problem {
        problem.at(self.path.clone(), self.line).value(self.node.shown())
    }

    /// Puts a problem on a field that is missing here.
    pub(super) fn mark_missing(&self, name: &str, problem: Problem) -> Problem {
        problem.at(self.inside(name), self.line)
    }
}
