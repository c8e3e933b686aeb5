//! Streams that lose messages, such as those that are restored from an older backup: what the store has is
//! sent again, and nothing else is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::message::StreamMessage;
use sea_orm::{ConnectionTrait, Database, DatabaseConnection};
use serde_json::{Value, json};
use subjects::streams;
use testkit::{TestClock, eventually};

use super::support::World;

/// A world whose gateway has the time of NATS until the test moves it on, and looks for what is lost when the
/// test says so.
struct Lossy {
    world: World,
    clock: TestClock,
    started: i64,
}

impl Lossy {
    async fn new() -> Self {
        let (clock, started) = now();
        Self { world: World::with(&[], &[clock.variable()]).await, clock, started }.with_streams().await
    }

    async fn on_postgres() -> Self {
        let (clock, started) = now();
        Self { world: World::on_postgres_with(&[clock.variable()]).await, clock, started }
            .with_streams()
            .await
    }

    /// The queue of handoffs recognises no copies: one that is published twice is there twice.
    async fn with_streams(self) -> Self {
        self.world.create_handoff_streams().await;
        let queue = self.world.jetstream.get_stream(streams::HANDOFFS).await.expect("the queue");
        let mut config = queue.cached_info().config.clone();
        config.duplicate_window = Duration::from_millis(100);
        self.world.jetstream.update_stream(config).await.expect("updated");
        self
    }

    /// Has a new gateway look, so many minutes after the start: it looks at once, and then every minute.
    async fn look_after(&mut self, minutes: i64) {
        self.clock.set_micros(self.started + minutes * 60 * 1_000_000);
        self.world.gateway.start_again().await;
    }

    /// Has the gateway note that all handoffs were published.
    async fn note_published_after(&mut self, minutes: i64) {
        self.world.until_all_sent().await;
        self.look_after(minutes).await;
        let store = Database::connect(&self.world.store_url).await.expect("the store opens");
        eventually("the handoffs are noted as published", async || {
            (count(&store, "SELECT COUNT(*) AS n FROM workflow_handoff WHERE sent_at IS NULL").await == 0)
                .then_some(())
        })
        .await;
        store.close().await.expect("closed");
    }

    /// Begins a handoff. Returns its id.
    async fn begin(&self, task: &str, epoch: i64, key: &str, kind: &str) -> String {
        let begun = self.world.runs("workflow.handoff", call(task, epoch, key, kind)).await;
        let id = begun["handoff_id"].as_str().expect("an id").to_owned();
        self.world.published(kind, &id).await;
        id
    }

    /// Deletes a message from a queue.
    async fn lose(&self, queue: &str, message_id: &str) {
        let found = self.messages(queue, message_id).await;
        let queue = self.world.jetstream.get_stream(queue).await.expect("the queue");
        for message in found {
            queue.delete_message(message.sequence).await.expect("deleted");
        }
    }

    async fn messages(&self, queue: &str, message_id: &str) -> Vec<StreamMessage> {
        let all = broker::read_batch(&self.world.jetstream, queue, ">", 1, 1_000).await.expect("read");
        let is_it = |message: &StreamMessage| {
            message.headers.get("Nats-Msg-Id").is_some_and(|id| id.as_str() == message_id)
        };
        all.into_iter().filter(is_it).collect()
    }

    async fn copies(&self, id: &str) -> usize {
        self.messages(streams::HANDOFFS, id).await.len()
    }

    /// How many handoffs were found lost, by each look that found some. A look ends with its line.
    async fn until_looked(&self, found: &[u64]) {
        eventually(&format!("the looks find {found:?}"), async || {
            let log = self.world.gateway.log();
            let lines = log.lines().filter(|line| line.contains("Lost handoffs sent again."));
            let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let counts: Vec<u64> = lines.filter_map(|line| line["count"].as_u64()).collect();
            (counts == found).then_some(())
        })
        .await;
    }
}

fn now() -> (TestClock, i64) {
    let clock = TestClock::at("2026-01-01T00:00:00Z");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_micros();
    let now = i64::try_from(now).expect("a time of our days");
    clock.set_micros(now);
    (clock, now)
}

async fn count(store: &DatabaseConnection, query: &str) -> i64 {
    let row = store.query_one_raw(sea_orm::Statement::from_string(store.get_database_backend(), query));
    row.await.expect("counted").expect("a row").try_get("", "n").expect("a number")
}

