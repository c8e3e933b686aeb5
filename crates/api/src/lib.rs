//! Bodies and query parameters of the gateway's REST API, shared by the gateway and its clients.
//!
//! Does no I/O. The gateway builds these types from the rows of its store; a client reads them as they are.

mod audit;
mod catalogues;
mod dead;
mod egress;
mod error;
mod jobs;
mod leases;
mod memory;
mod nodes;
mod outbox;
mod preferences;
mod quarantine;
mod rules;
mod schedules;
mod settings;
mod skills;
mod tasks;
mod tokens;
mod tools;
mod upstreams;
mod workflows;

pub use self::{
    audit::{AuditVerification, Heads, NodeAlarm, NodeAudit, NodeLease, Pruned},
    catalogues::{Model, Persona, Project, PutModel, PutPersona, PutProject},
    dead::{DeadFilter, DeadLetter, DeadLetterDetails, ReplayedLetter},
    egress::{ProviderUsage, UsageFilter},
    error::{ErrorBody, ErrorDetails},
    jobs::{Job, JobFilter, JobLog, JobLogPosition, JobStatus, JobSummary},
    leases::{IssuedLease, Lease, LeaseFilter, LeaseState, NewLease},
    memory::{
        ChangedMemories, FoundMemory, MemoryAddress, MemoryChanges, MemoryContent, MemoryFilter,
        MemoryFolder, MemoryProfileSize, MemorySearch, MemorySource, PutMemory,
    },
    nodes::{Drain, Node, NodeCondition, RemovedNode},
    outbox::WaitingMessages,
    preferences::{Preference, PreferenceAddress, PreferenceFilter, PutPreference},
    quarantine::{Approval, Difference, QuarantineReason, QuarantinedTool},
    rules::{AccessRule, NewRule, RuleOrder},
    schedules::{
        Concurrency, DeletedSchedule, Firing, FiringNote, MissedRuns, NewSchedule, PreviewedSchedule,
        Schedule, ScheduleChange, ScheduleDetails, ScheduleFilter, ScheduleOwner, SchedulePayload,
        SchedulePayloadType, SchedulePreview, ScheduleRun, ScheduleRunFilter, ScheduleRunState,
        ScheduleRunTrigger, ScheduleTiming, SkipReason, SkippedSlots,
    },
    settings::{PutSetting, Setting},
    skills::{PutSkill, Skill, SkillDetails, SkillFilter, SkillScope},
    tasks::{Task, TaskFilter, TaskListItem, TaskStatus},
    tokens::{IssuedToken, Me, NewToken, RotatedToken, Token, TokenFilter, TokenKind, TokenState},
    tools::{
        Tool, ToolChange, ToolDetails, ToolEffect, ToolEffectChange, ToolEffectSource, ToolGate, ToolOrigin,
        ToolState,
    },
    upstreams::{
        AddedUpstream, Health, Http, NewUpstream, Reach, Refreshed, Stdio, ToolCounts, Transport, Upstream,
        UpstreamChange,
    },
    workflows::{
        CancelWorkflow, ResumeWorkflow, RetryWorkflow, StartWorkflow, Workflow, WorkflowDetails,
        WorkflowEffect, WorkflowEvent, WorkflowFilter, WorkflowPolicy, WorkflowStatus,
    },
};
pub use policy::{AgentKind, Effect, OnDisconnect, Scope};
