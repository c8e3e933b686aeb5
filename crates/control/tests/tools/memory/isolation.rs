//! No profile notices another, and nothing but the texts decides what is found.

use std::time::{Duration, Instant};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

use super::of_profile;
use crate::stage::Stage;

const QUERIES: [&str; 5] = ["otter", "gateway of a node", "biling deploy", "x1 node", "never written"];

fn texts() -> impl Strategy<Value = Vec<(usize, String)>> {
    let word =
        prop::sample::select(vec!["otter", "deploy", "billing", "gateway", "node", "M\u{fc}ller", "x1"]);
    let text = prop::collection::vec(word, 1..8).prop_map(|words| words.join(" "));
    prop::collection::vec((0_usize..6, text), 1..8)
}

async fn put(stage: &Stage, profile: &str, number: usize, text: &str) {
    let new = json!({ "path": format!("{number}.md"), "text": text });
    stage.call(&of_profile(profile), "memory.put", new).await.unwrap();
}

/// Everything that a profile sees: hits with their scores to the last digit, and the list.
async fn seen(stage: &Stage, profile: &str) -> Vec<Value> {
    let caller = of_profile(profile);
    let mut seen = vec![stage.call(&caller, "memory.list", json!({})).await.unwrap()];
    for query in QUERIES {
        let wanted = json!({ "query": query, "limit": 50 });
        seen.push(stage.call(&caller, "memory.search", wanted).await.unwrap());
    }
    seen
}

async fn check_isolation(
    alone: &Stage,
    shared: &Stage,
    case: usize,
    own: &[(usize, String)],
    others: &[(usize, String)],
) {
    // Names that begin alike, and a case that differs.
    let (mine, theirs) = (format!("Team{case}"), [format!("team{case}"), format!("Team{case}.x")]);
    for (number, text) in others {
        put(shared, &theirs[number % 2], *number, text).await;
    }
    for (number, text) in own {
        put(alone, &mine, *number, text).await;
        put(shared, &mine, *number, text).await;
    }
    assert_eq!(seen(alone, &mine).await, seen(shared, &mine).await);
    for (number, _) in others {
        let path = json!({ "path": format!("{number}.md") });
        drop(shared.call(&of_profile(&theirs[number % 2]), "memory.delete", path).await);
    }
    assert_eq!(seen(alone, &mine).await, seen(shared, &mine).await);
}

/// What other profiles keep, change and delete changes neither hits nor ranks nor scores.
#[tokio::test]
async fn profiles_do_not_influence_each_other() {
    let (alone, shared) = (Stage::sqlite().await, Stage::sqlite().await);
    alone.set_time("2026-11-18T10:00:00Z");
    shared.set_time("2026-11-18T10:00:00Z");
    let (mut runner, strategy) = (TestRunner::deterministic(), (texts(), texts()));
    for case in 0..24 {
        let (own, others) = strategy.new_tree(&mut runner).unwrap().current();
        check_isolation(&alone, &shared, case, &own, &others).await;
    }
}

/// No argument names a profile: there is nothing with which a caller could reach another's.
#[tokio::test]
async fn no_argument_names_a_profile() {
    let stage = Stage::sqlite().await;
    put(&stage, "theirs", 1, "a secret of otters").await;
    for tool in control::all().iter().filter(|tool| tool.name.starts_with("memory.")) {
        assert!(tool.input["properties"].get("profile").is_none(), "{}", tool.name);
        let given = json!({ "path": "1.md", "query": "otter", "profile": "theirs" });
        assert!(stage.call(&of_profile("mine"), tool.name, given).await.is_err());
    }
    let caller = of_profile("mine");
    for path in ["1.md", "../theirs/1.md"] {
        let wanted = json!({ "path": path });
        assert!(stage.call(&caller, "memory.get", wanted).await.is_err());
    }
}

/// Two stores, one of them PostgreSQL, and any order of insertion: the same bytes.
#[tokio::test]
async fn order_and_database_make_no_difference() {
    let (first, second) = (Stage::sqlite().await, Stage::postgres().await);
    first.set_time("2026-11-18T10:00:00Z");
    second.set_time("2026-11-18T10:00:00Z");
    let mut runner = TestRunner::deterministic();
    for case in 0..8 {
        let profile = format!("p{case}");
        let texts = texts().new_tree(&mut runner).unwrap().current();
        let mut last: Vec<(usize, String)> = Vec::new();
        for (number, text) in texts {
            put(&first, &profile, number, "something else first").await;
            put(&first, &profile, number, &text).await;
            last.retain(|(other, _)| *other != number);
            last.push((number, text));
        }
        let shuffled = Just(last).prop_shuffle().new_tree(&mut runner).unwrap().current();
        for (number, text) in &shuffled {
            put(&second, &profile, *number, text).await;
        }
        let bytes = |seen: Vec<Value>| serde_json::to_string(&seen).unwrap();
        assert_eq!(bytes(seen(&first, &profile).await), bytes(seen(&second, &profile).await));
    }
}

/// So many texts that a search among them takes longer than anything else that a call does.
const TEXTS_OF_ANOTHER: usize = 500;
const SEARCHES: usize = 40;

/// Returns the shortest time of a search: the one that nothing else on the machine delayed.
async fn fastest(stages: &[(&Stage, &str)]) -> Vec<Duration> {
    let mut fastest = vec![Duration::MAX; stages.len()];
    for _ in 0..SEARCHES {
        for (fastest, (stage, profile)) in fastest.iter_mut().zip(stages) {
            let wanted = json!({ "query": "otter gateway biling", "limit": 5 });
            let started = Instant::now();
            stage.call(&of_profile(profile), "memory.search", wanted).await.unwrap();
            *fastest = started.elapsed().min(*fastest);
        }
    }
    fastest
}

/// What another profile keeps makes no search slower: by its time nobody learns how much there is.
#[tokio::test]
async fn search_takes_no_longer_beside_a_large_profile() {
    let (alone, shared) = (Stage::sqlite().await, Stage::sqlite().await);
    for stage in [&alone, &shared] {
        put(stage, "small", 0, "the otter of the gateway").await;
    }
    let line = "The otter deploys the billing of a gateway to its node, and the node keeps it.\n";
    for number in 0..TEXTS_OF_ANOTHER {
        put(&shared, "large", number, &line.repeat(800)).await;
    }
    let times = fastest(&[(&alone, "small"), (&shared, "small"), (&shared, "large")]).await;
    println!("alone {:?}, beside a large profile {:?}, in the large one {:?}", times[0], times[1], times[2]);
    assert!(times[2] > 3 * times[0], "the large profile is not large enough to tell: {times:?}");
    assert!(times[1] < 2 * times[0], "{times:?}");
}
