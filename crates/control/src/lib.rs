//! The built-in tools. Each is a type that implements [`BuiltInTool`].
//!
//! A tool accesses the store only through its [`Context`]. For a tool that writes this is one transaction, in
//! which its effect and the record of the call are committed together.

mod arguments;
mod attribution;
mod confinement;
mod error;
mod known_node;
mod lease_issuer;
mod memories;
mod profiles;
mod queries;
mod resend;
mod sandboxes;
mod spec;
mod task_rows;
mod tools;
mod visible_tools;

pub use attribution::{AttributedOutcome, Attribution, AttributionSlot};
pub use error::ToolError;
pub use lease_issuer::{LeaseIssuer, NewLease};
pub use memories::{
    MAX_TEXT_BYTES, Memories, MemoryAuthor, MemoryBook, MemorySettings, NewMemory, PreparedMemory, Wanted,
    delete_expired_memories,
};
pub use sandboxes::{LimitRange, SandboxSettings, Sandboxes, unfinished_character};
pub use spec::{BuiltInTool, Context, Does, Entry};
pub use tools::{
    all,
    egress::{close_lost_calls, delete_old_calls, list_usage},
    findings::latest_findings,
    nodes::NodeBook,
    preferences::{AdminPreferenceWriter, PreferenceTarget},
    sandbox::{JobBook, NotApplied, requeue_lost_jobs},
    schedules::{ScheduleBook, check_schedule_payload, preview_schedule, time_zones},
    skills::{SkillTarget, SkillWriter, seed},
    tasks::{TaskBook, TaskCount, TaskDependency, WantedTasks},
    threads::{ThreadBook, ThreadTurn, TurnCanceller},
    workflows::{
        ACTIVE_STATUSES, COUNTED_OUTCOMES, WorkflowAnswer, WorkflowBook, WorkflowCounts, count_workflows,
        newest_workflow_event, requeue_lost_workflows, resend_lost_handoffs,
    },
};
pub use visible_tools::{VisibleTool, VisibleTools};
