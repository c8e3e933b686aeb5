//! Behaviour of nats-server and its client that the design relies on or guards against. A version of either
//! that changes one of these facts fails here first.

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::pull, stream},
};
use broker::{AckError, Expect, PublishError, Unconfirmed};
use futures_util::StreamExt;
use subjects::{HandoffId, Pattern, Role, Subject};
use testkit::{Nats, eventually};

async fn queue(nats: &Nats, config: pull::Config) -> (jetstream::Context, jetstream::consumer::PullConsumer) {
    let jetstream = jetstream::new(nats.client().await);
    let stream_config = stream::Config {
        name: "QUEUE".into(),
        subjects: vec!["queue".into()],
        retention: stream::RetentionPolicy::WorkQueue,
        ..Default::default()
    };
    let stream = jetstream.create_stream(stream_config).await.unwrap();
    let consumer =
        stream.create_consumer(pull::Config { durable_name: Some("it".into()), ..config }).await.unwrap();
    (jetstream, consumer)
}

async fn stored(jetstream: &jetstream::Context) -> u64 {
    jetstream.get_stream("QUEUE").await.unwrap().cached_info().state.messages
}

async fn consumer_info(jetstream: &jetstream::Context) -> jetstream::consumer::Info {
    jetstream.get_stream_no_info("QUEUE").await.unwrap().consumer_info("it").await.unwrap()
}

/// `messages()` pulls far more than the caller consumes, and their `ack_wait` runs. So workers send one-shot
/// pull requests for as many messages as they have free slots.
#[tokio::test]
async fn client_stream_pulls_more_messages_than_are_consumed() {
    let nats = Nats::start();
    let (jetstream, mut consumer) = queue(&nats, pull::Config::default()).await;
    for _ in 0..50 {
        jetstream.publish("queue", "x".into()).await.unwrap().await.unwrap();
    }
    let mut messages = consumer.messages().await.unwrap();
    messages.next().await.unwrap().unwrap();
    assert!(consumer.info().await.unwrap().num_ack_pending > 1);
}

/// An acknowledgement acts on the message regardless of its sender: a late one from a zombie removes the
/// message of the new owner. So the answer is fenced, and a worker never acknowledges what another may own.
#[tokio::test]
async fn acknowledgements_are_not_fenced() {
    let nats = Nats::start();
    let config = pull::Config { ack_wait: Duration::from_millis(200), ..Default::default() };
    let (jetstream, consumer) = queue(&nats, config).await;
    jetstream.publish("queue", "x".into()).await.unwrap().await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    let zombie = messages.next().await.unwrap().unwrap();
    let owner = messages.next().await.unwrap().unwrap();
    assert_eq!((zombie.info().unwrap().delivered, owner.info().unwrap().delivered), (1, 2));
    zombie.ack().await.unwrap();
    eventually("the message to be removed", async || (stored(&jetstream).await == 0).then_some(())).await;
}

/// The client takes "no responders" as a confirmation; `broker::confirm` does not.
#[tokio::test]
async fn a_confirmation_must_come_from_the_server() {
    let nats = Nats::start();
    let client = nats.client().await;
    let message = async_nats::Message {
        subject: "queue".into(),
        reply: Some("no.responder".into()),
        payload: "x".into(),
        headers: None,
        status: None,
        description: None,
        length: 1,
    };
    let message = jetstream::Message { message, context: jetstream::new(client.clone()) };
    #[expect(clippy::disallowed_methods, reason = "this is the fact")]
    let theirs = message.double_ack().await;
    assert!(theirs.is_ok(), "the client now checks the status: `confirm` can be removed");
    let ours =
        broker::confirm(&client, &"no.responder".into(), AckKind::Ack.into(), Duration::from_secs(1)).await;
    assert!(matches!(ours, Err(AckError::Unconfirmed(_))), "{ours:?}");
}

