//! The front door on the real stack: nats-server, gateway, worker and orchestrator are processes; only the
//! model follows a script.

mod background_prompts;
mod bad_input;
mod cancels;
mod chat;
mod clients;
mod crashes;
mod egress;
mod errors_document;
mod front_ends;
mod isolation;
mod openapi;
mod presence;
mod redaction;
mod refusals;
mod repeats;
mod responses;
mod stage;
mod storm;
mod streams;
mod threads;
