use subjects::{Body, Encoding, HandoffId, Role, headers};

use crate::storage::Storage;

/// Reads whether a message of the queue is still there, and is still this handoff: sequences begin anew with a new stream.
pub(super) async fn is_in_queue(storage: &Storage, role: Role, id: HandoffId, sequence: u64) -> bool {
    let (jetstream, queue) = (&storage.broker.jetstream, storage.broker.layout.handoffs(role));
    let Some(message) = storage.read(queue, || broker::message_at(jetstream, queue, sequence)).await else {
        return false;
    };
    let content_type = headers::get_any_case(Some(&message.headers), headers::CONTENT_TYPE);
    let encoding = Encoding::from_content_type(content_type).unwrap_or_default();
    Body::inspect(encoding, &message.payload).glimpse().handoff_id == Some(id)
}
