//! P15, P19: which models may answer, in which order, and which keys are refused.

use std::fs;

use serde_json::json;
use subjects::{Completion, ErrorCode, Handoff, Kind, Preference, PreferenceScope};
use testkit::{Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, run, workspace};

pub(crate) fn routing(key: &str, value: serde_json::Value) -> Preference {
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

/// Asks under a lease of Ada.
async fn ask(orchestrator: &Orchestrator, preferences: Vec<Preference>) -> Completion {
    let mut question = chat("hello");
    question.context.preferences = Some(preferences);
    orchestrator.publish_under(&question, &lease(&question)).await;
    orchestrator.completion(Kind::Chat, question.id).await
}

/// A lease for a handoff. The worker does not check its signature.
fn lease(handoff: &Handoff) -> String {
    let lease = policy::Lease {
        lease_id: "l-1".into(),
        agent: policy::AgentKind::ProjectManager,
        user_id: "ada".into(),
        project_id: None,
        task_id: None,
        run_id: None,
        job_id: None,
        handoff_id: Some(handoff.id.to_string()),
        tools: None,
        profile: None,
        node: None,
        holder: None,
        audit_quota: None,
        local: Default::default(),
        rules: None,
        not_before: 0,
        expires_at: i64::MAX,
        key: String::new(),
    };
    lease.sign(&nkeys::KeyPair::new_user()).unwrap()
}

pub(crate) fn with_egress(worker: WorkerBuilder, egress: &Model, folder: &std::path::Path) -> WorkerBuilder {
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
    assert!(external.asked()[0].lease.as_ref().is_some_and(|lease| lease.starts_with("cyl1.")));
    assert!(local.asked().iter().all(|asked| asked.lease.is_none()), "a local model gets no lease");
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

/// P15, P21: external models are asked on behalf of a user only.
#[tokio::test]
async fn handoff_without_a_lease_reaches_no_external_provider() {
    let nats = Nats::start();
    let folder = tempfile::tempdir().unwrap();
    let external = Model::start([Script::say("external")]).await;
    let _worker = with_egress(Worker::manager(&nats), &external, folder.path()).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = chat("hello");
    question.context.preferences = Some(vec![routing("allowed_external_providers", json!(["v1"]))]);
    let id = orchestrator.publish(&question).await;
    let error = orchestrator.completion(Kind::Chat, id).await.error.unwrap();
    assert!(error.message.contains("no lease") && error.message.contains("Cynode-Lease"), "{error:?}");
    assert!(external.asked().is_empty());
}

/// A budget that is used up, a lease and a preference concern one user: other handoffs go on. The user reads
/// why.
#[tokio::test]
async fn denial_of_the_egress_concerns_one_handoff_only() {
    let nats = Nats::start();
    let folder = tempfile::tempdir().unwrap();
    let used_up = "Ada has used up the budget for v1 with tools, parameters and schemas.";
    let scripts = [402, 403].map(|status| Script::Refuse(status, used_up.to_owned()));
    let external = Model::start(scripts.into_iter().chain([Script::say("fine")])).await;
    let _worker = with_egress(Worker::manager(&nats), &external, folder.path()).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let allowed = || vec![routing("allowed_external_providers", json!(["v1"]))];
    for count in 1..=2 {
        let error = ask(&orchestrator, allowed()).await.error.unwrap();
        assert!(error.message.contains(used_up), "the user reads why: {error:?}");
        assert_eq!(external.asked().len(), count, "a denial is not tried again");
    }
    assert_eq!(said(&ask(&orchestrator, allowed()).await), "fine", "no breaker is open");
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
