//! Every file in `deploy/` is loaded by the program that it is for, and works as described.

mod chart;
mod files;
mod identities;
mod kubernetes;
mod machines;
mod metrics;
mod refusals;
mod settings;
mod stage;
mod tls;
