//! Which node a process is: its token, its id and its subjects belong together.

use serde_json::json;
use testkit::eventually;

use crate::stage::Stage;

/// Nothing runs under the name of another node: the job ends, and its result says which token is missing.
#[tokio::test]
async fn node_with_the_token_of_another_cannot_serve_tools() {
    let stage = Stage::start().await;
    let token = stage.gateway.node_token("n1").await;
    let _node = stage.node("n2").await.with_token(&token).start().await;
    let id = stage.script("true", json!({ "tools": ["artifact.get"] })).await;
    let job = stage.ended(&id).await;
    assert_eq!(job["end"]["how"], "engine_failed", "{job}");
    let expected = "the token is for node n1, and the call names node n2; use the token of node n2";
    assert!(job.to_string().contains(expected), "{job}");
}

/// A node whose token is no longer accepted says so and takes no jobs; what it has, another one runs. With a
/// new token it is at work again.
#[tokio::test]
async fn node_whose_token_is_revoked_leaves_jobs_to_others_until_it_has_a_new_one() {
    let stage = Stage::start().await;
    let new = json!({ "agent": "node", "node": "n1", "label": "n1" });
    let (token_id, token) = stage.gateway.issue(new).await;
    let builder = stage.node("n1").await.with_token(&token);
    let n1 = builder.start().await;
    let id = stage.script("sleep 2; echo done > out", json!({ "outputs": ["out"] })).await;
    stage.running_on(&id).await;
    stage.gateway.must("DELETE", &format!("/api/v1/tokens/{token_id}"), None).await;
    eventually("the node to take no jobs", || async {
        n1.readiness().await.contains("refuses this node's token").then_some(())
    })
    .await;
    let _n2 = stage.node("n2").await.start().await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["end"]["how"], &job["node_id"]), (&json!("exited"), &json!("n2")), "{job}");
    assert_eq!(stage.artifact("out").await, "done\n");
    let _builder = builder.with_token(&stage.gateway.node_token("n1").await);
    eventually("the node to be ready", || async { (n1.readiness().await == "ok\n").then_some(()) }).await;
}

#[tokio::test]
async fn node_without_a_valid_token_takes_no_jobs_from_the_start() {
    let stage = Stage::start().await;
    let wrong = stage.node("n1").await.with_token("wrong").start().await;
    assert!(wrong.readiness().await.contains("this node's token"), "{}", wrong.readiness().await);
    let id = stage.script("true", json!({})).await;
    stage.wait_until_queued(&id).await;
    let _right = stage.node("n2").await.start().await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["node_id"], &job["attempt"]), (&json!("n2"), &json!(1)), "{job}");
}
