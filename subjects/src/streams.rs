//! Streams and consumers as they should be. Creating and comparing them is the broker's business.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{self, AckPolicy, DeliverPolicy},
    object_store,
    stream::{self, DiscardPolicy, RetentionPolicy, StorageType},
};

use crate::{Kind, Pattern, Role, Subject};

pub const HANDOFFS: &str = "CYNODE_HANDOFFS";
pub const RUNS: &str = "CYNODE_RUNS";
pub const DEAD: &str = "CYNODE_DEAD";
pub const ADVISORIES: &str = "CYNODE_ADVISORIES";
pub const AUDIT: &str = "CYNODE_AUDIT";
/// Object-store bucket for bodies that are too large for a message.
pub const SPILL: &str = "CYNODE_SPILL";

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Backstop of the server. The worker gives up long before on what comes to nothing; what progresses may be taken up as
/// often as it takes.
pub const MAX_DELIVER: i64 = 10_000;

/// Waiting pulls per consumer, so instances per role. Cannot be changed later.
const MAX_WAITING: i64 = 4_096;

/// Handoffs of one kind in work across the whole fleet.
const MAX_ACK_PENDING: i64 = 100_000;

/// A queue longer than this refuses the producer; it never drops what it has.
const MAX_QUEUED: i64 = 1_000_000;

/// What differs from one deployment to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    pub replicas: usize,
    pub ack_wait: Duration,
}

/// All streams, in the order in which they are made.
pub fn all(sizing: Sizing) -> [stream::Config; 4] {
    [handoffs(sizing), runs(sizing), dead(sizing), advisories(sizing)]
}

/// Where the gateway keeps the signed heads of its audit. Nothing can be taken out of it, only grow old.
pub fn audit(replicas: usize) -> stream::Config {
    stream::Config {
        description: Some("Signed heads of the gateway's audit.".into()),
        subjects: vec![crate::audit::HEAD_SUBJECT.to_owned()],
        deny_delete: true,
        deny_purge: true,
        ..base(AUDIT, Sizing { replicas, ack_wait: HOUR })
    }
}

fn handoffs(sizing: Sizing) -> stream::Config {
    stream::Config {
        description: Some("Work for project managers and analysts; acknowledged is removed.".into()),
        // Each by name: what nobody consumes must not be accepted.
        subjects: Kind::ALL.map(|kind| Subject::Handoff(kind).to_string()).to_vec(),
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        max_messages: MAX_QUEUED,
        // Within this time a second publish of the same handoff is dropped by the server.
        duplicate_window: HOUR,
        allow_message_ttl: true,
        ..base(HANDOFFS, sizing)
    }
}

fn runs(sizing: Sizing) -> stream::Config {
    stream::Config {
        description: Some("Journal and the one answer of each handoff.".into()),
        subjects: Role::ALL.map(|role| Pattern::Runs(role).to_string()).to_vec(),
        max_age: 7 * DAY,
        duplicate_window: Duration::from_secs(120),
        ..base(RUNS, sizing)
    }
}

fn dead(sizing: Sizing) -> stream::Config {
    stream::Config {
        description: Some("Handoffs that were given up, whole, with the reason.".into()),
        subjects: Role::ALL.map(|role| Pattern::Dead(role).to_string()).to_vec(),
        max_age: 30 * DAY,
        // A worker that dies between copy and settlement makes the same copy again, perhaps a day later.
        duplicate_window: DAY,
        ..base(DEAD, sizing)
    }
}

fn advisories(sizing: Sizing) -> stream::Config {
    stream::Config {
        description: Some(
            "The server's word on handoffs it delivered too often: the net under dead letters.".into(),
        ),
        subjects: vec![format!("{ADVISORY_ROOT}.*")],
        retention: RetentionPolicy::WorkQueue,
        max_age: 30 * DAY,
        duplicate_window: Duration::from_secs(120),
        ..base(ADVISORIES, sizing)
    }
}

fn base(name: &str, sizing: Sizing) -> stream::Config {
    stream::Config {
        name: name.to_owned(),
        storage: StorageType::File,
        num_replicas: sizing.replicas,
        allow_direct: true,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        max_message_size: -1,
        max_consumers: -1,
        ..stream::Config::default()
    }
}

pub fn spill(sizing: Sizing) -> object_store::Config {
    object_store::Config {
        bucket: SPILL.to_owned(),
        description: Some("Bodies that are too large for a message.".into()),
        max_age: 30 * DAY,
        num_replicas: sizing.replicas,
        ..object_store::Config::default()
    }
}

/// The durable consumer that all instances of a kind's role share.
pub fn consumer(kind: Kind, sizing: Sizing) -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subject: Subject::Handoff(kind).to_string(),
        ack_wait: sizing.ack_wait,
        max_deliver: MAX_DELIVER,
        max_ack_pending: MAX_ACK_PENDING,
        max_waiting: MAX_WAITING,
        ..durable(consumer_name(kind))
    }
}

pub const fn consumer_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Chat => "pma-chat",
        Kind::Schedule => "pma-schedule",
        Kind::Plan => "pma-plan",
        Kind::Continue => "pma-continue",
        Kind::Verify => "pa-verify",
    }
}

/// Reads the advisories about the consumers of one role, so that no role touches the work of another.
pub fn mover(role: Role) -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subjects: role
            .kinds()
            .map(|kind| format!("{ADVISORY_ROOT}.{}", consumer_name(kind)))
            .collect(),
        ack_wait: Duration::from_secs(30),
        max_deliver: -1,
        max_ack_pending: 1_000,
        max_waiting: MAX_WAITING,
        ..durable(mover_name(role))
    }
}

pub const fn mover_name(role: Role) -> &'static str {
    match role {
        Role::ProjectManager => "pma-dead-mover",
        Role::ProjectAnalyst => "pa-dead-mover",
    }
}

const ADVISORY_ROOT: &str = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.CYNODE_HANDOFFS";

fn durable(name: &str) -> consumer::pull::Config {
    consumer::pull::Config {
        durable_name: Some(name.to_owned()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ..consumer::pull::Config::default()
    }
}
