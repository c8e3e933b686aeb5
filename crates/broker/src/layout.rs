use std::time::Duration;

use async_nats::jetstream;
use subjects::streams::Layout;
use tokio::time::timeout;

use crate::Broker;

/// Whoever may not look at a stream is not answered.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// The streams are those of another layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the streams use the layout `{}`, not `{wanted}`: {}", wanted.other(), list(.misplaced))]
pub struct OtherLayout {
    pub wanted: Layout,
    pub misplaced: Vec<Misplaced>,
}

/// A subject that one stream has and another should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    pub subject: String,
    pub found_in: &'static str,
    pub belongs_in: &'static str,
}

fn list(misplaced: &[Misplaced]) -> String {
    let told = misplaced.iter().map(|Misplaced { subject, found_in, belongs_in }| {
        format!("`{subject}` is in {found_in} and should be in {belongs_in}")
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Whether the streams that are there are those of this connection's layout. Streams that are missing, or that may not be
/// looked at, speak for neither.
pub async fn check_layout(broker: &Broker) -> Result<(), OtherLayout> {
    let wanted = broker.layout;
    let mut misplaced = Vec::new();
    for ((subject, belongs_in), (_, found_in)) in
        wanted.of_analysts().into_iter().zip(wanted.other().of_analysts())
    {
        if !holds(&broker.jetstream, belongs_in, &subject).await
            && holds(&broker.jetstream, found_in, &subject).await
        {
            misplaced.push(Misplaced { subject, found_in, belongs_in });
        }
    }
    if misplaced.is_empty() { Ok(()) } else { Err(OtherLayout { wanted, misplaced }) }
}

async fn holds(jetstream: &jetstream::Context, stream: &str, subject: &str) -> bool {
    let looked = timeout(LOOK_WITHIN, jetstream.get_stream(stream)).await;
    matches!(looked, Ok(Ok(found)) if found.cached_info().config.subjects.iter().any(|held| held == subject))
}
