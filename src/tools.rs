//! Tools, called only through the MCP gateway. The role's allowlist is checked here before the gateway checks
//! its own; a model is offered a small, ranked selection.

mod allowlist;
mod call;
mod catalogue;
mod catalogues;
mod control;
mod lease_calls;
mod names;
mod rank;
pub(crate) mod spans;

pub(crate) use allowlist::Allowlist;
pub(crate) use call::{CallError, LIST_METHOD, NoListener, PermittedCall, Returned, Tools, TryListener};
pub(crate) use catalogue::{Catalogue, Offer, ToolInfo};
pub(crate) use control::{Control, REQUEST_VERIFICATION, VerificationRequest};
pub(crate) use lease_calls::NotIssued;
pub(crate) use names::NameTable;
