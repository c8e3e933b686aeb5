//! Budgets of users, under concurrency and when an orchestrator is killed.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use testkit::{ChatClient, ChatEvent, Model, Script, eventually};

use super::{Stage, body, streamed};

/// A user who has used up a budget is told so, with what to do. Other users go on.
#[tokio::test]
async fn used_up_budget_is_denied_with_402() {
    let budget = ", budget={tokens_per_day=16}";
    let stage =
        Stage::start_with(Model::start([Script::Whole("hi".to_owned())]).await, budget, |it| it).await;
    let ask = async |client: ChatClient| client.send("POST", "/chat/completions", Some(body())).await;
    assert_eq!(ask(stage.agent()).await.status, 200);
    stage.usage().await;
    let denied = ask(stage.agent()).await;
    assert_eq!((denied.status, denied.body["error"]["code"].as_str()), (402, Some("budget_used_up")));
    let message = denied.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("16 of 16 tokens") && message.contains("egress.providers"), "{message}");
    assert_eq!(denied.headers["x-should-retry"], "false");
    assert_eq!(stage.provider.asked().len(), 1);
    let eve = stage.gateway.lease(json!({ "agent": "project_manager", "user_id": "eve" })).await.1;
    assert_eq!(ask(stage.client(&stage.token, Some(&eve))).await.status, 200);
}

/// What open calls may use counts against the budget, whichever orchestrator makes them.
#[tokio::test]
async fn calls_at_two_orchestrators_do_not_overrun_a_budget() {
    // Each call expects about 125 tokens: 100 of the reply, and those of the request.
    let budget = ", budget={tokens_per_day=500}";
    let held = Script::After(Duration::from_millis(700), Box::new(Script::say("hi")));
    let stage = Stage::start_with(Model::start([held]).await, budget, |it| it).await;
    let second = stage.builder.start().await;
    let urls = [stage.orchestrator.egress_url(), second.egress_url()];
    let calls = (0..20).map(|at| {
        let client = ChatClient::new(&format!("{}/openai", urls[at % 2]), &stage.token);
        let client = client.with("cynode-lease", &stage.lease);
        async move { client.send("POST", "/chat/completions", Some(body())).await }
    });
    let responses = join_all(calls).await;
    let count = |status: u16| responses.iter().filter(|response| response.status == status).count();
    assert_eq!((count(200), count(200) + count(429)), (stage.provider.asked().len(), 20));
    assert!((4..=5).contains(&count(200)), "{} of 20", count(200));
    let busy = responses.iter().find(|response| response.status == 429).unwrap();
    assert_eq!(busy.body["error"]["code"], "budget_busy");
    assert!(busy.headers.contains_key("retry-after"));
}

/// An orchestrator that is killed leaves its call open, which counts until it is closed as lost.
#[tokio::test]
async fn call_of_a_killed_orchestrator_stays_counted() {
    let budget = ", budget={tokens_per_day=150}";
    let provider = Model::start([Script::HangAfter("hel".to_owned()), Script::say("hi")]).await;
    let mut stage = Stage::start_with(provider, budget, |it| it).await;
    let mut stream = stage.agent().open("/chat/completions", &streamed()).await.unwrap();
    assert!(matches!(stream.next().await, ChatEvent::Data(_)));
    let mut wanted = streamed();
    wanted["max_tokens"] = json!(200);
    stage.orchestrator.process.kill();
    drop(stream);
    stage.orchestrator = stage.builder.start().await;
    let used = stage.gateway.must("GET", "/api/v1/egress/usage?user_id=ada", None).await;
    assert_eq!((&used[0]["open_calls"], &used[0]["calls"]), (&json!(1), &json!(0)), "{used}");
    // The open call has room for another one, and then the budget is taken.
    let first = stage.agent().open("/chat/completions", &wanted).await.unwrap();
    let denied = stage.agent().send("POST", "/chat/completions", Some(body())).await;
    assert_eq!((first.status, denied.status), (200, 429), "{denied:?}");
    assert_eq!(first.read().await.content, "hi");
    eventually("the second call has ended", || async {
        let used = stage.gateway.must("GET", "/api/v1/egress/usage?user_id=ada", None).await;
        (used[0]["calls"] == 1).then_some(())
    })
    .await;
}
