//! Model inference: sends a request to one of the configured routes and returns the whole reply, or an error
//! that says whether a retry may help. It knows nothing of handoffs.

mod assembly;
mod endpoint;
mod offline;
mod request;
mod routes;
mod service;
mod spans;
mod transport;
mod wire;

pub(crate) use endpoint::{Endpoint, Models};
pub(crate) use offline::Offline;
pub(crate) use request::{Error, Finish, Function, Hint, OutputSchema, Purpose, Reply, Request, Tokens};
pub(crate) use routes::{Backend, LOCAL, Route, Routes};
pub(crate) use service::{Inference, Limits, Listener, Permit, Prices};
pub(crate) use wire::{SchemaMode, encode_body};
