//! Reads the answers to handoffs that workflows began.

use async_nats::Subscriber;
use broker::Chain;
use operate::answer;
use serde_json::{Map, Value};
use subjects::{Answer, Encoding, HandoffId, Role, Subject, headers};
use tracing::debug;

use super::Sandboxes;

/// A completion of a project manager.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredAnswer {
    /// All of it, also what this build does not know.
    pub(crate) completion: Map<String, Value>,
    pub(crate) cost_usd: Option<f64>,
}

/// The answers could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread;

impl Sandboxes {
    /// Listens for the answer to a handoff. It only tells when to look: what counts is the stored answer.
    pub(crate) async fn listen_for_answer(&self, id: HandoffId) -> Option<Subscriber> {
        let broker = self.broker().await.ok()?;
        let subscribed = broker.client.subscribe(Subject::Completion(id).to_string()).await;
        subscribed.inspect_err(|error| debug!(handoff.id = %id, %error, "Answer not listened for.")).ok()
    }

    /// Reads the stored answer to a handoff.
    pub(crate) async fn read_answer(&self, id: HandoffId) -> Result<Option<StoredAnswer>, Unread> {
        let broker = self.broker().await.map_err(|_| Unread)?;
        let found = answer::stored(&broker, Role::ProjectManager, id).await.map_err(|error| {
            debug!(handoff.id = %id, error = %Chain(&error), "Answer not read; retrying.");
            Unread
        })?;
        let Some((message, Answer::Completion(completion))) = found else { return Ok(None) };
        let content_type = headers::get_any_case(Some(&message.headers), headers::CONTENT_TYPE);
        let encoding = Encoding::from_content_type(content_type).map_err(|_| Unread)?;
        let whole = subjects::decode(encoding, &message.payload).map_err(|_| Unread)?;
        Ok(Some(StoredAnswer { completion: whole, cost_usd: completion.usage.cost_usd }))
    }
}
