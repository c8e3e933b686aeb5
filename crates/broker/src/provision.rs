//! Creates streams and consumers, and compares existing ones with the expected configuration.

use std::{fmt, time::Duration};

use async_nats::jetstream::{
    self, ErrorCode,
    consumer::{self, pull},
    context::{CreateStreamErrorKind, GetStreamErrorKind},
    object_store,
    stream::{self, ConsumerErrorKind},
};
use subjects::{
    Role,
    streams::{self, Sizing},
};
use tracing::{info, warn};

use crate::{Broker, LayoutMismatch, check_layout};

/// How streams and consumers are provisioned at start-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provision {
    /// Create what is missing; leave existing ones unchanged and report differences.
    #[default]
    Create,
    /// Create nothing; refuse to start if anything is missing or differs.
    Verify,
    /// Neither create nor check.
    None,
}

/// A field that differs from the expected configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// `stream CYNODE_RUNS`, `consumer pma-chat`.
    pub what: String,
    pub field: &'static str,
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is {}, should be {}", self.what, self.field, self.found, self.expected)
    }
}

/// The result of provisioning. With [`Provision::None`] nothing is read and all fields are empty.
#[derive(Clone, Debug, Default)]
pub struct Provisioned {
    pub drifts: Vec<Drift>,
    /// The effective `ack_wait` on the server: the shortest of this role's consumers.
    pub ack_wait: Option<Duration>,
    /// How long the server keeps the answers of this role.
    pub answers_kept: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    #[error("JetStream is not enabled for this account")]
    NoJetStream,
    #[error("reading {what}")]
    Read { what: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(
        "the server has no room for {what}, which reserves {mib} MiB: free space on its disk and restart it \
         (without max_file_store it uses three quarters of what is free when it starts), or raise \
         max_file_store"
    )]
    NoRoom { what: String, mib: i64 },
    #[error("creating {what}")]
    Create { what: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(
        "{0}. Configure that layout (nats.layout, or --layout of cynodectl), or migrate the streams: stop \
         the publishers of handoffs, wait until the queues are empty, stop the workers; then delete these \
         streams and {advisories} (`nats stream rm`), or remove the subjects from them \
         (`nats stream edit --subjects`) to keep the answers; then provision again. docs/operations.md \
         describes each step",
        advisories = streams::ADVISORIES
    )]
    LayoutMismatch(LayoutMismatch),
    #[error(
        "streams or consumers differ from the expected configuration (nats.provision = verify):\n  {}",
        list(.0)
    )]
    Drifted(Vec<Drift>),
}

fn list(drifts: &[Drift]) -> String {
    drifts.iter().map(Drift::to_string).collect::<Vec<_>>().join("\n  ")
}

/// Creates or checks the streams, and the consumers of one role.
pub async fn provision(
    broker: &Broker,
    how: Provision,
    role: Role,
    sizing: Sizing,
) -> Result<Provisioned, ProvisionError> {
    let mut found = Provisioned::default();
    if how == Provision::None {
        return Ok(found);
    }
    let (jetstream, layout) = (&broker.jetstream, broker.layout);
    // Checked before anything is created: a mix of both layouts would be worse than the wrong one.
    check_layout(broker).await.map_err(ProvisionError::LayoutMismatch)?;
    // `Create` makes the streams of both roles, so that handoffs can be queued for a role that has no worker
    // yet; `Verify` needs no access to those of the other role.
    let (wanted, roles) = match how {
        Provision::Create => (layout.all(sizing), Role::ALL.to_vec()),
        Provision::Verify | Provision::None => (layout.used_by(role, sizing), vec![role]),
    };
    for config in wanted {
        let is_runs = config.name == layout.runs(role);
        let actual = provision_stream(jetstream, how, config, &mut found).await?;
        if let Some(actual) = actual.filter(|_| is_runs) {
            found.answers_kept = Some(kept_for(&actual));
        }
    }
    for role in roles {
        provision_bucket(jetstream, how, layout.bucket(role, sizing), &mut found).await?;
    }
    for kind in role.kinds() {
        let (config, queue) = (streams::consumer(kind, sizing), layout.handoffs(role));
        let actual = provision_consumer(jetstream, how, queue, config, &mut found).await?;
        if let Some(actual) = actual {
            found.ack_wait =
                Some(found.ack_wait.map_or(actual.ack_wait, |shortest| shortest.min(actual.ack_wait)));
        }
    }
    provision_consumer(jetstream, how, streams::ADVISORIES, layout.mover(role), &mut found).await?;
    if how == Provision::Verify && !found.drifts.is_empty() {
        return Err(ProvisionError::Drifted(found.drifts));
    }
    Ok(found)
}

