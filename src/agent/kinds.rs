//! One module for each kind of handoff.

pub(super) mod chat;
pub(super) mod plan;
pub(super) mod plan_steps;
pub(super) mod resume;
pub(super) mod review;
pub(super) mod schedule;
pub(super) mod verify;
