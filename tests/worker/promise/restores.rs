//! The stream of runs is restored from an older backup while a worker lives.

use std::time::Duration;

use subjects::{
    HandoffId, Kind, Status,
    journal::{Entry, Record},
    streams,
};
use testkit::{Errands, Nats, Orchestrator, eventually};

fn count(journal: &[Entry], is_wanted: impl Fn(&Record) -> bool) -> usize {
    journal.iter().flat_map(|entry| &entry.records).filter(|record| is_wanted(record)).count()
}

fn is_effect(record: &Record) -> bool {
    matches!(record, Record::ToolResult(result) if result.call.tool == "db.task.create")
}

/// Waits until the journal holds the results of so many effects.
async fn wait_for_results(nats: &Nats, id: HandoffId, results: usize) {
    let orchestrator = Orchestrator::connect(nats).await;
    eventually("the results to be stored", async || {
        let journal = orchestrator.journal(id).await;
        (count(&journal, is_effect) >= results).then_some(())
    })
    .await;
}

/// The stream is restored to a moment after the claim. The worker that lives writes the rest of the journal
/// again: no turn is paid again, no effect happens again, and nothing is in the journal twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rest_of_a_restored_journal_is_written_again_by_its_worker() {
    for turns in 1..Errands::TURNS {
        let mut nats = Nats::start();
        let errands = Errands::start(|| Duration::ZERO).await;
        errands.hold_after(0);
        let worker = errands.worker(&nats).start().await;
        let id = Orchestrator::connect(&nats).await.publish(&Errands::handoff("x1")).await;
        eventually("the first turn", async || (errands.asked("x1")[0] == 1).then_some(())).await;
        let backup = nats.back_up(streams::RUNS);
        errands.hold_after(turns);
        eventually("the next turn", async || (errands.asked("x1")[turns] == 1).then_some(())).await;
        wait_for_results(&nats, id, 2 * turns).await;

        nats.restore(streams::RUNS, &backup);
        let orchestrator = Orchestrator::connect(&nats).await;
        let restored = orchestrator.journal(id).await;
        assert_eq!(count(&restored, |record| matches!(record, Record::Claimed(_))), 1);
        assert_eq!(count(&restored, |record| matches!(record, Record::ModelTurn(_))), 0);
        errands.release();
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!((answer.status, answer.attempts), (Status::Completed, 1), "{turns}: {}", worker.log());
        assert_eq!(errands.asked("x1"), [1, 1, 1], "{turns}: each turn was paid once");
        let effects = errands.effects().await;
        assert_eq!(effects.len(), Errands::EFFECTS, "{turns}: {effects:?}");
        assert!(effects.values().all(|count| *count == 1), "{turns}: {effects:?}");
        let journal = orchestrator.journal(id).await;
        assert_eq!(journal[..restored.len()], restored);
        // The last turn needs no entry.
        assert_eq!(count(&journal, |record| matches!(record, Record::ModelTurn(_))), Errands::TURNS - 1);
        assert_eq!(count(&journal, is_effect), Errands::EFFECTS, "{turns}: {journal:?}");
        assert_eq!(orchestrator.answers().await.len(), 1);
    }
}
