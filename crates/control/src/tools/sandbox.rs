//! `sandbox.*`: jobs that nodes run in sandboxes.

mod apply;
mod arguments;
mod book;
mod cancel;
mod job_lease;
mod limits;
mod logs;
mod lost;
mod overdue;
mod place;
mod read;
mod run;
mod stage;
mod view;

pub use apply::NotApplied;
pub use book::JobBook;

use contract::sandbox::{CancelJob, GetJob, ListJobs, ReadLog, Run, StoreFile};

use crate::{Entry, Sandboxes};
pub(crate) use job_lease::ActingFor;
pub use lost::requeue_lost_jobs;
pub(crate) use overdue::end_if_overdue;
pub(crate) use place::reroute;
pub(crate) use run::{create as create_job, wait_for_end};
pub(crate) use view::describe as describe_job;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Run>(),
        Entry::of::<GetJob>(),
        Entry::of::<ListJobs>(),
        Entry::of::<ReadLog>(),
        Entry::of::<CancelJob>(),
        Entry::of::<StoreFile>(),
    ]
}
