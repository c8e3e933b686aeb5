//! Against a real server: an append that is dropped halfway is not lost.

use std::{sync::Arc, time::Duration};

use broker::{Auth, Broker, Options, Provision, Tls};
use futures_util::FutureExt;
use intake::Gate;
use protocol::Holder;
use subjects::{
    HandoffId, Kind, Role, Subject,
    journal::{Entry, Record, Returned, ToolOutcome},
    streams::{self, Layout},
};
use testkit::Nats;

use super::{Claim, Claimant, Journal, claim};
use crate::{
    storage::Storage,
    telemetry::{Blocker, Breaker, Health},
};

async fn connected(nats: &Nats) -> Storage {
    let options = Options {
        url: nats.url(),
        name: "test".to_owned(),
        auth: Auth::None,
        tls: Tls::default(),
        inbox_prefix: None,
        layout: Layout::default(),
    };
    let broker = broker::connect(&options).await.unwrap();
    let sizing = streams::Sizing {
        replicas: 1,
        ack_wait: Duration::from_secs(30),
        dedupe_window: Duration::from_secs(120),
    };
    broker::provision(&broker, Provision::Create, Role::ProjectManager, sizing).await.unwrap();
    let (breakers, _) = Gate::new();
    let breaker = Breaker::new(Blocker::Storage, breakers, Arc::new(Health::starting()));
    Storage::new(Arc::new(broker), breaker, Duration::MAX)
}

async fn claimed(storage: &Storage) -> Arc<Journal> {
    let claimant = Claimant {
        kind: Kind::Chat,
        id: HandoffId::now(),
        instance: &"test".parse().unwrap(),
        holder: Holder { message: 1, delivery: 1 },
        origin: None,
        work: None,
        replays: &[],
        ack_wait: Duration::from_secs(30),
        max_attempts: 5,
    };
    match claim(storage, claimant, false).await.unwrap() {
        Claim::Ours(journal) => journal,
        other => panic!("{other:?}"),
    }
}

fn note(journal: &Journal, number: u32) {
    let call = journal.begin_call("db.task.create", &number.to_string(), false);
    let returned =
        Returned { text: number.to_string(), structured: None, failed: false, truncated: false, tries: 1 };
    journal.record_result(call, ToolOutcome::Returned(returned), 1, true);
}

/// Returns the texts of the tool results in the stored journal, in order.
async fn stored(broker: &Broker, journal: &Journal) -> Vec<String> {
    let subject = Subject::Journal(Role::ProjectManager, journal.handoff());
    let last = journal.close().await.unwrap();
    let entries = broker::all_on(&broker.jetstream, streams::RUNS, &subject, last).await.unwrap();
    let records = entries.iter().flat_map(|(_, body)| Entry::decode(body).unwrap().records);
    let results = records.filter_map(|record| match record {
        Record::ToolResult(result) => Some(result.outcome),
        _ => None,
    });
    results
        .map(|outcome| match outcome {
            ToolOutcome::Returned(returned) => returned.text,
            rejected @ ToolOutcome::Rejected { .. } => panic!("{rejected:?}"),
        })
        .collect()
}

#[tokio::test]
async fn records_of_a_dropped_write_are_stored_by_the_next_one() {
    let nats = Nats::start();
    let storage = connected(&nats).await;
    let journal = claimed(&storage).await;
    note(&journal, 0);
    // Sent and perhaps stored, but the confirmation is dropped.
    assert_eq!(journal.write().now_or_never(), None);
    assert_eq!(journal.state().pending.len(), 1, "to be written still");
    note(&journal, 1);
    journal.write_if_costly().await;
    let mut stored = stored(&storage.streams.broker, &journal).await;
    // The records may be stored twice, which is harmless.
    stored.dedup();
    assert_eq!(stored, ["0", "1"]);
}