async fn provision_stream(
    jetstream: &jetstream::Context,
    how: Provision,
    expected: stream::Config,
    found: &mut Provisioned,
) -> Result<Option<stream::Config>, ProvisionError> {
    let what = format!("stream {}", expected.name);
    let actual = match jetstream.get_stream(&expected.name).await {
        Ok(stream) => Some(stream.cached_info().config.clone()),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(answer) => match answer.error_code() {
                ErrorCode::STREAM_NOT_FOUND => None,
                ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                    return Err(ProvisionError::NoJetStream);
                }
                _ => return Err(ProvisionError::Read { what, source: Box::new(error) }),
            },
            _ => return Err(ProvisionError::Read { what, source: Box::new(error) }),
        },
    };
    match (actual, how) {
        (Some(actual), _) => {
            found.drifts.extend(stream_drifts(&what, &expected, &actual));
            Ok(Some(actual))
        }
        (None, Provision::Create) => {
            // Two instances may start at once; the second then finds the identical stream of the first.
            let mib = expected.max_bytes / (1024 * 1024);
            let made = jetstream.get_or_create_stream(expected).await;
            let made = made.map_err(|error| match error.kind() {
                CreateStreamErrorKind::JetStream(answer)
                    if answer.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED =>
                {
                    ProvisionError::NoRoom { what: what.clone(), mib }
                }
                _ => not_created(&what, error),
            })?;
            info!(%what, "Stream created.");
            Ok(Some(made.cached_info().config.clone()))
        }
        (None, _) => {
            found.drifts.push(missing(what));
            Ok(None)
        }
    }
}

/// Creates or compares streams that belong to no role. Returns what differs.
pub async fn provision_streams(
    broker: &Broker,
    how: Provision,
    streams: impl IntoIterator<Item = stream::Config>,
) -> Result<Vec<Drift>, ProvisionError> {
    let mut found = Provisioned::default();
    for config in streams {
        provision_stream(&broker.jetstream, how, config, &mut found).await?;
    }
    Ok(found.drifts)
}

/// Creates or compares one durable consumer that belongs to no role. Returns its `ack_wait` as the server has
/// it; `None` if it was not checked. Other differences are logged.
pub async fn provision_queue(
    broker: &Broker,
    how: Provision,
    stream: &str,
    wanted: pull::Config,
) -> Result<Option<Duration>, ProvisionError> {
    if how == Provision::None {
        return Ok(None);
    }
    let mut found = Provisioned::default();
    let actual = provision_consumer(&broker.jetstream, how, stream, wanted, &mut found).await?;
    for drift in &found.drifts {
        warn!(%drift, "Configuration drift not corrected; change it with the nats CLI.");
    }
    Ok(actual.map(|actual| actual.ack_wait))
}

async fn provision_bucket(
    jetstream: &jetstream::Context,
    how: Provision,
    expected: object_store::Config,
    found: &mut Provisioned,
) -> Result<(), ProvisionError> {
    let what = format!("object store {}", expected.bucket);
    if jetstream.get_object_store(&expected.bucket).await.is_ok() {
        return Ok(());
    }
    if how == Provision::Create {
        jetstream.create_object_store(expected).await.map_err(|error| not_created(&what, error))?;
        info!(%what, "Object store created.");
    } else {
        found.drifts.push(missing(what));
    }
    Ok(())
}

