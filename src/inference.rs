//! Model inference: sends a request to one of the configured routes and returns the whole reply, or an error
//! that says whether a retry may help. It knows nothing of handoffs.

mod assembly;
mod context_limit;
mod endpoint;
mod exchange;
mod held_body;
mod known_ids;
mod learned;
mod offline;
mod profile;
mod request;
mod routes;
mod server;
mod service;
mod spans;
mod steps;
mod text_calls;
mod time_limit;
mod transport;
mod trial;
mod wire;

pub(crate) use endpoint::{Endpoint, EndpointOptions, Models};
pub(crate) use offline::Offline;
pub(crate) use request::{
    ASK_USER, Error, Finish, Function, Hint, OBJECTION, OutputSchema, Purpose, REPAIR, Reply, Request, Tokens,
};
pub(crate) use routes::{Backend, LOCAL, Route, Routes};
pub(crate) use service::{Inference, Limits, Listener, NoLease, Permit, Prices};
pub(crate) use steps::after_thoughts;
pub(crate) use wire::encode_plain_body;
