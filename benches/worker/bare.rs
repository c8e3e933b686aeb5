//! What the broker and its client allow: pull, publish a reply, await its PubAck, confirm the ack. Nothing else.

use std::{sync::Arc, time::Instant};

use async_nats::jetstream::{self, AckKind, consumer::PullConsumer};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::{sync::Semaphore, task::JoinSet};

/// How the loop confirms an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirm {
    /// The client's own `double_ack`: a subscription for each.
    DoubleAck,
    /// A plain request to the acknowledgement subject: cheaper, and what the worker does.
    Request,
}

/// Empties a consumer with `in_flight` messages at once; gives messages per second.
pub(crate) async fn drain(
    client: async_nats::Client,
    consumer: PullConsumer,
    count: usize,
    in_flight: usize,
    reply: Bytes,
    confirm: Confirm,
) -> f64 {
    let context = jetstream::new(client.clone());
    let slots = Arc::new(Semaphore::new(in_flight));
    let mut messages =
        consumer.stream().max_messages_per_batch(in_flight).messages().await.expect("a stream of messages");
    let mut turns = JoinSet::new();
    let started = Instant::now();
    for taken in 0..count {
        let message = messages.next().await.expect("a message").expect("no error");
        let slot = Arc::clone(&slots).acquire_owned().await.expect("open");
        let (client, context, reply) = (client.clone(), context.clone(), reply.clone());
        turns.spawn(async move {
            let subject = format!("bench.reply.{taken}");
            context.publish(subject, reply).await.expect("sent").await.expect("stored");
            match confirm {
                Confirm::DoubleAck => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "this is what the worker is compared with"
                    )]
                    message.double_ack().await.expect("acknowledged");
                }
                Confirm::Request => {
                    let ack = message.reply.clone().expect("an acknowledgement subject");
                    client.request(ack, AckKind::Ack.into()).await.expect("acknowledged");
                }
            }
            drop(slot);
        });
        while turns.try_join_next().is_some() {}
    }
    while turns.join_next().await.is_some() {}
    count as f64 / started.elapsed().as_secs_f64()
}
