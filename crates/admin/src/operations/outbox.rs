//! Messages that wait to be published on NATS.

use api::WaitingMessages;
use store::clock;

use crate::{Actor, Admin, Error};

impl Admin {
    /// Lists what waits, by subject.
    pub(crate) async fn list_waiting_messages(&self, actor: &Actor) -> Result<Vec<WaitingMessages>, Error> {
        actor.ensure_admin()?;
        let waiting = self.store.waiting_messages().await?;
        Ok(waiting
            .into_iter()
            .map(|subject| WaitingMessages {
                subject: subject.subject,
                messages: subject.messages,
                oldest_at: clock::text(subject.oldest_at),
            })
            .collect())
    }
}
