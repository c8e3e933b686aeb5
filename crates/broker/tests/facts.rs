//! What the design leans on, or guards against, in nats-server and its client. A new version of either that changes one
//! of these facts should be noticed here first.

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind, consumer::pull, stream},
};
use broker::{AckError, Expect, PublishError, Unheard};
use futures_util::StreamExt;
use subjects::{HandoffId, Pattern, Role, Subject};
use testkit::{Nats, eventually};

async fn queue(nats: &Nats, config: pull::Config) -> (jetstream::Context, jetstream::consumer::PullConsumer) {
    let jetstream = jetstream::new(nats.client().await);
    let config_of_stream = stream::Config {
        name: "QUEUE".into(),
        subjects: vec!["queue".into()],
        retention: stream::RetentionPolicy::WorkQueue,
        ..Default::default()
    };
    let stream = jetstream.create_stream(config_of_stream).await.unwrap();
    let consumer =
        stream.create_consumer(pull::Config { durable_name: Some("it".into()), ..config }).await.unwrap();
    (jetstream, consumer)
}

async fn stored(jetstream: &jetstream::Context) -> u64 {
    jetstream.get_stream("QUEUE").await.unwrap().cached_info().state.messages
}

async fn now(jetstream: &jetstream::Context) -> jetstream::consumer::Info {
    jetstream.get_stream_no_info("QUEUE").await.unwrap().consumer_info("it").await.unwrap()
}

/// `messages()` takes far more than is asked of it, and their time runs. So requests are made one by one, for as many as
/// there are free slots.
#[tokio::test]
async fn the_clients_own_stream_takes_more_than_it_is_asked_for() {
    let nats = Nats::start();
    let (jetstream, mut consumer) = queue(&nats, pull::Config::default()).await;
    for _ in 0..50 {
        jetstream.publish("queue", "x".into()).await.unwrap().await.unwrap();
    }
    let mut messages = consumer.messages().await.unwrap();
    messages.next().await.unwrap().unwrap();
    assert!(consumer.info().await.unwrap().num_ack_pending > 1);
}

/// An acknowledgement acts on the message, whoever sends it: a zombie's late one removes it under its new owner. So the
/// answer is fenced, and nothing is acknowledged that another may own.
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
    eventually("the message to be gone", async || (stored(&jetstream).await == 0).then_some(())).await;
}

/// The client takes "nobody is there" for a confirmation; ours does not.
#[tokio::test]
async fn a_confirmation_must_come_from_the_server() {
    let nats = Nats::start();
    let client = nats.client().await;
    let message = async_nats::Message {
        subject: "queue".into(),
        reply: Some("nobody.is.there".into()),
        payload: "x".into(),
        headers: None,
        status: None,
        description: None,
        length: 1,
    };
    let message = jetstream::Message { message, context: jetstream::new(client.clone()) };
    #[expect(clippy::disallowed_methods, reason = "this is the fact")]
    let theirs = message.double_ack().await;
    assert!(theirs.is_ok(), "the client has learned to look at the status: `confirm` may go");
    let ours =
        broker::confirm(&client, &"nobody.is.there".into(), AckKind::Ack.into(), Duration::from_secs(1))
            .await;
    assert!(matches!(ours, Err(AckError::Unheard(_))), "{ours:?}");
}

/// The compare-and-set over a wildcard lets one answer in, whatever subject under it was written first, and is heard as a
/// conflict; a stream that is not there is heard as silence.
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
    let silence = publish(&subject, &expect(0)).await.unwrap_err();
    assert!(matches!(silence, PublishError::Unheard(_)) && silence.may_pass(), "{silence:?}");

    let sizing = subjects::streams::Sizing {
        replicas: 1,
        ack_wait: Duration::from_secs(30),
        dedupe_window: subjects::streams::DEDUPE_WINDOW,
    };
    for config in subjects::streams::Layout::Shared.all(sizing) {
        jetstream.create_stream(config).await.unwrap();
    }
    let journal = publish(&Subject::Journal(Role::ProjectManager, id), &expect(0)).await.unwrap();
    let conflict = publish(&subject, &expect(0)).await.unwrap_err();
    assert!(matches!(conflict, PublishError::Conflict { unheard_before: false }), "{conflict:?}");
    publish(&subject, &expect(journal.sequence)).await.unwrap();
    let conflict = publish(&subject, &expect(journal.sequence)).await.unwrap_err();
    assert!(matches!(conflict, PublishError::Conflict { .. }), "{conflict:?}");
}

/// Someone else who answers on a subject has not stored anything, whatever he says.
#[tokio::test]
async fn only_a_sequence_means_stored() {
    let nats = Nats::start();
    let client = nats.client().await;
    let subject = Subject::Completion(HandoffId::now());
    // Over the same connection, so that the server knows of it before the first message comes.
    let mut heard = client.subscribe(subject.to_string()).await.unwrap();
    for said in ["", "{}", "+OK", r#"{"stream":"RUNS"}"#] {
        let answering = async {
            let message = heard.next().await.unwrap();
            client.publish(message.reply.unwrap(), said.into()).await.unwrap();
        };
        let publishing = broker::publish(&client, &subject, HeaderMap::new(), "x".into(), None);
        let (published, ()) = tokio::join!(publishing, answering);
        let error = published.unwrap_err();
        assert!(matches!(error, PublishError::Unheard(Unheard::Unreadable)), "{said}: {error:?}");
    }
}

/// Eight at once for one answer, many times: one winner each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_contenders_one_wins() {
    let nats = Nats::start();
    let client = nats.client().await;
    let jetstream = jetstream::new(client.clone());
    let sizing = subjects::streams::Sizing {
        replicas: 1,
        ack_wait: Duration::from_secs(30),
        dedupe_window: subjects::streams::DEDUPE_WINDOW,
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

/// A message at its delivery limit stays stored, waits for nothing, and on a quiet queue does not move the
/// acknowledgement floor. The sweeper knows it by that.
#[tokio::test]
async fn an_exhausted_message_stays_and_the_floor_does_not_move() {
    let nats = Nats::start();
    let config = pull::Config { ack_wait: Duration::from_millis(200), max_deliver: 1, ..Default::default() };
    let (jetstream, consumer) = queue(&nats, config).await;
    jetstream.publish("queue", "x".into()).await.unwrap().await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    messages.next().await.unwrap().unwrap();
    eventually("the server to give up", async || {
        let info = now(&jetstream).await;
        (info.num_ack_pending == 0).then_some(())
    })
    .await;
    let info = now(&jetstream).await;
    assert_eq!((info.num_pending, info.ack_floor.stream_sequence, info.delivered.stream_sequence), (0, 0, 1));
    assert_eq!(stored(&jetstream).await, 1);
}
