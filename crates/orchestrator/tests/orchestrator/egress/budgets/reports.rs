//! Whatever a provider says about usage, and however it does, a budget is used up.

use serde_json::{Value, json};
use testkit::{ChatEvent, Model, Script};

use super::super::{Stage, body, streamed};

fn reply(usage: &Value) -> Value {
    json!({ "choices": [{ "message": { "role": "assistant", "content": "hi" } }], "usage": usage })
}

/// Some servers report under the names of both protocols.
#[tokio::test]
async fn usage_under_both_names_uses_up_a_budget() {
    let both = json!({
        "prompt_tokens": 7000, "input_tokens": 7000, "completion_tokens": 3000, "output_tokens": 3000,
    });
    let event = json!({ "choices": [], "usage": both }).to_string();
    let scripts = [Script::Json(reply(&both)), Script::Raw(vec![event])];
    let budget = ", budget={tokens_per_day=20000}";
    let stage = Stage::start_with(Model::start(scripts).await, budget, |it| it).await;
    let client = stage.agent();
    assert_eq!(client.send("POST", "/chat/completions", Some(body())).await.status, 200);
    let mut stream = client.open("/chat/completions", &streamed()).await.unwrap();
    assert!(stream.read_until(|event| *event == ChatEvent::Done).await.is_done);
    let denied = client.send("POST", "/chat/completions", Some(body())).await;
    assert_eq!((denied.status, denied.code()), (402, "budget_used_up"), "{denied:?}");
    let used = stage.usage().await;
    assert_eq!((&used["prompt_tokens"], &used["completion_tokens"]), (&json!(14000), &json!(6000)), "{used}");
    assert_eq!(used["estimated_calls"], 0, "{used}");
}

/// A report that cannot be read, or is missing, counts as all that was reserved.
#[tokio::test]
async fn unreadable_usage_counts_as_reserved_under_a_budget() {
    let unreadable = [
        json!({ "prompt_tokens": -1, "completion_tokens": 1 }),
        json!({ "prompt_tokens": 1, "completion_tokens": "few" }),
        json!("none"),
        Value::Null,
    ];
    // Each call reserves 100 tokens of the reply, and more than 1,000 of the prompt.
    let budget = ", budget={tokens_per_day=4400}";
    let scripts = unreadable.each_ref().map(|usage| Script::Json(reply(usage)));
    let stage = Stage::start_with(Model::start(scripts).await, budget, |it| it).await;
    let client = stage.agent();
    for usage in &unreadable {
        let allowed = client.send("POST", "/chat/completions", Some(body())).await;
        assert_eq!(allowed.status, 200, "{usage}: {allowed:?}");
    }
    let denied = client.send("POST", "/chat/completions", Some(body())).await;
    assert_eq!((denied.status, denied.code()), (402, "budget_used_up"), "{denied:?}");
    let used = stage.usage().await;
    assert_eq!((&used["completion_tokens"], &used["estimated_calls"]), (&json!(400), &json!(4)), "{used}");
    assert!(used["prompt_tokens"].as_u64().unwrap() > 4_000, "{used}");
}
