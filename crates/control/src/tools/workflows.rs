//! `workflow.*`: workflows, which runners drive until their tasks are done.
//!
//! A runner acts only through these tools. Each names the epoch with which it holds the workflow; one that
//! is stale is refused. Whatever changes a workflow locks tasks first, in the order of their ids, and then
//! workflows.

mod acquire;
mod answers;
mod book;
mod checkpoint;
mod counts;
mod effects;
mod end;
mod events;
mod handoff;
mod history;
mod hooks;
mod job;
mod lease;
mod message;
mod publish;
mod read;
mod refusal;
mod requeue;
mod resend;
mod rights;
mod rows;
mod start;
mod steer;
mod view;
mod wait;
mod writes;

use contract::workflow::{
    Acquire, Cancel, DeleteCheckpoints, Get, GetCheckpoint, HandOff, List, ListCheckpoints, Pause,
    PutCheckpoint, PutWrites, Release, Renew, Resume, Retry, RunJob, Start,
};

pub use self::{
    book::WorkflowBook,
    counts::{ACTIVE_STATUSES, COUNTED_OUTCOMES, WorkflowCounts, count_workflows, newest_workflow_event},
    requeue::requeue_lost_workflows,
    resend::resend_lost_handoffs,
    steer::Answer as WorkflowAnswer,
};
pub(crate) use self::{hooks::TaskHooks, steer::check_not_own};
use crate::Entry;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Start>(),
        Entry::of::<Get>(),
        Entry::of::<List>(),
        Entry::of::<Cancel>(),
        Entry::of::<Pause>(),
        Entry::of::<Resume>(),
        Entry::of::<Retry>(),
        Entry::of::<Acquire>(),
        Entry::of::<Renew>(),
        Entry::of::<Release>(),
        Entry::of::<PutCheckpoint>(),
        Entry::of::<PutWrites>(),
        Entry::of::<GetCheckpoint>(),
        Entry::of::<ListCheckpoints>(),
        Entry::of::<DeleteCheckpoints>(),
        Entry::of::<RunJob>(),
        Entry::of::<HandOff>(),
    ]
}
