//! Looks up messages in the queue.

use chain::{Outages, Streams};
use subjects::{Body, Encoding, HandoffId, Role, headers};

/// Reads whether the queue still holds this message for this handoff. The id is compared because a recreated
/// stream reuses sequences.
pub(super) async fn check_queued<O: Outages>(
    streams: &Streams<O>,
    role: Role,
    id: HandoffId,
    sequence: u64,
) -> bool {
    let (jetstream, queue) = (&streams.broker.jetstream, streams.broker.layout.handoffs(role));
    let Some(message) = streams.read(queue, || broker::message_at(jetstream, queue, sequence)).await else {
        return false;
    };
    let content_type = headers::get_any_case(Some(&message.headers), headers::CONTENT_TYPE);
    let encoding = Encoding::from_content_type(content_type).unwrap_or_default();
    Body::inspect(encoding, &message.payload).envelope_fields().handoff_id == Some(id)
}
