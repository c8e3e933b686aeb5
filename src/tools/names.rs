use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Models take names of this length, and only letters, digits, `_` and `-`.
const LONGEST: usize = 64;

/// Dotted names and the names a model knows them by, both ways. Made anew for every run; a name that is not in it does
/// not exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameTable {
    to_model: BTreeMap<String, String>,
    from_model: BTreeMap<String, String>,
}

impl NameTable {
    /// `.` becomes `__`. What would be too long or taken gets the hash of its name instead of its end, so no two tools
    /// ever share a name and none depends on the order of the others.
    pub(crate) fn over<'n>(tools: impl IntoIterator<Item = &'n str>, reserved: &[&str]) -> Self {
        let tools: BTreeSet<&str> = tools.into_iter().collect();
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        for tool in &tools {
            *wanted.entry(plain(tool)).or_default() += 1;
        }
        let mut table = Self::default();
        for tool in tools {
            let plain = plain(tool);
            let is_free = wanted.get(&plain) == Some(&1) && !reserved.contains(&plain.as_str());
            let taken = |name: &String| wanted.contains_key(name) || table.from_model.contains_key(name);
            let name = if is_free && plain.len() <= LONGEST {
                plain
            } else {
                // Someone could name a tool like another one's hash.
                let hashes = (4..=Sha256::output_size()).map(|bytes| hashed(&plain, tool, bytes));
                hashes.into_iter().find(|name| !taken(name)).unwrap_or_default()
            };
            table.to_model.insert(tool.to_owned(), name.clone());
            table.from_model.insert(name, tool.to_owned());
        }
        table
    }

    pub(crate) fn name_of(&self, tool: &str) -> Option<&str> {
        self.to_model.get(tool).map(String::as_str)
    }

    pub(crate) fn tool_called(&self, name: &str) -> Option<&str> {
        self.from_model.get(name).map(String::as_str)
    }
}

fn plain(tool: &str) -> String {
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

fn hashed(plain: &str, tool: &str, bytes: usize) -> String {
    let hash = HEXLOWER.encode(&Sha256::digest(tool.as_bytes())[..bytes.min(28)]);
    let kept = &plain[..plain.len().min(LONGEST - hash.len() - 1)];
    format!("{kept}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_name_of_its_own_that_models_take() {
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
        let table = NameTable::over(tools, &["ask_user"]);
        let mut seen = BTreeSet::new();
        for tool in tools {
            let name = table.name_of(tool).unwrap();
            assert!(name.len() <= LONGEST && !name.is_empty(), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert!(seen.insert(name), "{name} twice");
            assert_eq!(table.tool_called(name), Some(tool));
            assert_ne!(name, "ask_user", "reserved");
        }
        assert_eq!(table.name_of("a.b"), Some("a__b"));
        assert_eq!(table.tool_called("db.task.get"), None, "a dotted name is not what was offered");
        // The same tools in another order have the same names.
        let again = NameTable::over(tools.into_iter().rev(), &["ask_user"]);
        assert_eq!(table.to_model, again.to_model);
    }
}
