//! `workflow.*`: workflows, which drive tasks to completion. The first group is for people and managers;
//! `lease`, `checkpoint` and `effect` are for runners alone.

mod checkpoint;
mod effect;
mod lease;
mod progress;
mod row;
mod steer;

pub use checkpoint::{
    Checkpoint, CheckpointFound, CheckpointList, CheckpointStored, CheckpointsDeleted, DeleteCheckpoints,
    GetCheckpoint, ListCheckpoints, MAX_DATA_BYTES, MAX_STATE_BYTES, MAX_WRITES, NewEvent, NewWrite,
    PutCheckpoint, PutWrites, Write, WritesStored,
};
pub use effect::{HandOff, HandedOff, JobArguments, JobBegun, MAX_KEY_BYTES, RunJob};
pub use lease::{
    Acquire, Acquired, MAX_TTL_SECONDS, MIN_TTL_SECONDS, Release, ReleaseOutcome, Renew, Renewed,
};
pub use progress::{Node, StepProgress, StepStatus, sum_of_costs};
pub use row::{
    Details, Effect, EffectKind, EndReason, Event, MAX_QUEUE_SECONDS, Outcome, Policy, Status, Trigger,
    WaitingFor, Workflow,
};
pub use steer::{Cancel, Get, List, Pause, Resume, Retry, Start};
