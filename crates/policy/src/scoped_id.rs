//! The kinds of ids that tie a call to something.

use std::fmt;

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
