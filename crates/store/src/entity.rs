//! The tables, one module each. Times are microseconds since 1970, UTC; ids are text; JSON is stored as text,
//! unchanged.

/// Declares what sea-orm requires of an entity that has neither relations nor hooks.
macro_rules! plain_entity {
    () => {
        #[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
        pub enum Relation {}

        impl ActiveModelBehavior for ActiveModel {}
    };
}
use plain_entity;

// Tokens, leases, and what access decisions depend on.
pub mod access_rule;
pub mod lease;
pub mod lease_key;
pub mod login;
pub mod revision;
pub mod token;
pub mod tool_setting;

// Upstreams and their tools.
pub mod upstream;
pub mod upstream_tool;

// The audit, and calls in flight.
pub mod audit;
pub mod audit_pruned;
pub mod edge_alarm;
pub mod edge_lease;
pub mod idempotency;
pub mod in_flight;

// Calls to external providers of models, and what they used.
pub mod egress_call;
pub mod egress_usage;

// Messages that wait to be published.
pub mod outbox;

// What the built-in tools read and write.
pub mod allowed_image;
pub mod artifact;
pub mod finding;
pub mod job;
pub mod job_file;
pub mod memory_chunk;
pub mod memory_profile;
pub mod memory_source;
pub mod model;
pub mod node;
pub mod persona;
pub mod preference;
pub mod preference_history;
pub mod project;
pub mod round_robin;
pub mod schedule;
pub mod schedule_run;
pub mod skill;
pub mod system_setting;
pub mod task;
pub mod task_dependency;
pub mod thread;
pub mod turn;
pub mod turn_cancel;
pub mod workflow;
pub mod workflow_checkpoint;
pub mod workflow_effect;
pub mod workflow_event;
pub mod workflow_handoff;
pub mod workflow_history;
pub mod workflow_write;