fn call(task: &str, epoch: i64, key: &str, kind: &str) -> Value {
    let payload = match kind {
        "plan" => json!({ "goal": "build it", "acceptance_criteria": ["it runs"] }),
        _ => json!({ "messages": [{ "role": "user", "content": key }] }),
    };
    json!({ "task_id": task, "epoch": epoch, "key": key, "kind": kind, "payload": payload })
}

/// The workflow gets the answer to a handoff that the stream lost: the same one, under the same id and lease,
/// which a manager can use also if it had expired.
async fn lost_handoff_is_published_again(mut lossy: Lossy) {
    let (task, epoch) = lossy.world.taken("build").await;
    let id = lossy.begin(&task, epoch, "k", "chat").await;
    let before = lossy.world.published("chat", &id).await;
    lossy.note_published_after(0).await;
    lossy.lose(streams::HANDOFFS, &id).await;
    // Its lease has expired, and so has that of the runner.
    lossy.look_after(20).await;
    lossy.until_looked(&[1]).await;
    let again = lossy.world.published("chat", &id).await;
    assert_eq!(again.payload, before.payload);
    let header = |message: &StreamMessage, name: &str| message.headers.get(name).map(ToString::to_string);
    assert_eq!(header(&again, "traceparent"), header(&before, "traceparent"));
    let lease = header(&again, "Cynode-Lease").expect("a lease");
    let world = &lossy.world;
    let read = json!({ "task_id": task });
    let read = world.gateway.call_under(&world.manager, Some(&lease), "db.task.get", read).await;
    assert!(!read.expect("a reply").is_error);
    let leases = world.gateway.must("GET", "/api/v1/leases", None).await;
    let of_it = leases.as_array().expect("leases").iter().filter(|lease| lease["handoff_id"] == *id).count();
    assert_eq!(of_it, 1, "giving it up or cancelling it ends what every copy may do");

    lossy.world.answer("chat", &id, "done").await;
    let epoch = lossy.world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let joined = lossy.world.runs("workflow.handoff", call(&task, epoch, "k", "chat")).await;
    assert_eq!(
        (&joined["handoff_id"], &joined["began"], &joined["answer"]["message"]["content"]),
        (&json!(id), &json!(false), &json!("done"))
    );
    // What was answered is forgotten: it is not published a third time.
    lossy.lose(streams::HANDOFFS, &id).await;
    let next = lossy.begin(&task, epoch, "next", "chat").await;
    lossy.lose(streams::HANDOFFS, &next).await;
    lossy.note_published_after(21).await;
    lossy.look_after(60).await;
    lossy.until_looked(&[1, 1]).await;
    lossy.world.published("chat", &next).await;
    assert_eq!((lossy.copies(&id).await, lossy.copies(&next).await), (0, 1));
}

/// Of all handoffs of a queue that is empty, only those are published again that somebody waits for. An
/// answer that the streams have is stored, also if no runner asks for it.
async fn only_open_handoffs_are_published_again(mut lossy: Lossy) {
    let (task, epoch) = lossy.world.taken("build").await;
    let (other, other_epoch) = lossy.world.taken("another").await;
    let answered = lossy.begin(&task, epoch, "answered", "plan").await;
    let given_up = lossy.begin(&task, epoch, "given-up", "chat").await;
    let cancelled = lossy.begin(&other, other_epoch, "cancelled", "chat").await;
    let open = lossy.begin(&task, epoch, "open", "chat").await;
    lossy.note_published_after(0).await;
    let mut gives_up = call(&task, epoch, "given-up", "chat");
    gives_up["give_up"] = json!(true);
    lossy.world.runs("workflow.handoff", gives_up).await;
    lossy.world.ok("workflow.cancel", json!({ "task_id": other })).await;
    lossy.world.answer("plan", &answered, "planned").await;
    let queue = lossy.world.jetstream.get_stream(streams::HANDOFFS).await.expect("the queue");
    lossy.world.nats.lose_stream(queue.cached_info().config.clone()).await;
    lossy.look_after(6).await;
    lossy.until_looked(&[1]).await;
    lossy.world.published("chat", &open).await;
    let copies = [&open, &answered, &given_up, &cancelled];
    for (id, expected) in copies.into_iter().zip([1, 0, 0, 0]) {
        assert_eq!(lossy.copies(id).await, expected, "{id}");
    }
    let effects = lossy.world.get(&task).await["effects"].clone();
    let outcome = |id: &str| effects.as_array().expect("effects").iter().find(|it| it["id"] == *id).cloned();
    assert_eq!(outcome(&answered).expect("it")["outcome"], "completed", "{effects}");
    assert!(outcome(&open).expect("it").get("outcome").is_none(), "{effects}");
}

