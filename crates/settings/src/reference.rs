//! The reference of a program's settings, as `docs/settings.md` has it.

use std::fmt::Write;

use crate::{Describe, Program, keys};

impl Program {
    /// Renders a Markdown table of every setting: key, default, meaning.
    pub fn reference<Raw: Describe + Default>(&self) -> String {
        let mut table = "| key | default | what it is |\n|---|---|---|\n".to_owned();
        for setting in keys::<Raw>() {
            let default = match setting.default.as_deref() {
                None | Some("" | "\"\"") => "–".to_owned(),
                Some(default) => format!("`{default}`"),
            };
            // Writing into a string cannot fail.
            let _written = writeln!(table, "| `{}` | {default} | {} |", setting.key, setting.about);
        }
        table
    }
}
