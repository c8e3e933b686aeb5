//! Composes the prompt: six layers in a fixed order. Pure functions from values to text.
//!
//! One system message holds layers 1 to 5, each under its heading; the messages of the request are layer 6.
//! Everything that does not come from the instruction bundle is quoted line by line, so that no text of a
//! user, a project or a tool can begin a line of the system message and pose as a layer.

mod budget;
mod layers;
mod preferences;
mod quoting;

pub(crate) use budget::{Budget, Fitted, TooLarge, estimate_bytes, estimate_tokens};
pub(crate) use layers::{Layers, Preamble, Recalled, System, note_text, request_messages};
pub(crate) use preferences::{Preferences, Routing};
pub(crate) use quoting::{escape_template_marks, quote_lines, sanitize_message, single_line};

#[cfg(test)]
mod tests;
