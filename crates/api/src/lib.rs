//! Bodies and query parameters of the gateway's REST API, shared by the gateway and its clients.
//!
//! Does no I/O. The gateway builds these types from the rows of its store; a client reads them as they are.

mod audit;
mod catalogues;
mod dead;
mod egress;
mod error;
mod leases;
mod outbox;
mod preferences;
mod quarantine;
mod rules;
mod schedules;
mod settings;
mod skills;
mod tokens;
mod tools;
mod upstreams;

pub use self::{
    audit::{AuditVerification, Heads, Pruned},
    catalogues::{Model, Node, Persona, Project, PutModel, PutNode, PutPersona, PutProject},
    dead::{DeadFilter, DeadLetter, DeadLetterDetails, ReplayedLetter},
    egress::{ProviderUsage, UsageFilter},
    error::{ErrorBody, ErrorDetails},
    leases::{IssuedLease, Lease, LeaseFilter, LeaseState, NewLease},
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
    tokens::{IssuedToken, Me, NewToken, RotatedToken, Token, TokenFilter, TokenKind, TokenState},
    tools::{
        Tool, ToolChange, ToolDetails, ToolEffect, ToolEffectChange, ToolEffectSource, ToolGate, ToolOrigin,
        ToolState,
    },
    upstreams::{
        AddedUpstream, Health, Http, NewUpstream, Reach, Refreshed, Stdio, ToolCounts, Transport, Upstream,
        UpstreamChange,
    },
};
pub use policy::{AgentKind, Effect, OnDisconnect, Scope};
