//! The gateway is administered: over REST and with cynodectl, against the real process.

mod admin_token; // the first administrator's
mod audit; // what happened, and what was done to the record of it
mod command_line; // cynodectl
mod quarantine; // tools that wait
mod rest; // the surface itself
mod servers; // what is behind the gateway, and whose it is
mod support;
mod tokens;
mod tools;
