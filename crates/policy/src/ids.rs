//! The ids that a call names in its arguments, and what the store knows about them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Denial, ScopedId};

/// The ids that a call names in its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIds {
    pub task: Option<String>,
    pub run: Option<String>,
    pub job: Option<String>,
    pub user: Option<String>,
    pub project: Option<String>,
}

/// Maximum length of an id in the store.
const MAX_ID_BYTES: usize = 128;

impl CallIds {
    /// Reads the ids from the arguments. An id that is present but not valid text is a mismatch, not a
    /// missing id.
    pub fn read(arguments: &Map<String, Value>) -> Result<Self, Denial> {
        let id = |id: ScopedId| match arguments.get(id.argument()) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if is_id(text) => Ok(Some(text.clone())),
            Some(_) => Err(Denial::MismatchedId(id)),
        };
        Ok(Self {
            task: id(ScopedId::Task)?,
            run: id(ScopedId::Run)?,
            job: id(ScopedId::Job)?,
            user: id(ScopedId::User)?,
            project: id(ScopedId::Project)?,
        })
    }

    pub fn get(&self, id: ScopedId) -> Option<&str> {
        match id {
            ScopedId::Task => self.task.as_deref(),
            ScopedId::Run => self.run.as_deref(),
            ScopedId::Job => self.job.as_deref(),
            ScopedId::User => self.user.as_deref(),
            ScopedId::Project => self.project.as_deref(),
        }
    }
}

/// Ids appear in audit rows and on console pages, so they must be short, printable ASCII.
pub(super) fn is_id(text: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The user and project of a task, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFacts {
    pub user: Option<String>,
    pub project: Option<String>,
}

/// What the store knows about the ids of a call and of its caller. An absent id is unknown to the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub tasks: BTreeMap<String, TaskFacts>,
    /// The task of each job.
    pub jobs: BTreeMap<String, String>,
    /// The tasks of each run.
    pub runs: BTreeMap<String, BTreeSet<String>>,
    /// The owner of each project, if it has one.
    pub projects: BTreeMap<String, Option<String>>,
}