/// The compare-and-set over a wildcard accepts one answer, whichever subject under it was written first, and
/// reports a conflict; a missing stream is reported as an unconfirmed publish.
#[tokio::test]
async fn one_write_wins_under_a_wildcard() {
    let nats = Nats::start();
    let client = nats.client().await;
    let jetstream = jetstream::new(client.clone());
    let id = HandoffId::now();
    let subject = Subject::Completion(id);
    let expect = |sequence| Expect { over: Pattern::Run(Role::ProjectManager, id), sequence };
    let publish = async |subject: &Subject, expect: &Expect| {
        broker::publish(&client, subject, HeaderMap::new(), "x".into(), Some(expect)).await
    };
    let unconfirmed = publish(&subject, &expect(0)).await.unwrap_err();
    assert!(
        matches!(unconfirmed, PublishError::Unconfirmed(_)) && unconfirmed.is_transient(),
        "{unconfirmed:?}"
    );

    let sizing = subjects::streams::Sizing {
        replicas: 1,
        ack_wait: Duration::from_secs(30),
        dedupe_window: Duration::from_secs(120),
    };
    for config in subjects::streams::Layout::Shared.all(sizing) {
        jetstream.create_stream(config).await.unwrap();
    }
    let journal = publish(&Subject::Journal(Role::ProjectManager, id), &expect(0)).await.unwrap();
    let conflict = publish(&subject, &expect(0)).await.unwrap_err();
    assert!(matches!(conflict, PublishError::Conflict { after_unconfirmed: false }), "{conflict:?}");
    publish(&subject, &expect(journal.sequence)).await.unwrap();
    let conflict = publish(&subject, &expect(journal.sequence)).await.unwrap_err();
    assert!(matches!(conflict, PublishError::Conflict { .. }), "{conflict:?}");
}

/// A reply from another subscriber on the subject does not mean that the message was stored.
#[tokio::test]
async fn only_a_sequence_means_stored() {
    let nats = Nats::start();
    let client = nats.client().await;
    let subject = Subject::Completion(HandoffId::now());
    // On the same connection, so that the server has the subscription before the first publish.
    let mut received = client.subscribe(subject.to_string()).await.unwrap();
    for reply in ["", "{}", "+OK", r#"{"stream":"RUNS"}"#] {
        let answering = async {
            let message = received.next().await.unwrap();
            client.publish(message.reply.unwrap(), reply.into()).await.unwrap();
        };
        let publishing = broker::publish(&client, &subject, HeaderMap::new(), "x".into(), None);
        let (published, ()) = tokio::join!(publishing, answering);
        let error = published.unwrap_err();
        assert!(matches!(error, PublishError::Unconfirmed(Unconfirmed::Unreadable)), "{reply}: {error:?}");
    }
}

/// Eight concurrent writers of one answer, repeated: exactly one succeeds each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_many_concurrent_writers_succeeds() {
    let nats = Nats::start();
    let client = nats.client().await;
    let jetstream = jetstream::new(client.clone());
    let sizing = subjects::streams::Sizing {
        replicas: 1,
        ack_wait: Duration::from_secs(30),
        dedupe_window: Duration::from_secs(120),
    };
    for config in subjects::streams::Layout::Shared.all(sizing) {
        jetstream.create_stream(config).await.unwrap();
    }
    for _ in 0..100 {
        let id = HandoffId::now();
        let tries = (0..8).map(|_| async {
            let expect = Expect { over: Pattern::Run(Role::ProjectManager, id), sequence: 0 };
            broker::publish(&client, &Subject::Completion(id), HeaderMap::new(), "x".into(), Some(&expect))
                .await
                .is_ok()
        });
        let won = futures_util::future::join_all(tries).await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1);
    }
}

/// A message at its delivery limit stays stored, is neither pending nor in flight, and on a quiet queue does
/// not move the acknowledgement floor. The sweeper recognises it by that.
#[tokio::test]
async fn exhausted_message_stays_stored_and_the_ack_floor_does_not_move() {
    let nats = Nats::start();
    let config = pull::Config { ack_wait: Duration::from_millis(200), max_deliver: 1, ..Default::default() };
    let (jetstream, consumer) = queue(&nats, config).await;
    jetstream.publish("queue", "x".into()).await.unwrap().await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    messages.next().await.unwrap().unwrap();
    eventually("the server to give up", async || {
        let info = consumer_info(&jetstream).await;
        (info.num_ack_pending == 0).then_some(())
    })
    .await;
    let info = consumer_info(&jetstream).await;
    assert_eq!((info.num_pending, info.ack_floor.stream_sequence, info.delivered.stream_sequence), (0, 0, 1));
    assert_eq!(stored(&jetstream).await, 1);
}
