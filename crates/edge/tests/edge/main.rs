//! Tests of enforcement on a node, with a real gateway and a real NATS.

mod binding;
mod closing;
mod decisions;
mod full_disk;
mod keys;
mod lost_stream;
mod offline;
mod renewals;
mod storm;
mod support;
mod tampering;
