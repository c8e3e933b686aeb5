//! The wire contract between orchestrators, workers, the gateway and nodes on NATS: subjects, headers,
//! messages, streams.
//!
//! Every subject and every message that crosses a process boundary is built and parsed here; other crates
//! never format a subject themselves. This crate does no I/O.

mod answer;
mod code;
mod codec;
mod dead;
mod handoff;
mod id;
mod infallible;
mod kind;
mod live;
mod message;
mod payload;
mod refusal;
mod shape;
mod subject;
mod text;
mod timestamp;
mod trace;

pub mod audit;
pub mod canonical;
pub mod edge;
pub mod headers;
pub mod job;
pub mod journal;
pub mod key;
pub mod lease;
pub mod node;
pub mod schema;
pub mod signature;
pub mod streams;
pub mod workflow;
pub mod workflow_run;

pub use answer::{
    Answer, Completion, Failure, Finding, Findings, FindingsStatus, FinishReason, PreferenceApplied,
    Severity, Status, TaskChange, TaskChangeKind, Usage, Verdict, Verification,
};
pub use code::{ErrorCode, UnknownCode};
pub use codec::{CodecError, Encoding, UnknownContentType, decode, encode};
pub use dead::{DeadLetter, DeadLetterError};
pub use handoff::{
    Context, Envelope, Handoff, Preference, PreferenceScope, Project, SCHEMA_VERSION, Scope, Task, Work,
};
pub use id::{HandoffId, IdError, InstanceId, JobId, NodeId, PoolName, ScopeId};
pub use infallible::{encode_json, encode_json_text};
pub use kind::{Kind, Role, UnknownKind, UnknownRole};
pub use live::{
    Backend, BackendState, CancelReply, CancelState, Delta, Event, Fault, InFlight, InstanceState,
    InstanceStatus, Progress,
};
pub use message::{Message, ToolCall};
pub use payload::{
    Artifact, Chat, ChatMessage, ChatRole, Continue, Evidence, MODEL_ID, Plan, Schedule, SchedulePayloadType,
    Verify,
};
pub use refusal::Refusal;
pub use shape::{Body, EnvelopeFields, MAX_DEPTH, ShapeError};
pub use subject::{Pattern, Subject, UnknownSubject};
pub use timestamp::{Timestamp, TimestampError};
pub use trace::{
    Act, Assessment, InputType, PlannedState, PlannedStep, Step, StepOutcome, Stop, Trace, WorkScope,
};
