//! The bare loop, as the upper bound of what NATS and its client allow: pull, publish a reply, await its
//! PubAck, confirm the acknowledgement; optionally with a claim first.

use std::sync::Arc;

use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::PullConsumer, context::Context},
};
use bytes::Bytes;
use futures_util::StreamExt;
use subjects::headers::{EXPECTED_SEQUENCE, EXPECTED_SUBJECT};
use tokio::{sync::Semaphore, task::JoinSet};

/// How the loop processes a message.
#[derive(Clone, Debug)]
pub(crate) enum AckMode {
    /// Acknowledges with the client's `double_ack`, which creates a subscription for each message.
    DoubleAck,
    /// Acknowledges with a request to the acknowledgement subject, which is cheaper. The worker does this.
    Request,
    /// Like `Request`, but first writes a claim with these bytes. Claim and reply are written under a
    /// compare-and-set, as in the worker.
    Claim(Bytes),
}

/// Processes `count` messages of a consumer, `in_flight` at a time.
pub(crate) async fn drain(
    client: async_nats::Client,
    consumer: PullConsumer,
    count: usize,
    in_flight: usize,
    reply: Bytes,
    mode: AckMode,
) {
    let context = jetstream::new(client.clone());
    let slots = Arc::new(Semaphore::new(in_flight));
    let mut messages =
        consumer.stream().max_messages_per_batch(in_flight).messages().await.expect("a stream of messages");
    let mut turns = JoinSet::new();
    for taken in 0..count {
        let message = messages.next().await.expect("a message").expect("no error");
        let slot = Arc::clone(&slots).acquire_owned().await.expect("open");
        let (client, context, reply, mode) = (client.clone(), context.clone(), reply.clone(), mode.clone());
        turns.spawn(async move {
            let subject = format!("bench.run.{taken}.completion");
            if let AckMode::Claim(claim) = &mode {
                let claimed =
                    set(&context, format!("bench.run.{taken}.journal"), taken, 0, claim.clone()).await;
                set(&context, subject, taken, claimed, reply).await;
            } else {
                context.publish(subject, reply).await.expect("sent").await.expect("stored");
            }
            match mode {
                AckMode::DoubleAck => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "this is what the worker is compared with"
                    )]
                    message.double_ack().await.expect("acknowledged");
                }
                AckMode::Request | AckMode::Claim(_) => {
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

/// Publishes under the condition that the last message of the run has the sequence `last`. Returns the new
/// sequence.
async fn set(context: &Context, subject: String, run: usize, last: u64, body: Bytes) -> u64 {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED_SEQUENCE, last.to_string());
    headers.insert(EXPECTED_SUBJECT, format!("bench.run.{run}.*"));
    let sent = context.publish_with_headers(subject, headers, body).await.expect("sent");
    sent.await.expect("stored").sequence
}
