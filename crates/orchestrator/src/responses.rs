//! `/v1/responses`: what Codex, the AI SDK and other newer clients of OpenAI call.
//!
//! - `request`: reads the body; `input`: its items; `resolve`: what it refers to
//! - `route`: decides who answers
//! - `surface`: how turns are shown; `object`: the response that clients read; `writer`: the events of a
//!   stream
//! - `stored`: fetches and cancels responses by id; `input_items`: what they were asked

mod input;
mod input_items;
mod object;
mod request;
mod resolve;
mod route;
mod stored;
mod surface;
mod writer;

use subjects::HandoffId;

pub(crate) use input_items::input_items;
pub(crate) use route::create;
pub(crate) use stored::{cancel, delete, get};

/// Prefix of the id of a response; the id of its handoff follows.
const ID_PREFIX: &str = "resp_";
/// Prefix of the ids of its messages.
const MESSAGE_PREFIX: &str = "msg_";
/// Prefix of the ids of its reasoning items.
const REASONING_PREFIX: &str = "rs_";

/// Returns the id of the first message of a response, or of a later one.
fn item_id(prefix: &str, handoff_id: HandoffId, number: u32) -> String {
    match number {
        0 => format!("{prefix}{handoff_id}"),
        number => format!("{prefix}{handoff_id}_{number}"),
    }
}

/// Returns the handoff of an id that begins with `prefix`.
fn handoff_of(prefix: &str, id: &str) -> Option<HandoffId> {
    let id = id.strip_prefix(prefix)?;
    id.split_once('_').map_or(id, |(id, _)| id).parse().ok()
}
