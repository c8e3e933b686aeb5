//! What a worker pulls: the messages of handoffs.

use intake::Workload;
use subjects::Kind;

use crate::{
    journal::Journal,
    telemetry::{Health, Metrics},
};

/// The messages that a worker pulls.
#[derive(Debug)]
pub(crate) struct Handoffs;

impl Workload for Handoffs {
    type Kind = Kind;
    type Journal = Journal;
    type Health = Health;
    type Metrics = Metrics;
}

/// The delivery of one handoff's message.
pub(crate) type Delivery = intake::Delivery<Handoffs>;

static_assertions::assert_not_impl_any!(Delivery: Clone);
