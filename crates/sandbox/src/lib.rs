//! Runs one job in a sandbox on this machine, and removes all that it leaves.
//!
//! A [`Host`] is opened once per node, an [`Engine`] with [`open`]. [`Engine::start`] gives a [`Running`]
//! job, whose [`End`] is awaited, whose outputs are collected, and which is then removed. After
//! [`Host::open`], [`reconcile()`] removes what a node that died left.
//!
//! - [`Spec`], [`Limits`], [`End`]: what a job is; `inputs`: what its files take of its memory
//! - `cgroup`, `seccomp`, `process`, `staging`, `proxy`: the parts of a sandbox
//! - [`Host`]: what the sandboxes of a node share
//! - [`Running`], [`Collected`]: a job, and what it left
//! - [`Engine`]: the ways to run a job
//! - [`reconcile()`], [`self_test()`]: what a node does before it offers an engine

mod cgroup;
mod collect;
mod engine;
mod host;
mod inputs;
mod output;
mod process;
mod proxy;
mod reconcile;
mod running;
mod seccomp;
mod self_test;
mod spec;
mod staging;

pub use collect::{CollectError, Collected, OutputFile, Problem, ProblemKind};
pub use engine::{Engine, EngineKind, StartError, Unavailable, UnknownEngine, open};
pub use host::{Host, HostError, HostSettings, Kubernetes, Tools};
pub use policy::{InvalidHost, NetworkHost};
pub use reconcile::{Reconciled, reconcile};
pub use running::Running;
pub use self_test::{Attempt, Outcome, SelfTest, self_test};
pub use spec::{End, InputFile, Limits, MAX_ARGUMENT_BYTES, Network, Spec, SpecError, Stop, Usage};
