//! Administration of the gateway over REST and with cynodectl, against the real process.

mod admin_token;
mod audit;
mod command_line;
mod quarantine;
mod rest;
mod schedules;
mod servers;
mod skills;
pub(crate) mod support;
mod tasks;
mod tokens;
mod tools;
