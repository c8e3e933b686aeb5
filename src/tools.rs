//! Tools, reached through the MCP gateway alone. What a role may call is decided here before the gateway decides
//! it again; what is offered to a model is a small, ranked choice.

mod allowlist; // what a role may call
mod call; // one call and what came of it
mod catalogue; // what the gateway offers
mod control; // what a model may ask of the worker itself
mod names; // names that models accept
mod rank; // which tools suit a goal

pub(crate) use allowlist::Allowlist;
pub(crate) use call::{CallError, Permitted, Returned, Tools};
pub(crate) use catalogue::{Catalogue, Offer, ToolInfo};
pub(crate) use control::{Control, VerificationWanted};
pub(crate) use names::NameTable;
