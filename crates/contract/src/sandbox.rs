//! `sandbox.*`: jobs, which nodes run in sandboxes.

mod job;
mod logs;
mod run;
mod store;

pub use job::{CancelJob, GetJob, Job, JobStatus, JobSummary, ListJobs};
pub use logs::{JobLog, ReadLog};
pub use run::{LimitsWanted, MAX_TOOLS, MAX_WAIT_SECONDS, Run, RunFile};
pub use store::{MAX_PIECE_BYTES, StoreFile, StoreProgress};
