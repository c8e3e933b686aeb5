//! The report of `check`, the same for every program: one line per check, and what to do about one that
//! failed.

use std::{error::Error, fmt};

use broker::Chain;

use super::{EX_UNAVAILABLE, EX_USAGE};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Good,
    /// Fine, but worth knowing.
    Remark,
    /// The check was skipped.
    Skipped,
    Failed {
        is_configuration: bool,
    },
}

impl Found {
    fn as_str(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Remark => "note",
            Self::Skipped => "skip",
            Self::Failed { .. } => "FAIL",
        }
    }
}

/// The checks of a program, in their order.
#[derive(Clone, Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    found: Found,
    name: &'static str,
    text: String,
}

impl Report {
    pub fn good(&mut self, name: &'static str, text: impl fmt::Display) {
        self.add(Found::Good, name, text);
    }

    /// Adds something that is fine, but worth knowing.
    pub fn remark(&mut self, name: &'static str, text: impl fmt::Display) {
        self.add(Found::Remark, name, text);
    }

    /// Adds a check that was not made, and why.
    pub fn skipped(&mut self, name: &'static str, why: impl fmt::Display) {
        self.add(Found::Skipped, name, format!("not checked: {why}"));
    }

    /// Adds a check that failed, with what to do about it.
    pub fn failed(&mut self, name: &'static str, why: impl fmt::Display, to_do: &str) {
        self.add(Found::Failed { is_configuration: false }, name, remedy(why, to_do));
    }

    /// Adds a check that failed because a setting or a file is wrong.
    pub fn misconfigured(&mut self, name: &'static str, error: &dyn Error, to_do: &str) {
        self.add(Found::Failed { is_configuration: true }, name, remedy(Chain(error), to_do));
    }

    fn add(&mut self, found: Found, name: &'static str, text: impl fmt::Display) {
        let text = text.to_string();
        let text = secrets::redact(&text);
        // One line per check, whatever an error says.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.lines.push(Line { found, name, text });
    }

    /// Returns the names of the checks that failed.
    pub fn failures(&self) -> Vec<&'static str> {
        let failed = self.lines.iter().filter(|line| matches!(line.found, Found::Failed { .. }));
        failed.map(|line| line.name).collect()
    }

    /// Returns the exit code: 0 if no check failed.
    pub fn exit_code(&self) -> u8 {
        let is_wrong = |line: &Line| line.found == Found::Failed { is_configuration: true };
        match self.failures().is_empty() {
            true => 0,
            false if self.lines.iter().any(is_wrong) => EX_USAGE,
            false => EX_UNAVAILABLE,
        }
    }
}

fn remedy(why: impl fmt::Display, to_do: &str) -> String {
    let why = why.to_string();
    // Some errors say themselves what to do.
    if to_do.is_empty() { why } else { format!("{}. {to_do}", why.trim_end_matches('.')) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { found, name, text } in &self.lines {
            writeln!(f, "{:<5}{name:<9}{text}", found.as_str())?;
        }
        match &self.failures()[..] {
            [] => f.write_str("all good"),
            [one] => write!(f, "1 check failed: {one}"),
            several => write!(f, "{} checks failed: {}", several.len(), several.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn each_check_has_one_line_and_a_failed_one_says_what_to_do() {
        let mut report = Report::default();
        report.good("role", "project_manager");
        assert_eq!(
            (report.to_string().as_str(), report.exit_code()),
            ("ok   role     project_manager\nall good", 0)
        );
        report.failed("nats", "refused:\n  no server", "Start nats-server.");
        report.skipped("streams", "they need NATS");
        let lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines[1], "FAIL nats     refused: no server. Start nats-server.");
        assert_eq!(lines[2], "skip streams  not checked: they need NATS");
        assert_eq!((lines[3].as_str(), report.exit_code()), ("1 check failed: nats", EX_UNAVAILABLE));
        report.misconfigured("bundle", &io::Error::other("gone"), "");
        assert_eq!((report.failures(), report.exit_code()), (vec!["nats", "bundle"], EX_USAGE));
    }
}
