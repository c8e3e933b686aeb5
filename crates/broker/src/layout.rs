//! Checks whether the existing streams use the layout that this connection expects.

use std::time::Duration;

use async_nats::jetstream;
use subjects::streams::Layout;
use tokio::time::timeout;

use crate::Broker;

/// A client without permission to read a stream gets no reply.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// The existing streams use another layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the streams use the layout `{}`, not `{wanted}`: {}", wanted.other(), list(.misplaced))]
pub struct LayoutMismatch {
    pub wanted: Layout,
    pub misplaced: Vec<MisplacedSubject>,
}

/// A subject that is bound to one stream and belongs to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisplacedSubject {
    pub subject: String,
    pub found_in: &'static str,
    pub belongs_in: &'static str,
}

fn list(misplaced: &[MisplacedSubject]) -> String {
    let lines = misplaced.iter().map(|MisplacedSubject { subject, found_in, belongs_in }| {
        format!("`{subject}` is in {found_in} and should be in {belongs_in}")
    });
    lines.collect::<Vec<_>>().join(", ")
}

/// Checks that the existing streams use this connection's layout. Streams that are missing, or that this
/// client may not read, count as neither layout.
pub async fn check_layout(broker: &Broker) -> Result<(), LayoutMismatch> {
    let wanted = broker.layout;
    let mut misplaced = Vec::new();
    for ((subject, belongs_in), (_, found_in)) in
        wanted.analyst_subjects().into_iter().zip(wanted.other().analyst_subjects())
    {
        if !binds_subject(&broker.jetstream, belongs_in, &subject).await
            && binds_subject(&broker.jetstream, found_in, &subject).await
        {
            misplaced.push(MisplacedSubject { subject, found_in, belongs_in });
        }
    }
    if misplaced.is_empty() { Ok(()) } else { Err(LayoutMismatch { wanted, misplaced }) }
}

/// Returns whether `subject` is bound to `stream`; `false` if the stream cannot be read.
async fn binds_subject(jetstream: &jetstream::Context, stream: &str, subject: &str) -> bool {
    let looked = timeout(LOOKUP_TIMEOUT, jetstream.get_stream(stream)).await;
    matches!(looked, Ok(Ok(found)) if found.cached_info().config.subjects.iter().any(|held| held == subject))
}
