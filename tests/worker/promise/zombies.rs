//! A worker that lost its handoff while it was frozen calls no model.

use std::time::Duration;

use subjects::{Kind, Status};
use testkit::{Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, eventually};

/// One slot: the next handoff starts when the one before it is dropped.
fn settings(nats: &Nats, model: &Model) -> WorkerBuilder {
    Worker::manager(nats)
        .asking(model)
        .set("agent.assess_input", "false")
        .set("inference.patience", "60s")
        .set("worker.ack_wait", "1s")
        .set("worker.concurrency.chat", "1")
}

/// A worker that was frozen between two tries of a failing model, and whose handoff another worker has
/// answered meanwhile.
struct Haunted {
    nats: Nats,
    orchestrator: Orchestrator,
    zombie: Worker,
    model: Model,
    tries: usize,
}

impl Haunted {
    async fn start() -> Self {
        let nats = Nats::start();
        let (model, there) =
            (Model::start([Script::say("mine")]).await, Model::start([Script::say("ours")]).await);
        model.fail_with(Some(503));
        let zombie = settings(&nats, &model).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let id = orchestrator.publish(&chat("haunted")).await;
        eventually("a failed try", async || (model.turns().len() >= 2).then_some(())).await;
        zombie.process.freeze();
        let mut other = settings(&nats, &there).start().await;
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!((answer.status, answer.attempts), (Status::Completed, 2));
        orchestrator.wait_until_settled().await;
        other.process.kill();
        let tries = model.turns().len();
        model.fail_with(None);
        Self { nats, orchestrator, zombie, model, tries }
    }

    /// Publishes another handoff. Once that is answered, the frozen worker has dropped the first one.
    async fn settle(&self) {
        let next = self.orchestrator.publish(&chat("next")).await;
        assert_eq!(
            self.orchestrator.completion(Kind::Chat, next).await.status,
            Status::Completed,
            "{}",
            self.zombie.log()
        );
        let turns = self.model.turns();
        let asked_late = turns.get(self.tries..).unwrap_or_default();
        assert!(
            asked_late
                .iter()
                .all(|asked| asked.messages().iter().all(|it| !it.to_string().contains("haunted"))),
            "the frozen worker called the model again"
        );
        assert_eq!(asked_late.len(), 1, "only the turn of the next handoff");
        assert_eq!(self.orchestrator.answers().await.len(), 2, "one answer per handoff");
    }
}

/// A worker that resumes between two tries confirms its ownership before it calls the model again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_worker_does_not_retry_the_model_after_losing_its_claim() {
    let haunted = Haunted::start().await;
    haunted.zombie.process.thaw();
    haunted.settle().await;
}

/// Without the server's confirmation, the worker makes no model call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_worker_does_not_retry_the_model_while_nats_is_silent() {
    let haunted = Haunted::start().await;
    haunted.nats.process().freeze();
    haunted.zombie.process.thaw();
    eventually("the frozen worker to run again", async || {
        (haunted.zombie.get("/healthz").await.0 == 200).then_some(())
    })
    .await;
    // Its next try is overdue, so it would happen at once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        haunted.model.turns().len(),
        haunted.tries,
        "the model was called without confirmed ownership"
    );
    haunted.nats.process().thaw();
    haunted.settle().await;
}
