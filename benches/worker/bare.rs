//! What the broker and its client allow: pull, publish a reply, await its PubAck, confirm the ack. Nothing else, or a claim
//! before it.

use std::sync::Arc;

use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::PullConsumer, context::Context},
};
use bytes::Bytes;
use futures_util::StreamExt;
use subjects::headers::{EXPECTED_SEQUENCE, EXPECTED_SUBJECT};
use tokio::{sync::Semaphore, task::JoinSet};

/// What the loop does with a message.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// Confirms with the client's own `double_ack`: a subscription for each.
    DoubleAck,
    /// Confirms by a plain request to the acknowledgement subject: cheaper, and what the worker does.
    Request,
    /// As the last, and first claims it with these bytes; claim and reply are compared and set, as the worker's are.
    Claim(Bytes),
}

/// Empties a consumer with `in_flight` messages at once.
pub(crate) async fn drain(
    client: async_nats::Client,
    consumer: PullConsumer,
    count: usize,
    in_flight: usize,
    reply: Bytes,
    manner: Manner,
) {
    let context = jetstream::new(client.clone());
    let slots = Arc::new(Semaphore::new(in_flight));
    let mut messages =
        consumer.stream().max_messages_per_batch(in_flight).messages().await.expect("a stream of messages");
    let mut turns = JoinSet::new();
    for taken in 0..count {
        let message = messages.next().await.expect("a message").expect("no error");
        let slot = Arc::clone(&slots).acquire_owned().await.expect("open");
        let (client, context, reply, manner) =
            (client.clone(), context.clone(), reply.clone(), manner.clone());
        turns.spawn(async move {
            let subject = format!("bench.run.{taken}.completion");
            if let Manner::Claim(claim) = &manner {
                let claimed =
                    set(&context, format!("bench.run.{taken}.journal"), taken, 0, claim.clone()).await;
                set(&context, subject, taken, claimed, reply).await;
            } else {
                context.publish(subject, reply).await.expect("sent").await.expect("stored");
            }
            match manner {
                Manner::DoubleAck => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "this is what the worker is compared with"
                    )]
                    message.double_ack().await.expect("acknowledged");
                }
                Manner::Request | Manner::Claim(_) => {
                    let ack = message.reply.clone().expect("an acknowledgement subject");
                    client.request(ack, AckKind::Ack.into()).await.expect("acknowledged");
                }
            }
            drop(slot);
        });
        while turns.try_join_next().is_some() {}
    }
    while turns.join_next().await.is_some() {}
}

/// Publishes if the run's last message is the one with this number; gives the number of the new one.
async fn set(context: &Context, subject: String, run: usize, last: u64, body: Bytes) -> u64 {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED_SEQUENCE, last.to_string());
    headers.insert(EXPECTED_SUBJECT, format!("bench.run.{run}.*"));
    let sent = context.publish_with_headers(subject, headers, body).await.expect("sent");
    sent.await.expect("stored").sequence
}
