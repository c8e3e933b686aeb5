//! Calls with idempotency keys to tools of a node have one effect, as at the gateway.

use std::{path::Path, sync::Arc, time::Duration};

use edge::{Edge, EdgeLimits, JobEndpoint};
use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{Answer, Gateway, Tool, eventually};

use super::support::{Agent, NODE, World};

fn tool(name: &str, answer: Answer) -> Tool {
    Tool::new(name, "", json!({ "type": "object" }), move |_| answer.clone())
}

fn slow() -> Tool {
    tool("slow", Answer::after(Duration::from_millis(700), Answer::text("done")))
}

async fn serve(world: &World, limits: EdgeLimits) -> (Arc<Edge>, JobEndpoint) {
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    (edge, endpoint)
}

async fn call(socket: &Path, tool: &str, arguments: Value, key: &str) -> Value {
    Agent::new(socket).call_with_key(tool, arguments, key).await.expect("an answer")
}

fn code(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]["code"]
}

/// Closes the endpoint, and returns the status and the error of each row that the node caused, in their
/// order.
async fn rows(world: &World, edge: &Edge, endpoint: JobEndpoint) -> Vec<(String, String)> {
    let lease = endpoint.lease_id().to_owned();
    endpoint.close().await;
    world.ship(edge).await;
    world.wait_until_closed(&lease).await;
    let (is_ok, said) = world.verify();
    assert!(is_ok && said.contains("the audit of nodes is intact"), "{said}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    world.rows_of_node().await.iter().map(|row| (text(&row["status"]), text(&row["error_type"]))).collect()
}

fn count(rows: &[(String, String)], status: &str, error_type: &str) -> usize {
    rows.iter().filter(|row| (row.0.as_str(), row.1.as_str()) == (status, error_type)).count()
}

#[tokio::test]
async fn repeated_call_gets_the_answer_of_the_first_and_the_tool_is_called_once() {
    let world = World::start_with(vec![tool("other", Answer::text("other"))]).await;
    let (edge, endpoint) = serve(&world, EdgeLimits::default()).await;
    let socket = endpoint.socket().to_owned();
    let first = call(&socket, "local.echo", json!({ "text": "hi", "n": 1 }), "run/1").await;
    assert_eq!(first["result"]["structuredContent"]["said"], "hi", "{first}");
    // The order of members says nothing.
    let again = call(&socket, "local.echo", json!({ "n": 1, "text": "hi" }), "run/1").await;
    assert_eq!(first, again);
    assert_eq!(world.server.calls().len(), 1);
    for (tool, arguments) in
        [("local.echo", json!({ "text": "ho" })), ("local.other", json!({ "text": "hi", "n": 1 }))]
    {
        let reused = call(&socket, tool, arguments, "run/1").await;
        assert_eq!(code(&reused), "key_reused", "{reused}");
    }
    assert_eq!(world.server.calls().len(), 1);
    for key in ["", "run\n1", &"k".repeat(257)] {
        let refused = call(&socket, "local.echo", json!({}), key).await;
        assert_eq!(refused["error"]["code"], -32602, "{key:?}: {refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert_eq!(message, "an idempotency key has 1 to 256 bytes and no control characters");
    }
    assert_eq!(world.server.calls().len(), 1);
    // Another key, and no key, are other calls.
    call(&socket, "local.echo", json!({ "text": "hi", "n": 1 }), "run/2").await;
    for _ in 0..2 {
        Agent::new(&socket).call("local.echo", json!({ "text": "hi", "n": 1 })).await.unwrap();
    }
    assert_eq!(world.server.calls().len(), 4);
    assert!(world.server.calls().iter().all(|call| call.idempotency_key.is_none()), "the key stays here");
    // The gateway knows the keys of calls that are passed on.
    let central = Gateway::start(vec![tool("add", Answer::text("added"))]).await;
    world.gateway.install("central", &central.url()).await;
    let passed_on = call(&socket, "central.add", json!({}), "run/1").await;
    assert!(passed_on["error"].is_null() && passed_on["result"]["isError"] != true, "{passed_on}");
    assert_eq!(call(&socket, "central.add", json!({}), "run/1").await, passed_on);
    assert_eq!(central.calls().len(), 1);

    let rows = rows(&world, &edge, endpoint).await;
    assert_eq!(rows.len(), 10, "{rows:?}");
    assert_eq!((count(&rows, "success", ""), count(&rows, "replayed", "")), (4, 1), "{rows:?}");
    assert_eq!(count(&rows, "failure", "key_reused"), 2, "{rows:?}");
    assert_eq!(count(&rows, "denied", "protocol"), 3, "{rows:?}");
    let replayed = world.gateway.audit("status=replayed").await;
    let of_node = replayed.iter().find(|row| row["node"] == NODE).unwrap();
    assert_eq!((&of_node["decision"], &of_node["tool"]), (&json!("allow"), &json!("local.echo")));
    let of_gateway = replayed.iter().find(|row| row["tool"] == "central.add").unwrap();
    assert_eq!((&of_gateway["node"], replayed.len()), (&json!(null), 2), "{replayed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_with_one_key_are_one_call_and_all_get_its_answer() {
    let world = World::start_with(vec![slow()]).await;
    let (edge, endpoint) = serve(&world, EdgeLimits::default()).await;
    let socket = endpoint.socket().to_owned();
    // More than may run at the same time.
    let answers = join_all((0..20).map(|_| call(&socket, "local.slow", json!({}), "run/1"))).await;
    assert_eq!(answers[0]["result"]["content"][0]["text"], "done", "{}", answers[0]);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(world.server.calls().len(), 1);
    let rows = rows(&world, &edge, endpoint).await;
    assert_eq!((count(&rows, "success", ""), count(&rows, "replayed", "")), (1, 19), "{rows:?}");
}

#[tokio::test]
async fn call_goes_on_without_its_agent_and_the_repeated_call_gets_its_answer() {
    let world = World::start_with(vec![slow()]).await;
    let (edge, endpoint) = serve(&world, EdgeLimits::default()).await;
    let socket = endpoint.socket().to_owned();
    let called = eventually("the call is made", async || (!world.server.calls().is_empty()).then_some(()));
    tokio::select! {
        answer = call(&socket, "local.slow", json!({}), "run/1") => panic!("{answer}"),
        // The connection is dropped with the request.
        () = called => {}
    }
    let again = call(&socket, "local.slow", json!({}), "run/1").await;
    assert_eq!(again["result"]["content"][0]["text"], "done", "{again}");
    assert_eq!((world.server.calls().len(), world.server.cancelled_calls()), (1, 0));
    let rows = rows(&world, &edge, endpoint).await;
    assert_eq!((count(&rows, "success", ""), count(&rows, "replayed", "")), (1, 1), "{rows:?}");
}

#[tokio::test]
async fn call_whose_outcome_is_unknown_is_not_repeated_and_one_that_was_not_made_is() {
    let mut world = World::start_with(vec![tool("hang", Answer::hang())]).await;
    // Long enough for the calls that are to succeed, also on a busy machine.
    world.timeout_seconds = 5;
    let (edge, endpoint) = serve(&world, EdgeLimits::default()).await;
    let socket = endpoint.socket().to_owned();
    let answers = join_all((0..3).map(|_| call(&socket, "local.hang", json!({}), "run/1"))).await;
    let with = |wanted: &str| answers.iter().filter(|answer| code(answer) == wanted).count();
    assert_eq!((with("upstream_timeout"), with("in_doubt")), (1, 2), "{answers:?}");
    let again = call(&socket, "local.hang", json!({}), "run/1").await;
    assert_eq!(code(&again), "in_doubt", "{again}");
    assert!(again["result"]["content"][0]["text"].as_str().unwrap().contains("unknown whether"), "{again}");
    assert_eq!(world.server.calls().len(), 1);
    // A server that cannot be reached has done nothing.
    world.server.kill();
    let failed = call(&socket, "local.echo", json!({}), "run/2").await;
    assert_eq!(code(&failed), "upstream_unavailable", "{failed}");
    world.server.start_again();
    let made = eventually("the server is reached again", async || {
        let answer = call(&socket, "local.echo", json!({}), "run/2").await;
        (answer["result"]["isError"] != true).then_some(answer)
    })
    .await;
    assert_eq!(call(&socket, "local.echo", json!({}), "run/2").await, made);
    let echoed = world.server.calls().iter().filter(|call| call.name == "echo").count();
    assert_eq!(echoed, 1);
    let rows = rows(&world, &edge, endpoint).await;
    assert_eq!(count(&rows, "failure", "in_doubt"), 3, "{rows:?}");
    assert_eq!((count(&rows, "success", ""), count(&rows, "replayed", "")), (1, 1), "{rows:?}");
}

#[tokio::test]
async fn keys_are_limited_in_number_and_size_and_no_effect_is_repeated() {
    let world = World::start().await;
    let limits = EdgeLimits { keys: 3, key_answer_bytes: 1000, ..EdgeLimits::default() };
    let (_edge, endpoint) = serve(&world, limits).await;
    let socket = endpoint.socket().to_owned();
    let say = async |key: &str| call(&socket, "local.echo", json!({ "text": "x".repeat(400) }), key).await;
    for key in ["1", "2", "3"] {
        assert!(say(key).await["result"]["isError"] != true);
    }
    assert_eq!(code(&say("4").await), "too_many_keys");
    let forgotten = say("1").await;
    assert_eq!(code(&forgotten), "in_doubt", "{forgotten}");
    assert!(forgotten["result"]["content"][0]["text"].as_str().unwrap().contains("not kept"), "{forgotten}");
    assert!(say("3").await["result"]["isError"] != true);
    assert_eq!(world.server.calls().len(), 3);
}

/// The lease is continued after the kill; answers are lost with the process, and keys are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_is_repeated_under_a_key_that_a_killed_node_used() {
    let world = World::start_with(vec![slow()]).await;
    world.write_host_settings().await;
    let mut host = world.start_host();
    world.wait_for_host().await;
    let socket = world.path("s");
    let first = call(&socket, "local.echo", json!({}), "run/1").await;
    assert!(first["result"]["isError"] != true, "{first}");
    let agent = Agent::new(&socket);
    let interrupted = agent.call_with_key("local.slow", json!({}), "run/2");
    let killed = async {
        eventually("the call is made", async || (world.server.calls().len() == 2).then_some(())).await;
        host.kill();
    };
    let (answer, ()) = tokio::join!(interrupted, killed);
    assert_eq!(answer, None);
    let mut host = world.start_host();
    world.wait_for_host().await;
    for (tool, key, expected) in
        [("local.echo", "run/1", "not kept any more"), ("local.slow", "run/2", "unknown whether")]
    {
        let again = call(&socket, tool, json!({}), key).await;
        assert_eq!(code(&again), "in_doubt", "{again}");
        assert!(again["result"]["content"][0]["text"].as_str().unwrap().contains(expected), "{again}");
    }
    let reused = call(&socket, "local.echo", json!({ "text": "hi" }), "run/1").await;
    assert_eq!(code(&reused), "key_reused", "{reused}");
    assert_eq!(world.server.calls().len(), 2);
    assert!(call(&socket, "local.echo", json!({}), "run/3").await["result"]["isError"] != true);
    host.terminate();
    assert!(host.wait(Duration::from_secs(60)).success());
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}
