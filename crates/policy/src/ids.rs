//! The ids that a call names in its arguments, and what the store knows about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value};

use super::Denial;

/// An id argument that ties a call to a task, run, job, user or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScopedId {
    Task,
    Run,
    Job,
    User,
    Project,
}

impl ScopedId {
    pub const ALL: [Self; 5] = [Self::Task, Self::Run, Self::Job, Self::User, Self::Project];

    /// Returns the name of the argument.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Task => "task_id",
            Self::Run => "run_id",
            Self::Job => "job_id",
            Self::User => "user_id",
            Self::Project => "project_id",
        }
    }
}

impl fmt::Display for ScopedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.argument())
    }
}

/// The ids that a call names in its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIds {
    pub task: Option<String>,
    pub run: Option<String>,
    pub job: Option<String>,
    pub user: Option<String>,
    pub project: Option<String>,
}

/// No id in the store is longer.
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
fn is_id(text: &str) -> bool {
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
    pub projects: BTreeSet<String>,
}
