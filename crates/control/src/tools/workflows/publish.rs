//! Publishes handoffs of workflows through the outbox, and keeps them until they are answered or ended.

use std::collections::BTreeMap;

use operate::publish::{Sealed, seal};
use sea_orm::{ActiveValue::Set, ConnectionTrait, DatabaseExecutor, EntityTrait};
use store::{NewMessage, entity::workflow_handoff};
use subjects::{Handoff, Role, streams};

use crate::{Sandboxes, ToolError};

/// The body of a handoff's message. A server takes 1 MiB by default.
const MAX_MESSAGE_BYTES: usize = 900 * 1024;

/// Adds the message of a new handoff to the transaction, and keeps what it takes to publish it again.
pub(super) async fn begin(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    handoff: &Handoff,
    task: &str,
    lease: &str,
    traceparent: Option<String>,
    now: i64,
) -> Result<(), ToolError> {
    let body = send(db, sandboxes, handoff, lease, traceparent.clone()).await?;
    let kept = workflow_handoff::ActiveModel {
        id: Set(handoff.id.to_string()),
        task_id: Set(task.to_owned()),
        kind: Set(handoff.kind().to_string()),
        began_at: Set(now),
        sent_at: Set(None),
        traceparent: Set(traceparent),
        body: Set(body),
    };
    workflow_handoff::Entity::insert(kept).exec_without_returning(db).await?;
    Ok(())
}

/// Adds the message of a handoff to the transaction, under the id that it always has. Returns its body.
pub(super) async fn send(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    handoff: &Handoff,
    lease: &str,
    traceparent: Option<String>,
) -> Result<String, ToolError> {
    let sealed = seal(handoff, sandboxes.signing_key.as_ref(), Some(lease), traceparent);
    let Sealed { subject, headers, body } =
        sealed.map_err(|error| ToolError::Invalid(format!("the handoff cannot be encoded: {error}")))?;
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(ToolError::TooLarge { what: "the handoff", size: body.len(), limit: MAX_MESSAGE_BYTES });
    }
    let body = String::from_utf8(body);
    let body = body.map_err(|_| ToolError::Invalid("the handoff is not text".to_owned()))?;
    // For managers, the queue is the same in every layout.
    let stream = streams::Layout::default().handoffs(Role::ProjectManager);
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value));
    let message = NewMessage {
        ordering: Some(handoff.id.to_string()),
        headers: headers.collect::<BTreeMap<_, _>>(),
        ..NewMessage::new(stream, subject.to_string(), handoff.id.to_string(), body.clone())
    };
    sandboxes.outbox.add(db, message).await?;
    Ok(body)
}

/// Forgets a handoff that is answered or ended: it is not published again. To be called after its effect was
/// changed in the same transaction, so that two that end one wait for each other there.
pub(super) async fn forget(db: &impl ConnectionTrait, id: &str) -> Result<(), ToolError> {
    workflow_handoff::Entity::delete_by_id(id).exec(db).await?;
    Ok(())
}
