//! A worker whose only models are behind the egress.

use std::{fs, path::Path};

use serde_json::json;
use testkit::{Model, Script, Worker};

use super::{ALLOWED, Stage, provider_key};

fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Starts a manager that reaches models through the egress only.
async fn worker(stage: &Stage) -> Worker {
    let builder = Worker::manager(&stage.nats).calling_process(&stage.gateway).await;
    let worker = builder
        .set("inference.egress_url", stage.orchestrator.egress_url())
        .set("inference.providers", "[{name=\"openai\", model=\"gpt-5\"}]")
        .start()
        .await;
    // The worker creates the streams that the orchestrator waits for.
    stage.orchestrator.wait_until_it_hands_off().await;
    worker
}

/// P15: a chat is answered by an external model, and the provider's key is only in its file and at the
/// provider.
#[tokio::test]
async fn chat_is_answered_by_a_provider_whose_key_is_nowhere_else() {
    let stage = Stage::start(Model::start([Script::say("hello from outside")]).await).await;
    let worker = worker(&stage).await;
    let key = stage.gateway.api_key("ada").await.1;
    let client = stage.orchestrator.client(&key);
    let answer = client.ask("hello").await;
    let content = answer.body.pointer("/choices/0/message/content");
    assert_eq!(content, Some(&json!("hello from outside")), "{answer:?}");
    let asked = stage.provider.asked();
    let bearer = format!("Bearer {}", provider_key());
    assert!(
        asked.iter().all(|asked| asked.authorization.as_deref() == Some(&*bearer) && asked.lease.is_none())
    );
    let used = stage.usage().await;
    assert_eq!(used["user_id"], "ada", "{used}");
    let row = stage.gateway.audit("tool=egress.openai&user_id=ada").await.remove(0);
    assert!(row["lease_id"].is_string() && row["agent"] == "project_manager", "{row}");

    let needle = provider_key();
    let contains = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
    let mut stored = Vec::new();
    files(stage.gateway.folder(), &mut stored);
    files(stage.nats.folder(), &mut stored);
    for file in stored {
        assert!(!contains(&fs::read(&file).unwrap_or_default()), "{}", file.display());
    }
    for (what, log) in [("worker", worker.log()), ("gateway", stage.gateway.log())] {
        assert!(!log.contains(&needle), "the log of the {what}");
    }
    assert!(!stage.orchestrator.log().contains(&needle));
    for process in [worker.process.id(), stage.gateway.process.id(), stage.orchestrator.process.id()] {
        for file in ["environ", "cmdline"] {
            assert!(!contains(&fs::read(format!("/proc/{process}/{file}")).unwrap()), "{process} {file}");
        }
    }
}

/// A budget that is used up and a provider that is not allowed end this handoff, and the user reads why. The
/// worker goes on.
#[tokio::test]
async fn user_reads_why_a_call_is_denied_and_the_worker_goes_on() {
    let budget = ", budget={tokens_per_day=50}";
    let stage = Stage::start_with(Model::start([Script::say("hello")]).await, budget, |it| it).await;
    let worker = worker(&stage).await;
    let key = stage.gateway.api_key("ada").await.1;
    let client = stage.orchestrator.client(&key);
    assert_eq!(client.ask("hello").await.status, 200);
    stage.usage().await;
    let denied = client.ask("hello again").await.body.to_string();
    assert!(denied.contains("used up the budget for openai"), "{denied}");
    let eve = stage.gateway.api_key("eve").await.1;
    let other = stage.orchestrator.client(&eve).ask("hello").await;
    assert_eq!(other.status, 200, "the budget of another user: {other:?}");
    let preference = json!({ "scope": "user", "scope_id": "eve", "key": ALLOWED, "value": ["another"] });
    stage.gateway.must("PUT", "/api/v1/preferences", Some(preference)).await;
    let denied = stage.orchestrator.client(&eve).ask("hello").await.body.to_string();
    assert!(denied.contains("no external provider is allowed") || denied.contains("not allowed"), "{denied}");
    let (status, _) = worker.get("/readyz").await;
    assert_eq!(status, 200, "no breaker is open");
}

/// A wrong key is not tried again and again: the user reads at once what is wrong, and never the key. With
/// another key in the file, the next chat is answered.
#[tokio::test]
async fn wrong_key_of_a_provider_fails_the_chat_after_one_try() {
    let key = provider_key();
    let refusal = format!("Incorrect API key provided: {key}");
    let turns = [Script::Refuse(401, refusal.clone()), Script::say("hello from outside")];
    let stage = Stage::start(Model::start(turns).await).await;
    let worker = worker(&stage).await;
    let client = stage.orchestrator.client(&stage.gateway.api_key("ada").await.1);
    let failed = client.ask("hello").await;
    assert_eq!(stage.provider.turns().len(), 1, "one try");
    assert_eq!((failed.status, &failed.body["error"]["code"]), (502, &json!("inference_failed")));
    let message = failed.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("The provider openai refuses the key of the egress (401)"), "{message}");
    assert!(message.contains("put a valid key into the file") && !message.contains(&key), "{message}");
    let log = stage.orchestrator.log();
    assert!(log.contains(&stage.key_file().display().to_string()) && !log.contains(&key), "{log}");
    assert_eq!(worker.get("/readyz").await.0, 200, "no breaker is open");
    assert_eq!(client.ask("hello again").await.status, 200);
}
