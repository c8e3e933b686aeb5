//! Who answers. A request goes to one of the configured routes and comes back whole, or as an error that says
//! what follows from it. Nothing here knows what a handoff is.

mod assembly; // fragments of a stream -> one reply
mod endpoint; // an OpenAI-compatible server
mod offline; // a deterministic model that needs nothing
mod request; // what is asked and what comes back
mod routes; // which models may answer, in which order
mod service; // routes, tries, back-off
mod transport; // the HTTP beneath
mod wire; // what goes over the wire

pub(crate) use endpoint::{Endpoint, Models};
pub(crate) use offline::Offline;
pub(crate) use request::{AnswerShape, Error, Finish, Function, Hint, Purpose, Reply, Request, Tokens};
pub(crate) use routes::{Backend, LOCAL, Route, Routes};
pub(crate) use service::{Inference, Limits, Listener, Permit, Prices};
pub(crate) use wire::{Form, body_of};
