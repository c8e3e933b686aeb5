//! Budgets of users, under concurrency and when an orchestrator is killed.

mod reports;
mod slow_gateway;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::json;
use testkit::{ChatClient, ChatEvent, ChatResponse, Model, ModelRequest, Script, eventually};
use tokio::sync::watch;

use super::{Stage, body, streamed};
use slow_gateway::SlowGateway;

/// Returns scripts that wait until they are released.
fn held(
    reply: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static,
) -> (watch::Sender<usize>, impl Fn(&ModelRequest) -> Script + Send + Sync + 'static) {
    let (release, answered) = watch::channel(0);
    let held = move |asked: &ModelRequest| {
        let (answered, then) = (answered.clone(), Box::new(reply(asked)));
        Script::Held { turn: 0, answered, then }
    };
    (release, held)
}

/// Makes calls at the same time. The provider replies when each one has begun or is denied.
async fn at_the_same_time<C: Future<Output = ChatResponse>>(
    stage: &Stage,
    release: &watch::Sender<usize>,
    calls: impl ExactSizeIterator<Item = C>,
) -> Vec<ChatResponse> {
    let (all, denied) = (calls.len(), AtomicUsize::new(0));
    let calls = calls.map(async |call| {
        let response = call.await;
        denied.fetch_add(usize::from(response.status != 200), Ordering::SeqCst);
        response
    });
    let release_all = async {
        eventually("all calls have begun or are denied", || async {
            let decided = stage.provider.asked().len() + denied.load(Ordering::SeqCst);
            (decided == all).then_some(())
        })
        .await;
        release.send(1).unwrap();
    };
    tokio::join!(join_all(calls), release_all).0
}

/// A user who has used up a budget is told so, with what to do. Other users go on.
#[tokio::test]
async fn used_up_budget_is_denied_with_402() {
    let budget = ", budget={tokens_per_day=16}";
    let stage =
        Stage::start_with(Model::start([Script::Whole("hi".to_owned())]).await, budget, |it| it).await;
    let ask = async |client: ChatClient| client.send("POST", "/chat/completions", Some(body())).await;
    assert_eq!(ask(stage.agent()).await.status, 200);
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
    // Each call reserves about 1,250 tokens: 100 of the reply, and the most that the request can have.
    let budget = ", budget={tokens_per_day=5000}";
    let (release, held) = held(|_| Script::say("hi"));
    let stage =
        Stage::start_with(Model::start_answering(held, |_| Script::Hang).await, budget, |it| it).await;
    let second = stage.builder.start().await;
    let urls = [stage.orchestrator.egress_url(), second.egress_url()];
    let calls = (0..20).map(|at| {
        let client = ChatClient::new(&format!("{}/openai", urls[at % 2]), &stage.token);
        let client = client.with("cynode-lease", &stage.lease);
        async move { client.send("POST", "/chat/completions", Some(body())).await }
    });
    let responses = at_the_same_time(&stage, &release, calls).await;
    let count = |status: u16| responses.iter().filter(|response| response.status == status).count();
    assert_eq!((count(200), count(200) + count(429)), (stage.provider.asked().len(), 20));
    assert_eq!(count(200), 5, "of 20");
    let busy = responses.iter().find(|response| response.status == 429).unwrap();
    assert_eq!(busy.body["error"]["code"], "budget_busy");
    assert!(busy.headers.contains_key("retry-after"));
}

/// An orchestrator that is killed leaves its call open, which counts until it is closed as lost.
#[tokio::test]
async fn call_of_a_killed_orchestrator_stays_counted() {
    // One call reserves about 1,250 tokens.
    let budget = ", budget={tokens_per_day=1500}";
    let provider = Model::start([Script::HangAfter("hel".to_owned())]).await;
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
    drop(first);
    eventually("the second call has ended", || async {
        let used = stage.gateway.must("GET", "/api/v1/egress/usage?user_id=ada", None).await;
        (used[0]["calls"] == 1).then_some(())
    })
    .await;
}

/// The provider is told how long a reply may be, whatever the agent asks for. So what parallel calls use
/// exceeds the budget by less than one call.
#[tokio::test]
async fn calls_that_name_no_limit_cannot_use_more_than_was_reserved() {
    const BUDGET: i64 = 20_000;
    let settings = format!(", max_completion_tokens=3000, budget={{tokens_per_day={BUDGET}}}");
    // As expensive as it may be: a reply is as long as the request permits, and 18 times the budget if
    // nothing limits it.
    let (release, held) = held(|asked| {
        let completion = asked.body["max_completion_tokens"].as_u64().unwrap_or(360_000);
        let usage = json!({ "prompt_tokens": 20, "completion_tokens": completion });
        let reply = json!({ "choices": [{ "message": { "content": "hi" } }], "usage": usage });
        Script::Json(reply)
    });
    let provider = Model::start_answering(held, |_| Script::Hang).await;
    let stage = Stage::start_with(provider, &settings, |it| it).await;
    let calls = (0..25).map(|at| {
        let mut wanted = body();
        wanted.as_object_mut().unwrap().remove("max_tokens");
        if at % 5 == 0 {
            wanted["max_tokens"] = json!(1_000_000);
        }
        let client = stage.agent();
        async move { client.send("POST", "/chat/completions", Some(wanted)).await }
    });
    let responses = at_the_same_time(&stage, &release, calls).await;
    let asked = stage.provider.asked();
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), asked.len());
    assert_eq!(asked.len(), 5, "20,000 tokens are left for 5 calls of about 4,100");
    for asked in &asked {
        assert_eq!(asked.body["max_completion_tokens"], 3000, "{}", asked.body);
        assert!(asked.body.get("max_tokens").is_none(), "{}", asked.body);
    }
    let used = stage.usage().await;
    let used = used["prompt_tokens"].as_i64().unwrap() + used["completion_tokens"].as_i64().unwrap();
    assert!(used < BUDGET + 3_020, "{used} of {BUDGET}");
    // Without a budget the agent decides.
    let stage = Stage::start(Model::start([Script::Whole("hi".to_owned())]).await).await;
    stage.agent().send("POST", "/chat/completions", Some(body())).await;
    assert_eq!(stage.provider.asked()[0].body, body());
}

