//! The built-in tools. Each is a type that implements [`BuiltInTool`].
//!
//! A tool accesses the store only through its [`Context`]. For a tool that writes this is one transaction, in
//! which its effect and the record of the call are committed together.

mod attribution;
mod error;
mod spec;
mod visible_tools;

mod check;
mod confinement;
mod lease_issuer;
mod lookup;
mod page;
mod search;
mod slice;
mod value;

mod artifacts;
mod egress;
mod findings;
mod help;
mod images;
mod jobs;
mod keys;
mod leases;
mod models;
mod nodes;
mod personas;
mod preferences;
mod projects;
mod schedules;
mod settings;
mod skills;
mod tasks;
mod threads;

pub use attribution::{AttributedOutcome, Attribution, AttributionSlot};
pub use egress::{close_lost_calls, delete_old_calls, list_usage};
pub use error::ToolError;
pub use lease_issuer::{LeaseIssuer, NewLease};
pub use preferences::{AdminPreferenceWriter, PreferenceTarget};
pub use schedules::{ScheduleBook, check_schedule_payload, preview_schedule, time_zones};
pub use skills::{SkillTarget, SkillWriter, seed};
pub use spec::{BuiltInTool, Context, Does, Entry};
pub use threads::{ThreadBook, ThreadTurn};
pub use visible_tools::{VisibleTool, VisibleTools};

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
        skills::tools(),
        personas::tools(),
        nodes::tools(),
        models::tools(),
        images::tools(),
        threads::tools(),
        keys::tools(),
        schedules::tools(),
    ];
    families.into_iter().flatten().collect()
}
