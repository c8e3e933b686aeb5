//! The tasks of the storm: five steps each, of which some tasks have one that never succeeds.

use serde_json::{Value, json};

use crate::stage::job;

/// How often a step is tried that never succeeds.
pub(super) const ATTEMPTS: u64 = 2;
/// Every so many tasks one has such a step.
const BROKEN_EVERY: usize = 5;

/// One task, and what is expected of it.
pub(super) struct Plan {
    pub(super) task: String,
    number: usize,
}

impl Plan {
    pub(super) fn new(number: usize, task: &str) -> Self {
        Self { task: task.to_owned(), number }
    }

    /// Returns whether its step `join` never succeeds.
    pub(super) fn is_broken(&self) -> bool {
        self.number % BROKEN_EVERY == BROKEN_EVERY - 1
    }

    /// Two jobs at the same time, one that joins their files, a step of the manager, and a last job. Each job
    /// appends to a file that it would find again if it had been done before.
    pub(super) fn steps(&self) -> Value {
        let with = |mut step: Value, output: &str| {
            step["artifacts"] = json!(["**"]);
            step["outputs"] = json!([output]);
            step
        };
        let number = self.number;
        let writes = |side: &str| format!("echo {number} {side} >> {side}.txt; sleep 0.{}", number % 10);
        let joins = "cat left.txt right.txt >> join.txt; echo It was joined.";
        let joins = if self.is_broken() { "cat left.txt right.txt; exit 3" } else { joins };
        let ends = format!("cat join.txt >> last.txt; echo {number} last >> last.txt");
        let mut join = job("join", joins, &["left", "right"]);
        join["criteria"] = json!(["It was joined"]);
        json!([
            with(job("left", &writes("left"), &[]), "left.txt"),
            with(job("right", &writes("right"), &[]), "right.txt"),
            with(join, "join.txt"),
            { "name": "word", "description": "Say a word.", "kind": "manager", "depends_on": ["join"] },
            with(job("last", &ends, &["word"]), "last.txt"),
        ])
    }

    /// A step that a failure of the stack ends is tried again, as often as needed.
    pub(super) fn policy(&self) -> Value {
        let attempts = if self.is_broken() { ATTEMPTS } else { 20 };
        json!({ "max_attempts": attempts, "max_reviews": 20, "step_seconds": 600 })
    }

    /// The names of its steps that are done, of jobs and of all, in order.
    pub(super) fn done(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        match self.is_broken() {
            true => (vec!["left", "right"], vec!["left", "right"]),
            false => (vec!["join", "last", "left", "right"], vec!["join", "last", "left", "right", "word"]),
        }
    }

    /// The files that it leaves, with their content.
    pub(super) fn files(&self) -> Vec<(&'static str, String)> {
        let number = self.number;
        let (left, right) = (format!("{number} left\n"), format!("{number} right\n"));
        let joined = format!("{left}{right}");
        let mut files = vec![("left.txt", left), ("right.txt", right)];
        if !self.is_broken() {
            files.extend([("join.txt", joined.clone()), ("last.txt", format!("{joined}{number} last\n"))]);
        }
        files
    }
}
