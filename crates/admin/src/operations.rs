//! The operations of administrators and users, behind REST and console alike. Every change to the store is
//! one transaction and one audit row; an operation in NATS has its intent written before and its audit row
//! after it.

mod audit;
mod catalogues;
mod dead;
mod handoffs;
mod namespaces;
mod preferences;
mod quarantine;
mod refresh;
mod rules;
mod settings;
mod tokens;
mod tools;
mod upstreams;
mod work;

pub use audit::{AuditVerification, Heads, Pruned};
pub use catalogues::{Model, Node, Persona, Project, PutModel, PutNode, PutPersona, PutProject};
pub use dead::{DeadFilter, DeadLetter, DeadLetterDetails, ReplayedLetter};
pub use handoffs::{
    AnswerSummary, Attempt, AttemptEnd, HandoffHistory, HandoffState, HandoffStep, Outcome, StepKind,
    UnreadableEntry,
};
pub use preferences::{Preference, PreferenceAddress, PreferenceFilter, PutPreference};
pub use quarantine::{Difference, QuarantineReason, QuarantinedTool};
pub use refresh::AddedUpstream;
pub use rules::{AccessRule, NewRule};
pub use settings::{PutSetting, Setting};
pub use tokens::{IssuedToken, NewToken, RotatedToken, Token, TokenFilter, TokenKind, TokenState};
pub use tools::{
    Tool, ToolChange, ToolDetails, ToolEffect, ToolEffectChange, ToolEffectSource, ToolGate, ToolOrigin,
    ToolState,
};
pub use upstreams::{NewUpstream, ToolCounts, Upstream, UpstreamChange};
pub use work::Work;
pub(crate) use work::WorkCache;

pub use registry::upstreams::{Http, Reach, Stdio, Transport};
