//! `/v1/chat/completions`: what most of OpenAI's clients call.
//!
//! - `request`: reads the body; `route`: decides who answers
//! - `surface`: how turns are shown; `completion`: the objects that clients read
//! - `stored`: fetches and cancels completions by id

mod completion;
mod request;
mod route;
mod stored;
mod surface;

pub(crate) use route::create;
pub(crate) use stored::{cancel, get};
