//! The wire contract: what an orchestrator and a worker say to each other on NATS, and where.
//!
//! Everything that crosses a process boundary is built and parsed here, so that nobody else writes a
//! subject by hand or guesses at a field. This crate never talks to a server; it only describes.

mod answer; // completions and findings
mod code; // the closed set of error codes
mod codec; // JSON and MessagePack
mod dead; // dead letters
mod handoff; // what is handed off
mod id; // handoff and scope ids
mod kind; // kinds and roles
mod live; // best-effort messages: deltas, events, cancels, presence
mod message; // a transcript, message by message
mod payload; // the payload of each kind
mod shape; // structural limits, checked before any type sees the body
mod subject; // every subject, both ways
mod timestamp; // RFC 3339, as written
mod trace; // what was done, in order

pub mod audit; // rows of tool calls, chained; heads, signed
pub mod headers;
pub mod journal; // what was done on a handoff, so that another can go on
pub mod schema;
pub mod signature;
pub mod streams;

pub use answer::{
    Answer, Completion, Failure, Finding, Findings, FindingsStatus, FinishReason, PreferenceApplied,
    Severity, Status, TaskChange, TaskChangeKind, Usage, Verdict, Verification,
};
pub use code::ErrorCode;
pub use codec::{CodecError, Encoding, UnknownContentType, decode, encode};
pub use dead::{DeadLetter, DeadLetterError};
pub use handoff::{
    Context, Envelope, Handoff, Preference, PreferenceScope, Project, Refusal, SCHEMA_VERSION, Scope, Task,
    Work,
};
pub use id::{HandoffId, IdError, InstanceId, ScopeId};
pub use kind::{Kind, Role, UnknownKind, UnknownRole};
pub use live::{CancelReply, CancelState, Delta, Event, InFlight, InstanceState, InstanceStatus, Progress};
pub use message::{Message, ToolCall};
pub use payload::{
    Artifact, Chat, ChatMessage, ChatRole, Continue, Evidence, MODEL_ID, Plan, Schedule, SchedulePayloadType,
    Verify,
};
pub use shape::{Body, Glimpse, MAX_DEPTH, ShapeError};
pub use subject::{ALL_ANSWERS, Pattern, Subject, UnknownSubject};
pub use timestamp::{Timestamp, TimestampError};
pub use trace::{
    Act, Assessment, InputType, PlannedState, PlannedStep, Step, StepOutcome, Stop, Trace, WorkScope,
};
