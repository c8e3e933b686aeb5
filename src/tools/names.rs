//! Maps tool names to names that models accept, and back.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Models accept names up to this length, and only letters, digits, `_` and `-`.
const MAX_NAME_LEN: usize = 64;

/// The model name of each tool, and the tool of each model name. A name that is not in the table is unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameTable {
    to_model: BTreeMap<String, String>,
    from_model: BTreeMap<String, String>,
}

impl NameTable {
    /// Replaces `.` by `__`. The end of a name that would be too long, reserved or ambiguous is replaced by a
    /// hash of the tool name, so that model names are unique and do not depend on the order of the tools.
    pub(crate) fn new<'n>(tools: impl IntoIterator<Item = &'n str>, reserved: &[&str]) -> Self {
        let tools: BTreeSet<&str> = tools.into_iter().collect();
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        for tool in &tools {
            *wanted.entry(escape(tool)).or_default() += 1;
        }
        let mut table = Self::default();
        for tool in tools {
            let plain = escape(tool);
            let is_free = wanted.get(&plain) == Some(&1) && !reserved.contains(&plain.as_str());
            let taken = |name: &String| wanted.contains_key(name) || table.from_model.contains_key(name);
            let name = if is_free && plain.len() <= MAX_NAME_LEN {
                plain
            } else {
                // A tool could be named like the hashed name of another one.
                let hashes = (4..=Sha256::output_size()).map(|bytes| name_with_hash(&plain, tool, bytes));
                hashes.into_iter().find(|name| !taken(name)).unwrap_or_default()
            };
            table.to_model.insert(tool.to_owned(), name.clone());
            table.from_model.insert(name, tool.to_owned());
        }
        table
    }

    /// Returns the model name of a tool.
    pub(crate) fn model_name(&self, tool: &str) -> Option<&str> {
        self.to_model.get(tool).map(String::as_str)
    }

    /// Returns the tool with this model name.
    pub(crate) fn tool_name(&self, name: &str) -> Option<&str> {
        self.from_model.get(name).map(String::as_str)
    }
}

/// Replaces `.` by `__` and all other characters that models do not accept by `_`.
fn escape(tool: &str) -> String {
    let mut out = String::with_capacity(tool.len() + 4);
    for character in tool.chars() {
        match character {
            '.' => out.push_str("__"),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => out.push(character),
            _ => out.push('_'),
        }
    }
    out
}

/// Cuts the name so that the first `bytes` bytes of the tool's hash, at most 28, fit behind it.
fn name_with_hash(plain: &str, tool: &str, bytes: usize) -> String {
    let hash = HEXLOWER.encode(&Sha256::digest(tool.as_bytes())[..bytes.min(28)]);
    let kept = &plain[..plain.len().min(MAX_NAME_LEN - hash.len() - 1)];
    format!("{kept}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_unique_name_that_models_accept() {
        let long = "x.".repeat(60) + "end";
        let longer = "x.".repeat(60) + "other";
        let tools = [
            "db.task.get",
            "db__task.get",
            "db__task__get",
            "a.b",
            "a_b",
            "a/b",
            "a:b",
            "ask_user",
            "größe.é",
            &long,
            &longer,
        ];
        let table = NameTable::new(tools, &["ask_user"]);
        let mut seen = BTreeSet::new();
        for tool in tools {
            let name = table.model_name(tool).unwrap();
            assert!(name.len() <= MAX_NAME_LEN && !name.is_empty(), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert!(seen.insert(name), "{name} twice");
            assert_eq!(table.tool_name(name), Some(tool));
            assert_ne!(name, "ask_user", "reserved");
        }
        assert_eq!(table.model_name("a.b"), Some("a__b"));
        assert_eq!(table.tool_name("db.task.get"), None, "a dotted name is not a model name");
        // The same tools in another order have the same names.
        let again = NameTable::new(tools.into_iter().rev(), &["ask_user"]);
        assert_eq!(table.to_model, again.to_model);
    }
}
