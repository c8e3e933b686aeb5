//! Two gateways on one PostgreSQL, and the same request at both at the same time.

use std::collections::{BTreeMap, BTreeSet};

use contract::{
    Page,
    thread::{BeginOutcome, BeginTurn, BegunTurn, EndedTurn, List, Thread},
};
use futures_util::future::join_all;
use serde_json::json;
use testkit::{GatewayProcess, Postgres};

use super::{Orchestrator, end, key_of, request};
use crate::instances::support::{assert_audit_is_whole, gateways};

const ROUNDS: usize = 12;
const EACH: usize = 4;

struct Pair {
    gateways: Vec<GatewayProcess>,
    orchestrators: Vec<Orchestrator>,
    key: String,
    _postgres: Postgres,
}

impl Pair {
    async fn start() -> Self {
        let postgres = Postgres::start();
        let gateways = gateways(2, &postgres.database(), &[]).await;
        let orchestrators = join_all(gateways.iter().map(Orchestrator::at)).await;
        let key = key_of(&gateways[0], "ada").await;
        Self { gateways, orchestrators, key, _postgres: postgres }
    }

    /// Makes requests at both gateways at the same time.
    async fn begin(&self, requests: &[BeginTurn]) -> Vec<BegunTurn> {
        let calls = requests.iter().enumerate().map(|(at, request)| self.orchestrators[at % 2].call(request));
        join_all(calls).await
    }

    async fn threads(&self) -> Vec<Thread> {
        let list = List { user_id: "ada".parse().unwrap(), limit: Some(200), cursor: None };
        let page: Page<Thread> = self.orchestrators[0].call(&list).await;
        page.items
    }
}

fn count(begun: &[BegunTurn]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for begun in begun {
        *found.entry(format!("{:?}", begun.outcome)).or_default() += 1;
    }
    found
}

fn outcomes(others: BeginOutcome) -> BTreeMap<String, usize> {
    [(format!("{:?}", BeginOutcome::Begun), 1), (format!("{others:?}"), 2 * EACH - 1)].into()
}

fn ids(begun: &[BegunTurn]) -> BTreeSet<String> {
    begun.iter().map(|begun| begun.turn.handoff_id.to_string()).collect()
}

/// The same named request: one begins, the others join it, whether it names a thread or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_begin_a_named_request_once() {
    let pair = Pair::start().await;
    for round in 0..ROUNDS {
        let thread = round.is_multiple_of(2).then(|| format!("thread-{round}"));
        let request_key = Some(format!("request-{round}"));
        let request = BeginTurn { thread, request_key, ..request("ada", &pair.key, "hello") };
        let begun = pair.begin(&vec![request; 2 * EACH]).await;
        assert_eq!(count(&begun), outcomes(BeginOutcome::Joined));
        assert_eq!(ids(&begun).len(), 1);
        assert!(begun.iter().all(|begun| begun.lease.is_some()));
        assert_eq!(pair.threads().await.len(), round + 1);
    }
    assert_audit_is_whole(&pair.gateways[1]).await;
}

/// The same retry of a request that never arrived: one begins, the others join it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_begin_a_retry_once() {
    let pair = Pair::start().await;
    for round in 0..ROUNDS {
        let request = request("ada", &pair.key, &format!("message {round}"));
        let begun = pair.begin(&vec![BeginTurn { is_retry: true, ..request }; 2 * EACH]).await;
        assert_eq!(count(&begun), outcomes(BeginOutcome::Joined));
        assert_eq!((ids(&begun).len(), pair.threads().await.len()), (1, round + 1));
    }
}

/// Different requests in one thread, also in one that none of them has seen: one begins, the others are told
/// that it is busy; and so on, until all are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_take_one_turn_at_a_time() {
    let pair = Pair::start().await;
    for round in 0..ROUNDS {
        let in_thread = |number: usize| BeginTurn {
            thread: Some("the thread".to_owned()),
            ..request("ada", &pair.key, &format!("message {round}-{number}"))
        };
        let requests: Vec<BeginTurn> = (0..2 * EACH).map(in_thread).collect();
        let begun = pair.begin(&requests).await;
        assert_eq!(count(&begun), outcomes(BeginOutcome::Busy));
        assert_eq!(ids(&begun).len(), 1, "all are told the same open turn");
        let open = begun.iter().find(|begun| begun.outcome == BeginOutcome::Begun).expect("one");
        assert_eq!(open.turn.position, i64::try_from(round).unwrap());
        // Both orchestrators have read the answer.
        let end = end(open.turn.handoff_id, "done");
        let ended: Vec<EndedTurn> = join_all(pair.orchestrators.iter().map(|it| it.call(&end))).await;
        assert_eq!(ended.iter().filter(|it| it.ended).count(), 1, "{ended:?}");
    }
    let threads = pair.threads().await;
    assert_eq!((threads.len(), threads[0].turns), (1, i64::try_from(ROUNDS).unwrap()));
    assert_audit_is_whole(&pair.gateways[0]).await;
}

/// A key that one gateway revokes begins nothing at the other, from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_refuse_a_revoked_key() {
    let pair = Pair::start().await;
    let request = request("ada", &pair.key, "hello");
    pair.begin(&[request.clone(), request.clone()]).await;
    pair.gateways[0].must("DELETE", &format!("/api/v1/tokens/{}", pair.key), None).await;
    for gateway in &pair.gateways {
        let token = gateway.unbound("orchestrator").await;
        let arguments = json!(contract::arguments(&request));
        let (_, answer) = gateway.post_call(&token, "thread.turn.begin", arguments).await;
        assert_eq!(answer["result"]["structuredContent"]["code"], "not_found", "{answer}");
    }
    assert_eq!(pair.threads().await.len(), 2);
}
