//! One module for each kind of handoff.

pub(super) mod chat;
pub(super) mod plan;
pub(super) mod resume;
pub(super) mod schedule;
pub(super) mod verify;
