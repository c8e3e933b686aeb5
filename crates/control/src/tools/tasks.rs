//! `db.task.*`: tasks, their statuses and their dependencies.

mod book;
mod create;
mod dependency;
mod read;
mod status;
mod update;

use contract::task::{
    Create, Get, List, MAX_CRITERIA, MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES, Update, UpdateStatus,
};

pub use self::book::{TaskBook, TaskCount, TaskDependency, WantedTasks};
pub(crate) use crate::task_rows::{
    find, find_open, into_summary, into_task, is_final, lock, name, status_of,
};
use crate::{Entry, ToolError, arguments::check};

const MAX_CRITERION_BYTES: usize = 2 * 1024;
/// Maximum size of all criteria of a task together, so that the task fits into one result.
const MAX_CRITERIA_BYTES: usize = 12 * 1024;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Create>(),
        Entry::of::<Get>(),
        Entry::of::<List>(),
        Entry::of::<Update>(),
        Entry::of::<UpdateStatus>(),
        Entry::of::<dependency::Add>(),
        Entry::of::<dependency::Remove>(),
        Entry::of::<dependency::List>(),
    ]
}

fn check_title(title: &str) -> Result<(), ToolError> {
    check::non_blank("title", title, MAX_TITLE_BYTES)
}

fn check_description(description: &str) -> Result<(), ToolError> {
    check::text("description", description, MAX_DESCRIPTION_BYTES)
}

/// Checks the acceptance criteria and returns the JSON that is stored.
fn encode_criteria(criteria: &[String]) -> Result<String, ToolError> {
    check::count("acceptance criteria", criteria.len(), MAX_CRITERIA)?;
    for criterion in criteria {
        check::non_blank("acceptance criterion", criterion, MAX_CRITERION_BYTES)?;
    }
    check::to_json("acceptance criteria", &criteria.into(), MAX_CRITERIA_BYTES)
}
