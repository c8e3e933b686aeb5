use subjects::Role;

use crate::{
    analysts::Analysts, context::Preamble, inference::Inference, recording::Recording, storage::Storage,
    tools::Tools,
};

/// What every handoff of an instance is worked on with.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) role: Role,
    /// To look up what was answered before.
    pub(crate) storage: Storage,
    pub(crate) preamble: Preamble,
    pub(crate) inference: Inference,
    pub(crate) tools: Tools,
    pub(crate) analysts: Analysts,
    pub(crate) recording: Recording,
    pub(crate) settings: Settings,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) max_steps: u32,
    pub(crate) temperature: f64,
    /// What one request may hold.
    pub(crate) context_tokens: usize,
    /// What one handoff may use in all.
    pub(crate) token_budget: u64,
    /// How many tools are offered.
    pub(crate) offered_tools: usize,
    pub(crate) think_timeout: std::time::Duration,
    /// Whether the input's type and scope are asked for.
    pub(crate) assess_input: bool,
}
