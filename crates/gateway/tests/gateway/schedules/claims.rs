//! Several callers at two gateways claim the same slots.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{GatewayProcess, Postgres, TestClock};

use super::support::{Caller, orchestrator, prompt};

const SCHEDULES: usize = 24;
const CALLERS: usize = 8;
const SECONDS: usize = 12;

/// Starts two gateways with one clock on one database.
pub(super) async fn two_gateways(postgres: &Postgres, clock: &TestClock) -> Vec<GatewayProcess> {
    let url = postgres.database();
    let settings = [("store.url", url.as_str()), ("store.max_connections", "4"), ("store.patience", "30s")];
    let variables = [clock.variable()];
    join_all((0..2).map(|_| GatewayProcess::start_with_variables(&settings, &variables))).await
}

/// A second is a slot of every schedule, and all callers ask at once: each slot is given to one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_two_gateways_on_postgres_claim_each_slot_once() {
    let (postgres, clock) = (Postgres::start(), TestClock::at("2026-01-01T00:00:00Z"));
    let gateways = two_gateways(&postgres, &clock).await;
    let secret = orchestrator(&gateways[0]).await;
    let callers: Vec<Caller<'_>> = (0..CALLERS).map(|at| Caller::new(&gateways[at % 2], &secret)).collect();
    for number in 0..SCHEDULES {
        let new = prompt(&format!("s-{number}"), &json!({ "type": "interval", "every_seconds": 1 }));
        callers[number % CALLERS].must("create", json!({ "user_id": "ada", "new": new })).await;
    }
    let mut claimed: BTreeMap<String, usize> = BTreeMap::new();
    for second in 1..=SECONDS {
        clock.set(&format!("2026-01-01T00:00:{second:02}Z"));
        let runs = join_all(callers.iter().map(Caller::fire_all)).await.concat();
        for run in &runs {
            *claimed.entry(format!("{} {}", run["schedule_id"], run["slot"])).or_default() += 1;
        }
        // Another one may have been at work when a caller found nothing; in the end all is fired.
        let mut missing = SCHEDULES.saturating_sub(runs.len());
        while missing > 0 {
            let more = callers[0].fire_all().await;
            assert!(!more.is_empty(), "{missing} slots of second {second} were not fired");
            for run in &more {
                *claimed.entry(format!("{} {}", run["schedule_id"], run["slot"])).or_default() += 1;
            }
            missing = missing.saturating_sub(more.len());
        }
    }
    let twice: Vec<_> = claimed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(claimed.len(), SCHEDULES * SECONDS);
    for number in 0..SCHEDULES {
        let runs = callers[1].history("ada", &format!("s-{number}")).await;
        let states: Vec<&Value> = runs.iter().map(|run| &run["state"]).collect();
        assert_eq!(states, vec![&json!("pending"); SECONDS]);
    }
}
