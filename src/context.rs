//! What a model is told: six layers in a fixed order. Pure functions from values to text.
//!
//! One system message holds layers 1 to 5, each under its heading; the request's own messages are the sixth.
//! Everything that did not come with the instruction bundle is quoted line by line, so no text of a user, a
//! project or a tool can begin a line of the system message and pose as a layer.

mod budget; // what fits
mod layers; // headings and their order
mod preferences; // which preference holds
mod quoting; // text that must stay text

pub(crate) use budget::{Budget, TooLarge, bytes_in, tokens_in};
pub(crate) use layers::{Layers, Preamble, System, request_messages};
pub(crate) use preferences::{Preferences, Routing};
pub(crate) use quoting::{defused, message_text, quoted};

#[cfg(test)]
mod tests;
