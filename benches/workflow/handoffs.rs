//! Listens to handoffs and their answers on NATS, and thereby knows when managers were at work.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{Message, header::NATS_MESSAGE_ID};
use futures_util::StreamExt;
use subjects::streams;
use time::OffsetDateTime;
use tokio::{sync::mpsc, task::JoinSet};

use super::stage::Stage;

const TIMEOUT: Duration = Duration::from_secs(120);

/// When a handoff was published and when it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) began: OffsetDateTime,
    pub(crate) ended: OffsetDateTime,
}

type Times = Arc<Mutex<HashMap<String, OffsetDateTime>>>;

#[derive(Debug)]
pub(crate) struct Listener {
    published: Times,
    answered: Times,
    acks: mpsc::UnboundedReceiver<()>,
    _listening: JoinSet<()>,
}

impl Listener {
    pub(crate) async fn start(stage: &Stage) -> Self {
        let client = stage.nats.client().await;
        let (published, answered) = (Times::default(), Times::default());
        let (ack, acks) = mpsc::unbounded_channel();
        let mut handoffs = client.subscribe("pma.handoff.*").await.expect("subscribed");
        let mut answers = client.subscribe("pma.run.*.completion").await.expect("subscribed");
        let settled = format!("$JS.ACK.{}.>", streams::WORKFLOWS);
        let mut settled = client.subscribe(settled).await.expect("subscribed");
        client.flush().await.expect("flushed");
        let mut listening = JoinSet::new();
        let (began, ended) = (Arc::clone(&published), Arc::clone(&answered));
        listening.spawn(async move {
            while let Some(message) = handoffs.next().await {
                note(&began, id_of_handoff(&message));
            }
        });
        listening.spawn(async move {
            while let Some(message) = answers.next().await {
                note(&ended, message.subject.split('.').nth(2).unwrap_or_default().to_owned());
            }
        });
        listening.spawn(async move {
            while let Some(message) = settled.next().await {
                // Runners also tell that they still work on a message, or give it back.
                let is_ack = message.payload.is_empty() || &*message.payload == b"+ACK";
                if is_ack && ack.send(()).is_err() {
                    return;
                }
            }
        });
        Self { published, answered, acks, _listening: listening }
    }

    /// Waits until the runner removes the message of a workflow, which it does last.
    pub(crate) async fn wait_for_ack(&mut self) {
        let acked = tokio::time::timeout(TIMEOUT, self.acks.recv()).await;
        acked.expect("the workflow ends").expect("the listener runs");
    }

    /// Returns when a handoff was at work.
    pub(crate) fn interval(&self, id: &str) -> Interval {
        let heard = |times: &Times| *times.lock().unwrap().get(id).expect("the handoff was heard");
        Interval { began: heard(&self.published), ended: heard(&self.answered) }
    }
}

fn id_of_handoff(message: &Message) -> String {
    let headers = message.headers.as_ref().expect("the outbox sets headers");
    headers.get(NATS_MESSAGE_ID).expect("its id").as_str().to_owned()
}

fn note(times: &Times, id: String) {
    times.lock().unwrap().entry(id).or_insert_with(OffsetDateTime::now_utc);
}