async fn provision_consumer(
    jetstream: &jetstream::Context,
    how: Provision,
    stream: &str,
    expected: pull::Config,
    found: &mut Provisioned,
) -> Result<Option<consumer::Config>, ProvisionError> {
    let name = expected.durable_name.clone().unwrap_or_default();
    let what = format!("consumer {name}");
    let looked: Result<consumer::Consumer<pull::Config>, _> =
        jetstream.get_consumer_from_stream(&name, stream).await;
    let actual = match looked {
        Ok(consumer) => Some(consumer.cached_info().config.clone()),
        Err(error) => match error.kind() {
            ConsumerErrorKind::JetStream(answer)
                if matches!(
                    answer.error_code(),
                    ErrorCode::CONSUMER_NOT_FOUND | ErrorCode::STREAM_NOT_FOUND
                ) =>
            {
                None
            }
            _ => return Err(ProvisionError::Read { what, source: Box::new(error) }),
        },
    };
    match (actual, how) {
        (Some(actual), _) => {
            found.drifts.extend(consumer_drifts(&what, &expected, &actual));
            Ok(Some(actual))
        }
        (None, Provision::Create) => {
            let made = jetstream
                .create_consumer_on_stream(expected, stream)
                .await
                .map_err(|error| not_created(&what, error))?;
            info!(%what, "Consumer created.");
            Ok(Some(made.cached_info().config.clone()))
        }
        (None, _) => {
            found.drifts.push(missing(what));
            Ok(None)
        }
    }
}

fn not_created(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> ProvisionError {
    ProvisionError::Create { what: what.to_owned(), source: Box::new(source) }
}

fn missing(what: String) -> Drift {
    Drift { what, field: "existence", expected: "present".to_owned(), found: "missing".to_owned() }
}

/// Collects the fields that differ. Only relevant fields are compared, since servers add fields of their own.
struct Comparison<'w> {
    what: &'w str,
    drifts: Vec<Drift>,
}

impl Comparison<'_> {
    fn field<T: PartialEq + fmt::Debug>(&mut self, field: &'static str, expected: &T, found: &T) {
        if expected != found {
            self.drifts.push(Drift {
                what: self.what.to_owned(),
                field,
                expected: format!("{expected:?}"),
                found: format!("{found:?}"),
            });
        }
    }
}

/// Compares fields of two configurations under their own names.
macro_rules! compare_fields {
    ($compare:ident, $expected:ident, $found:ident: $($field:ident)*) => {
        $($compare.field(stringify!($field), &$expected.$field, &$found.$field);)*
    };
}

fn stream_drifts(what: &str, expected: &stream::Config, found: &stream::Config) -> Vec<Drift> {
    let mut compare = Comparison { what, drifts: Vec::new() };
    compare.field("subjects", &sorted(&expected.subjects, ""), &sorted(&found.subjects, ""));
    compare_fields!(compare, expected, found: retention discard storage);
    compare.field("replicas", &expected.num_replicas, &found.num_replicas);
    compare_fields!(compare, expected, found:
        max_age max_messages max_messages_per_subject max_bytes max_message_size sealed deny_delete);
    compare.field("republish", &expected.republish.is_some(), &found.republish.is_some());
    let transforms = |config: &stream::Config| config.subject_transform.is_some();
    compare.field("subject_transform", &transforms(expected), &transforms(found));
    compare_fields!(compare, expected, found: duplicate_window allow_direct);
    compare.field("allow_msg_ttl", &expected.allow_message_ttl, &found.allow_message_ttl);
    compare.drifts
}

fn consumer_drifts(what: &str, expected: &pull::Config, found: &consumer::Config) -> Vec<Drift> {
    let mut compare = Comparison { what, drifts: Vec::new() };
    let filters = sorted(&found.filter_subjects, &found.filter_subject);
    compare.field("filter", &sorted(&expected.filter_subjects, &expected.filter_subject), &filters);
    compare_fields!(compare, expected, found:
        ack_policy ack_wait max_deliver max_ack_pending backoff deliver_policy headers_only inactive_threshold
        max_waiting max_batch max_expires);
    compare.drifts
}

/// Returns several subjects, and one more if it is not empty, in order.
fn sorted(subjects: &[String], one: &str) -> Vec<String> {
    let one = Some(one).filter(|one| !one.is_empty()).map(str::to_owned);
    let mut all: Vec<String> = subjects.iter().cloned().chain(one).collect();
    all.sort();
    all
}

/// Returns how long a stream keeps a message; a `max_age` of 0 means forever.
pub fn kept_for(config: &stream::Config) -> Duration {
    if config.max_age.is_zero() { Duration::MAX } else { config.max_age }
}
