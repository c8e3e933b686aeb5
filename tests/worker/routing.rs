//! P15, P19: which models may answer, in which order, and which keys are refused.

use std::fs;

use serde_json::json;
use subjects::{Completion, ErrorCode, Kind, Preference, PreferenceScope};
use testkit::{Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, run, workspace};

fn routing(key: &str, value: serde_json::Value) -> Preference {
    let value_type = if value.is_array() { "array" } else { "boolean" };
    Preference {
        key: format!("agents.project_manager.model_routing.{key}"),
        value,
        value_type: value_type.to_owned(),
        scope: PreferenceScope::System,
        scope_id: None,
        version: 1,
    }
}

async fn ask(orchestrator: &Orchestrator, preferences: Vec<Preference>) -> Completion {
    let mut question = chat("hello");
    question.context.preferences = Some(preferences);
    let id = orchestrator.publish(&question).await;
    orchestrator.completion(Kind::Chat, id).await
}

fn with_egress(worker: WorkerBuilder, egress: &Model, folder: &std::path::Path) -> WorkerBuilder {
    let token = folder.join("token");
    fs::write(&token, "of-the-egress\n").unwrap();
    // The scripted model serves one address only, so one provider is reachable and the other is not.
    let url = egress.url().replace("/v1", "");
    worker
        .set("inference.egress_url", url)
        .set("inference.egress_token_file", token.display().to_string())
        .set("inference.providers", "[{name=\"v1\", model=\"large\"}, {name=\"absent\", model=\"huge\"}]")
}

fn said(answer: &Completion) -> &str {
    answer.message.as_ref().map_or("", |message| &message.content)
}

/// P19: local models first by default; external providers only if allowed, in their order, as a fallback.
#[tokio::test]
async fn routes_follow_the_preferences() {
    let nats = Nats::start();
    let folder = tempfile::tempdir().unwrap();
    let local = Model::start([Script::say("local")]).await;
    let external = Model::start([Script::say("external")]).await;
    let worker = with_egress(Worker::manager(&nats).asking(&local), &external, folder.path()).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let allowed = |names: &[&str]| routing("allowed_external_providers", json!(names));
    let not_local = || routing("prefer_local", json!(false));

    assert_eq!(said(&ask(&orchestrator, vec![]).await), "local");
    assert_eq!(
        said(&ask(&orchestrator, vec![allowed(&["v1"])]).await),
        "local",
        "local is preferred by default"
    );
    assert_eq!(
        said(&ask(&orchestrator, vec![not_local()]).await),
        "local",
        "no external provider is allowed"
    );
    assert!(external.asked().is_empty());
    let answer = ask(&orchestrator, vec![not_local(), allowed(&["v1"])]).await;
    assert_eq!(said(&answer), "external");
    assert!(answer.trace.steps.iter().any(|step| step.name == "v1/large"), "{:?}", answer.trace.steps);
    assert_eq!(external.asked()[0].authorization.as_deref(), Some("Bearer of-the-egress"));
    assert_eq!(external.asked()[0].body["model"], "large");
    // The preference of the other role has no effect.
    let mut other_role = vec![not_local(), allowed(&["v1"])];
    other_role.iter_mut().for_each(|it| it.key = it.key.replace("manager", "analyst"));
    assert_eq!(said(&ask(&orchestrator, other_role).await), "local");
    drop(worker);

    // If the local model is down, the first allowed and reachable provider is used.
    let away = Model::start([Script::Status(503, None)]).await;
    let settings = Worker::manager(&nats).asking(&away).set("inference.tries", "1");
    let _worker = with_egress(settings, &external, folder.path()).start().await;
    let order = routing("fallback_provider_order", json!(["absent", "v1"]));
    let answer = ask(&orchestrator, vec![allowed(&["v1", "absent"]), order]).await;
    assert_eq!(said(&answer), "external", "the first provider refused, the next one answered");
    let answer = ask(&orchestrator, vec![allowed(&["v1"])]).await;
    assert_eq!(said(&answer), "external");
    let answer = ask(&orchestrator, vec![]).await;
    assert_eq!(
        answer.error.map(|error| error.code),
        Some(ErrorCode::InferenceUnavailable),
        "a provider that is not allowed is not called"
    );
}

/// P15: provider keys and provider addresses are refused by name before anything connects.
#[test]
fn provider_keys_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "sk-ant-0123456789abcdef0123456789\n").unwrap();
    let key = key.display().to_string();
    let root = format!("--instructions-root={}", workspace().join("instructions").display());
    let check = |arguments: &[&str], variables: &[(&str, &str)], words: &[&str]| {
        let mut all = vec!["config", "--role=project_manager", &root];
        all.extend(arguments);
        let finished = run(&testkit::binary("cynode-pma"), folder.path(), &all, variables);
        assert_eq!(finished.code, 64, "{arguments:?} {variables:?}: {finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{word} in {}", finished.stderr);
        }
        assert!(
            !finished.stderr.contains("0123456789abcdef"),
            "the message does not contain the key: {}",
            finished.stderr
        );
    };
    for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY"] {
        check(&[], &[(name, "sk-0123456789abcdef0123")], &[name, "inference.egress_url"]);
    }
    let local = "inference.base_url=http://127.0.0.1:9/v1";
    let token = format!("inference.token_file={key}");
    check(
        &["--set", local, "--set", "inference.model=m", "--set", &token],
        &[],
        &["inference.token_file", "provider's key"],
    );
    check(&["--set", "inference.api_key=sk-0123456789abcdef0123"], &[], &["api_key", "inference.egress_url"]);
    let direct = "inference.base_url=https://api.openai.com/v1";
    check(
        &["--set", direct, "--set", "inference.model=m"],
        &[],
        &["inference.base_url", "openai.com", "egress"],
    );
    check(&["--set", "inference.providers=[{name=\"a\", model=\"b\"}]"], &[], &["inference.egress_url"]);
    check(&["--set", local], &[], &["inference.model"]);
    check(
        &["--set", "inference.base_url=http://me:secret@127.0.0.1/v1", "--set", "inference.model=m"],
        &[],
        &["token file"],
    );
    check(&["--set", "inference.backend=replay"], &[], &["inference.recording"]);
}