/// A handoff that the queue has is not doubled, also if a newer one of another kind is lost meanwhile.
#[tokio::test]
async fn handoff_that_waits_is_not_doubled_and_hides_no_loss_of_another_kind() {
    let mut lossy = Lossy::new().await;
    let (task, epoch) = lossy.world.taken("build").await;
    let waits = lossy.begin(&task, epoch, "waits", "chat").await;
    let lost = lossy.begin(&task, epoch, "lost", "plan").await;
    lossy.note_published_after(0).await;
    lossy.lose(streams::HANDOFFS, &lost).await;
    lossy.look_after(6).await;
    lossy.until_looked(&[1]).await;
    lossy.world.published("plan", &lost).await;
    assert_eq!((lossy.copies(&waits).await, lossy.copies(&lost).await), (1, 1));
    // Within five minutes nothing is published again.
    lossy.note_published_after(7).await;
    lossy.look_after(8).await;
    assert_eq!((lossy.copies(&waits).await, lossy.copies(&lost).await), (1, 1));
}

/// A handoff whose lease an administrator revoked is not published again: no manager could work on it.
#[tokio::test]
async fn lost_handoff_whose_lease_was_revoked_is_not_published_again() {
    let mut lossy = Lossy::new().await;
    let (task, epoch) = lossy.world.taken("build").await;
    let (revoked, open) =
        (lossy.begin(&task, epoch, "revoked", "chat").await, lossy.begin(&task, epoch, "open", "chat").await);
    lossy.note_published_after(0).await;
    let leases = lossy.world.gateway.must("GET", "/api/v1/leases", None).await;
    let leases = leases.as_array().expect("leases");
    let lease = leases.iter().find(|it| it["handoff_id"] == *revoked).expect("a lease");
    let path = format!("/api/v1/leases/{}", lease["id"].as_str().expect("an id"));
    lossy.world.gateway.must("DELETE", &path, None).await;
    for id in [&revoked, &open] {
        lossy.lose(streams::HANDOFFS, id).await;
    }
    lossy.look_after(6).await;
    lossy.until_looked(&[1]).await;
    lossy.world.published("chat", &open).await;
    assert_eq!((lossy.copies(&revoked).await, lossy.copies(&open).await), (0, 1));
}

/// A workflow that the queue lost is queued again although others wait there, and although the queue has a
/// message of one of its earlier runs.
#[tokio::test]
async fn lost_workflow_is_queued_again_although_the_queue_is_not_empty() {
    let mut lossy = Lossy::new().await;
    let waits = lossy.world.started("waits").await;
    let lost = lossy.world.started("lost").await;
    let (retried, epoch) = lossy.world.taken("retried").await;
    lossy.world.release(&retried, epoch, json!({ "failed": { "error": "no disk" } })).await;
    lossy.world.ok("workflow.retry", json!({ "task_id": retried })).await;
    lossy.world.until_sent(&waits, &[1]).await;
    lossy.world.until_sent(&retried, &[1, 2]).await;
    for (task, run) in [(&lost, 1), (&retried, 2)] {
        lossy.lose(streams::WORKFLOWS, &format!("{task}.{run}")).await;
    }
    lossy.look_after(4).await;
    lossy.look_after(6).await;
    lossy.world.until_sent(&lost, &[2]).await;
    lossy.world.until_sent(&retried, &[1, 3]).await;
    assert_eq!(lossy.world.sent(&waits).await, [1]);
    assert_eq!(lossy.world.acquire(&lost, 2).await["workflow"]["status"], "running");
    assert_eq!(lossy.world.acquire(&waits, 1).await["workflow"]["status"], "running");
}

mod sqlite {
    use super::Lossy;

    #[tokio::test]
    async fn lost_handoff_is_published_again() {
        super::lost_handoff_is_published_again(Lossy::new().await).await;
    }

    #[tokio::test]
    async fn only_open_handoffs_are_published_again() {
        super::only_open_handoffs_are_published_again(Lossy::new().await).await;
    }
}

mod postgres {
    use super::Lossy;

    #[tokio::test]
    async fn lost_handoff_is_published_again() {
        super::lost_handoff_is_published_again(Lossy::on_postgres().await).await;
    }

    #[tokio::test]
    async fn only_open_handoffs_are_published_again() {
        super::only_open_handoffs_are_published_again(Lossy::on_postgres().await).await;
    }
}
