//! `/v1/chat/completions`: what OpenAI's clients call.
//!
//! - `request`: reads the body; `redaction`: replaces secrets in it; `route`: decides who answers
//! - `background_prompts`: what front ends ask for themselves, such as titles; never a handoff
//! - `stream`, `plain`: wait for the answer of a turn; `progress`, `draft`: what a stream shows before it
//! - `completion`: the objects that clients read; `failure`: why a turn has no answer
//! - `stored`: fetches and cancels completions by id

mod background_prompts;
mod completion;
mod draft;
mod failure;
mod live_text;
mod plain;
mod progress;
mod redaction;
mod request;
mod route;
mod stored;
mod stream;

pub(crate) use route::create;
pub(crate) use stored::{cancel, get};
