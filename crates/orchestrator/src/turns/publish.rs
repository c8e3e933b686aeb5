//! Hands a turn off: signed, under its own message id, so that publishing it again is harmless.

use async_nats::HeaderMap;
use broker::{Broker, Chain, PublishError};
use bytes::Bytes;
use contract::thread::{Turn, TurnAnswer};
use operate::publish::{Sealed, seal};
use subjects::{ErrorCode, Handoff};
use tracing::warn;

use super::{
    Turns,
    compose::{ComposeError, compose},
    outcome,
};
use crate::error::ApiError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOffError {
    #[error("the stored turn is not valid")]
    Compose(#[from] ComposeError),
    #[error("encoding and signing the handoff")]
    Seal(#[source] operate::Error),
    #[error("publishing the handoff")]
    Publish(#[from] PublishError),
}

impl Turns {
    /// Publishes the handoff of a turn and waits until it is stored.
    pub(super) async fn hand_off(
        &self,
        broker: &Broker,
        turn: &Turn,
        lease: Option<&str>,
        traceparent: Option<String>,
    ) -> Result<(), HandOffError> {
        self.publish(broker, &compose(turn)?, lease, traceparent).await?;
        self.marks.push_sent(turn.handoff_id);
        Ok(())
    }

    /// Publishes a handoff under its own message id and waits until it is stored.
    pub(crate) async fn publish(
        &self,
        broker: &Broker,
        handoff: &Handoff,
        lease: Option<&str>,
        traceparent: Option<String>,
    ) -> Result<(), HandOffError> {
        let sealed = seal(handoff, self.key.as_ref(), lease, traceparent);
        let Sealed { subject, headers, body } = sealed.map_err(HandOffError::Seal)?;
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            sent.insert(name, value);
        }
        broker::publish(&broker.client, &subject, sent, Bytes::from(body), None).await?;
        self.metrics.handoffs.inc();
        Ok(())
    }
}

impl HandOffError {
    /// Returns the answer of the turn if it can never be handed off.
    pub(super) fn final_answer(&self) -> Option<TurnAnswer> {
        let code = match self {
            Self::Compose(_) | Self::Seal(_) => ErrorCode::InvalidHandoff,
            Self::Publish(PublishError::TooLarge) => ErrorCode::BudgetExceeded,
            Self::Publish(_) => return None,
        };
        Some(outcome::failed(code, format!("it cannot be handed off: {}", Chain(self))))
    }

    /// Logs the error and returns the one for the client. The turn is stored: a repeated request joins it,
    /// and the sweep publishes it.
    pub(super) fn into_api_error(self, turn: &Turn) -> ApiError {
        warn!(handoff.id = %turn.handoff_id, error = %Chain(&self), "Handoff not published yet.");
        let why = match &self {
            Self::Publish(PublishError::Full) => ("queue_full", "The queue of the project manager is full"),
            Self::Publish(PublishError::Unconfirmed(_)) => {
                ("nats_unavailable", "The queue of the project manager does not answer")
            }
            Self::Compose(_) | Self::Seal(_) | Self::Publish(_) => {
                ("handoff_failed", "The request cannot be handed to the project manager")
            }
        };
        let message = format!(
            "{}. The request is kept as chatcmpl-{} and will be worked on; repeat it to wait for the answer.",
            why.1, turn.handoff_id
        );
        ApiError::unavailable(why.0, message)
    }
}
