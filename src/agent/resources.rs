//! Resources and settings that all handoffs of an instance share.

use subjects::Role;

use crate::{
    analysts::Analysts, context::Preamble, inference::Inference, recording::Recording, storage::Storage,
    tools::Tools,
};

/// The clients and settings with which an instance works on every handoff.
#[derive(Debug)]
pub(crate) struct AgentResources {
    pub(crate) role: Role,
    /// For looking up earlier answers, which `continue` resumes.
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
    /// Maximum size of one model request, in tokens.
    pub(crate) context_tokens: usize,
    /// Maximum number of tokens that one handoff may use in all its requests.
    pub(crate) token_budget: u64,
    /// Maximum number of tools offered to the model.
    pub(crate) offered_tools: usize,
    /// Time limit of one request for a structured output.
    pub(crate) think_timeout: std::time::Duration,
    /// Whether the model is asked for the type and scope of the input.
    pub(crate) assess_input: bool,
    /// Maximum number of memories that a manager recalls; 0 for none.
    pub(crate) recalled_memories: u64,
}