/// An agent that calls again as soon as it has a reply finds the budget as it is: the gateway has counted the
/// reply before the agent sees its end.
#[tokio::test]
async fn agent_that_calls_one_after_the_other_uses_up_a_budget_exactly() {
    // A plain reply uses 16 tokens, a stream 110. An open call reserves more than there is.
    let budget = ", budget={tokens_per_day=378}";
    let scripts = (0..6).map(|at| if at % 2 == 0 { Script::Whole("hi".into()) } else { Script::say("hi") });
    let mut stage = Stage::start_with(Model::start(scripts).await, budget, |it| it).await;
    let slow = SlowGateway::start(&stage.gateway.url(), Duration::from_millis(300)).await;
    stage.orchestrator = stage.builder.clone().at_gateway(slow.url()).start().await;
    let client = stage.agent();
    for _ in 0..3 {
        let plain = client.send("POST", "/chat/completions", Some(body())).await;
        assert_eq!(plain.status, 200, "{plain:?}");
        let mut stream = client.open("/chat/completions", &streamed()).await.unwrap();
        assert_eq!(stream.status, 200);
        // As a worker does, which reads no further.
        assert!(stream.read_until(|event| *event == ChatEvent::Done).await.is_done);
    }
    let denied = client.send("POST", "/chat/completions", Some(body())).await;
    assert_eq!(denied.body["error"]["code"], "budget_used_up", "{denied:?}");
    assert!(denied.body["error"]["message"].as_str().unwrap().contains("378 of 378"), "{denied:?}");
}

/// A gateway that does not answer delays the end of a reply for a moment only.
#[tokio::test]
async fn reply_ends_although_the_gateway_does_not_count_it() {
    let mut stage = Stage::start(Model::start([Script::Whole("hi".to_owned())]).await).await;
    let slow = SlowGateway::start(&stage.gateway.url(), Duration::from_secs(3600)).await;
    stage.orchestrator = stage.builder.clone().at_gateway(slow.url()).start().await;
    let reply = stage.agent().send("POST", "/chat/completions", Some(body())).await;
    assert_eq!((reply.status, reply.content()), (200, "hi"));
    let used = stage.gateway.must("GET", "/api/v1/egress/usage?user_id=ada", None).await;
    assert_eq!(used.get(0).map(|used| &used["calls"]), None, "nothing is counted yet: {used}");
}

/// A provider may bill for a reply that an agent did not wait for, so all of its reservation counts.
#[tokio::test]
async fn cancelled_call_counts_as_reserved_under_a_budget() {
    let budget = ", budget={tokens_per_day=100000}";
    let stage =
        Stage::start_with(Model::start([Script::HangAfter("hel".to_owned())]).await, budget, |it| it).await;
    let mut stream = stage.agent().open("/chat/completions", &streamed()).await.unwrap();
    assert!(matches!(stream.next().await, ChatEvent::Data(_)));
    drop(stream);
    let used = stage.usage().await;
    assert_eq!((&used["completion_tokens"], &used["estimated_calls"]), (&json!(100), &json!(1)), "{used}");
    assert!(used["prompt_tokens"].as_u64().unwrap() > 1_000, "{used}");
}

/// An agent leaves while the gateway decides. The call that the gateway has opened ends, and used nothing.
#[tokio::test]
async fn call_whose_agent_leaves_while_it_begins_is_ended() {
    let mut stage = Stage::start(Model::start([]).await).await;
    let (gateway, release) = SlowGateway::holding_begins(&stage.gateway.url()).await;
    let builder = stage.builder.clone().at_gateway(gateway.url()).set("egress.max_calls", "1");
    stage.orchestrator = builder.start().await;
    let agent = stage.agent();
    let mut asking = Box::pin(agent.send("POST", "/chat/completions", Some(body())));
    let is_open = eventually("the gateway has opened the call", || async {
        (!stage.gateway.audit("tool=egress.openai").await.is_empty()).then_some(())
    });
    tokio::select! {
        response = &mut asking => panic!("the answer of the gateway is held: {response:?}"),
        () = is_open => {}
    }
    drop(asking);
    // The orchestrator knows that the agent is gone once another request may make the only call. This one is
    // refused before the gateway is asked.
    eventually("the agent has left", || async {
        let refused = agent.send("POST", "/chat/completions", Some(json!([]))).await;
        (refused.status == 400).then_some(())
    })
    .await;
    release.send(true).unwrap();
    let used = stage.usage().await;
    assert_eq!((&used["calls"], &used["prompt_tokens"]), (&json!(1), &json!(0)), "{used}");
    let ends = stage.gateway.audit("tool=egress.end").await;
    assert_eq!((ends.len(), &ends[0]["error_type"]), (1, &json!("cancelled")), "{ends:?}");
    assert!(stage.provider.asked().is_empty());
}
