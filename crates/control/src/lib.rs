//! The built-in tools. Each is a type that implements [`BuiltInTool`].
//!
//! A tool accesses the store only through its [`Context`]. For a tool that writes this is one transaction, in
//! which its effect and the record of the call are committed together.

mod attribution;
mod characters;
mod error;
mod spec;
mod visible_tools;

mod check;
mod confinement;
mod known_node;
mod lease_issuer;
mod lookup;
mod memories;
mod page;
mod path;
mod profiles;
mod resend;
mod search;
mod slice;
mod task_rows;
mod value;

mod artifacts;
mod egress;
mod findings;
mod help;
mod images;
mod jobs;
mod keys;
mod leases;
mod memory;
mod models;
mod nodes;
mod personas;
mod preferences;
mod projects;
mod sandbox;
mod sandboxes;
mod schedules;
mod settings;
mod skills;
mod tasks;
mod threads;
mod workflows;

pub use attribution::{AttributedOutcome, Attribution, AttributionSlot};
pub use egress::{close_lost_calls, delete_old_calls, list_usage};
pub use error::ToolError;
pub use findings::latest_findings;
pub use lease_issuer::{LeaseIssuer, NewLease};
pub use memories::{
    MAX_TEXT_BYTES, Memories, MemoryAuthor, MemoryBook, MemorySettings, NewMemory, PreparedMemory, Wanted,
    delete_expired_memories,
};
pub use nodes::NodeBook;
pub use preferences::{AdminPreferenceWriter, PreferenceTarget};
pub use sandbox::{JobBook, NotApplied, requeue_lost_jobs};
pub use sandboxes::{LimitRange, SandboxSettings, Sandboxes, unfinished_character};
pub use schedules::{ScheduleBook, check_schedule_payload, preview_schedule, time_zones};
pub use skills::{SkillTarget, SkillWriter, seed};
pub use spec::{BuiltInTool, Context, Does, Entry};
pub use tasks::{TaskBook, TaskCount, TaskDependency, WantedTasks};
pub use threads::{ThreadBook, ThreadTurn, TurnCanceller};
pub use visible_tools::{VisibleTool, VisibleTools};
pub use workflows::{
    ACTIVE_STATUSES, COUNTED_OUTCOMES, WorkflowAnswer, WorkflowBook, WorkflowCounts, count_workflows,
    newest_workflow_event, requeue_lost_workflows, resend_lost_handoffs,
};

/// Returns all built-in tools.
pub fn all() -> Vec<Entry> {
    let families = [
        help::tools(),
        leases::tools(),
        egress::tools(),
        projects::tools(),
        tasks::tools(),
        jobs::tools(),
        preferences::tools(),
        settings::tools(),
        findings::tools(),
        artifacts::tools(),
        memory::tools(),
        skills::tools(),
        personas::tools(),
        nodes::tools(),
        models::tools(),
        images::tools(),
        sandbox::tools(),
        threads::tools(),
        keys::tools(),
        schedules::tools(),
        workflows::tools(),
    ];
    families.into_iter().flatten().collect()
}
