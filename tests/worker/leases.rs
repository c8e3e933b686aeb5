//! Leases from the handoff to the gateway: worker, gateway and analyst as one system (P21, P22, W6).

mod earlier_attempts;
mod other_tasks;
mod outage;

use std::fs;

use async_nats::HeaderMap;
use serde_json::{Value, json};
use subjects::{
    Act, Artifact, Completion, Encoding, ErrorCode, FindingsStatus, Handoff, HandoffId, Kind, Plan, Scope,
    Status, Verify, Work, streams,
};
use testkit::{
    Answer, Gateway, GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker,
    WorkerBuilder, chat, cynodectl, eventually, handoff, run, typical, workspace,
};

/// A verification by the criteria of the task.
fn verification(task: &str) -> Handoff {
    handoff(Work::Verify(Verify {
        task_id: task.parse().unwrap(),
        acceptance_criteria: Vec::new(),
        artifacts: Vec::new(),
        evidence: Vec::new(),
        policy: None,
    }))
}

struct Stage {
    nats: Nats,
    gateway: GatewayProcess,
    orchestrator: Orchestrator,
}

impl Stage {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_delivering_again_after("30s", settings).await
    }

    /// Creates queues that deliver a killed worker's handoff again after this time.
    async fn start_delivering_again_after(ack_wait: &str, settings: &[(&str, &str)]) -> Self {
        let (nats, gateway) = (Nats::start(), GatewayProcess::start_with(settings).await);
        // The streams are there before anything is published.
        drop(Worker::manager(&nats).set("worker.ack_wait", ack_wait).start().await);
        drop(Worker::analyst(&nats).start().await);
        let orchestrator = Orchestrator::connect(&nats).await;
        Self { nats, gateway, orchestrator }
    }

    /// Returns a worker with a token of its agent type that is bound to nothing.
    async fn worker(&self, agent: &str, model: &Model) -> WorkerBuilder {
        let worker = match agent {
            "project_manager" => Worker::manager(&self.nats).set("analysts.enabled", "true"),
            _ => Worker::analyst(&self.nats),
        };
        let file = self.gateway.folder().join(format!("{agent}.token"));
        fs::write(&file, self.gateway.unbound(agent).await).unwrap();
        worker
            .asking(model)
            .set("gateway.url", self.gateway.url())
            .set("gateway.token_file", file.display().to_string())
    }

    async fn lease(
        &self,
        agent: &str,
        user: &str,
        handoff: HandoffId,
        task: Option<&str>,
    ) -> (String, String) {
        let new =
            json!({ "agent": agent, "user_id": user, "handoff_id": handoff.to_string(), "task_id": task });
        self.gateway.lease(new).await
    }

    /// Publishes a handoff to a manager under a lease for a user and returns the answer and the lease's id.
    async fn ask(&self, user: &str, handoff: Handoff) -> (Completion, String) {
        let (id, lease) = self.lease("project_manager", user, handoff.id, None).await;
        self.orchestrator.publish_under(&handoff, &lease).await;
        (self.orchestrator.completion(handoff.kind(), handoff.id).await, id)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let manager = self.gateway.agent(&self.gateway.manager().await);
        let reply = self.gateway.call(&manager, tool, arguments).await.unwrap();
        assert!(!reply.is_error, "{}", reply.text);
        reply.structured.unwrap()
    }

    async fn task(&self, user: &str, criterion: &str) -> String {
        let new =
            json!({ "name": format!("of-{user}"), "user_id": user, "acceptance_criteria": [criterion] });
        self.call("db.task.create", new).await["task_id"].as_str().unwrap().to_owned()
    }

    async fn lease_state(&self, id: &str) -> String {
        let lease = self.gateway.must("GET", &format!("/api/v1/leases/{id}"), None).await;
        lease["state"].as_str().unwrap().to_owned()
    }

    /// Waits until a lease is given back.
    async fn revoked(&self, id: &str) {
        eventually("the lease is given back", async || {
            (self.lease_state(id).await == "revoked").then_some(())
        })
        .await;
    }
}

/// A judge that quotes the material: not met if it says so.
fn judge(asked: &ModelRequest) -> Script {
    let material = asked.messages().iter().filter_map(|message| message["content"].as_str());
    let text: String = material.filter(|text| text.contains("Material on task")).collect();
    let quoted = text.lines().find(|line| line.contains("the build"));
    let quoted = quoted.map(|line| line.trim_start_matches("> ").to_owned());
    let verdict = match &quoted {
        Some(line) if line.contains("fails") => "not_met",
        Some(_) => "met",
        None => "unclear",
    };
    let judgement = json!({ "verdict": verdict, "severity": "major", "evidence": quoted,
        "location": null, "recommended_action": null });
    Script::Say(judgement.to_string())
}

/// Tasks made by chat belong to the user of the lease, whatever the model writes, and the lease ends with the
/// handoff.
#[tokio::test]
async fn task_made_by_chat_has_its_owner_and_the_lease_ends_with_the_handoff() {
    let stage = Stage::start().await;
    let create = json!({ "name": "water-plants", "user_id": "user123" });
    let model = Model::start([Script::call("db__task__create", &create), Script::say("Created.")]).await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let (answer, lease) = stage.ask("ada", chat("Create a task: water the plants")).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    let id = answer.tasks[0].task_id.to_string();
    assert_eq!(stage.call("db.task.get", json!({ "task_id": id })).await["user_id"], "ada");
    let told = model.turns().pop().unwrap().messages().last().unwrap()["content"].to_string();
    assert!(told.contains("user_id was set to ada"), "{told}");
    stage.revoked(&lease).await;
    let rows = stage.gateway.audit(&format!("lease_id={lease}&limit=100")).await;
    assert!(rows.len() >= 2 && rows.iter().all(|row| row["user_id"] == "ada"), "{rows:?}");
}

/// A tool of a server that a user installed is used in a chat of that user, and of no other user.
#[tokio::test]
async fn installed_tool_is_used_in_a_chat() {
    let stage = Stage::start().await;
    let files = Gateway::start(vec![Tool::new(
        "read",
        "Reads a file of the user.",
        json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
        |_| Answer::text("buy milk"),
    )])
    .await;
    let server = json!({ "namespace": "files", "transport": { "http": { "url": files.url() } },
        "trust_first": true, "owner": "ada" });
    stage.gateway.must("POST", "/api/v1/upstreams", Some(server)).await;
    let read = json!({ "path": "todo.txt" });
    let model = Model::start_answering(
        move |asked: &ModelRequest| match asked.messages().last().unwrap()["role"].as_str() {
            Some("user") if asked.body["tools"].to_string().contains("files__read") => {
                Script::call("files__read", &read)
            }
            Some("user") => Script::say("There is no such tool."),
            _ => Script::say("It says: buy milk."),
        },
        judge,
    )
    .await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let question = "Read my file todo.txt with files.read";
    let (answer, _) = stage.ask("ada", chat(question)).await;
    let tools = answer.trace.steps.iter().filter(|step| step.act == Act::Tool).map(|step| &*step.name);
    assert!(tools.clone().any(|name| name == "files.read"), "{answer:?}");
    assert_eq!(files.calls().len(), 1);
    let (answer, _) = stage.ask("eve", chat(question)).await;
    assert_eq!(answer.message.unwrap().content, "There is no such tool.");
    assert_eq!(files.calls().len(), 1);
}

/// P22: the findings of an analyst are in the store, and what is not met became a task of the user.
#[tokio::test]
async fn findings_are_recorded_and_become_a_task() {
    let stage = Stage::start().await;
    let task = stage.task("ada", "the build works").await;
    let report = json!({ "task_id": task, "path": "log.txt", "content": "the build fails in step 3" });
    stage.call("artifact.put", report).await;
    let verify = json!({ "task_id": "of-ada" });
    let model = Model::start_with_structured(
        [Script::call("request_verification", &verify), Script::say("It is not done.")],
        judge,
    )
    .await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let _analyst = stage.worker("project_analyst", &model).await.start().await;
    let (answer, lease) = stage.ask("ada", chat("Is of-ada done?")).await;
    let [verification] = &answer.verifications[..] else { panic!("{answer:?}") };
    assert_eq!(verification.status, Some(FindingsStatus::Fail), "{verification:?}");
    let found = stage.call("db.finding.list", json!({ "task_id": task })).await;
    let [finding] = &found["items"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!(
        (&finding["verdict"], &finding["evidence"]),
        (&json!("not_met"), &json!("the build fails in step 3"))
    );
    let tasks = stage.call("db.task.list", json!({ "parent_task_id": task })).await;
    let [remedy] = &tasks["items"].as_array().unwrap()[..] else { panic!("{tasks}") };
    assert_eq!((&remedy["user_id"], &remedy["title"]), (&json!("ada"), &json!("Remedy: the build works")));
    assert!(answer.message.unwrap().content.contains("remedy-the-build-works"));
    // The analyst's lease was issued under the manager's, and both ended.
    stage.revoked(&lease).await;
    let leases = stage.gateway.must("GET", "/api/v1/leases", None).await;
    let of_analyst = leases.as_array().unwrap().iter().find(|it| it["agent"] == "project_analyst").unwrap();
    assert_eq!((&of_analyst["parent_id"], &of_analyst["task_id"]), (&json!(lease), &json!(task)));
    assert_eq!(of_analyst["state"], "revoked");
}

/// Two users, two tasks, one analyst instance, interleaved: each verification sees and writes its own task.
#[tokio::test]
async fn one_analyst_verifies_for_two_users_at_the_same_time() {
    let stage = Stage::start().await;
    let model = Model::start_with_structured([], judge).await;
    let _analyst = stage.worker("project_analyst", &model).await.start().await;
    let mut asked = Vec::new();
    for user in ["ada", "eve"] {
        let task = stage.task(user, "the build works").await;
        let content = format!("the build of {user} {}", if user == "ada" { "works" } else { "fails" });
        stage.call("artifact.put", json!({ "task_id": task, "path": "log.txt", "content": content })).await;
        for _ in 0..5 {
            let handoff = verification(&task);
            let (lease, text) = stage.lease("project_analyst", user, handoff.id, Some(&task)).await;
            asked.push((user, task.clone(), handoff, lease, text));
        }
    }
    // In turns: ada, eve, ada, …
    for index in 0..5 {
        for (_, _, handoff, _, text) in [&asked[index], &asked[5 + index]] {
            stage.orchestrator.publish_under(handoff, text).await;
        }
    }
    for (user, task, handoff, lease, _) in &asked {
        let findings = stage.orchestrator.findings(handoff.id).await;
        let expected = if *user == "ada" { FindingsStatus::Pass } else { FindingsStatus::Fail };
        assert_eq!((findings.status, findings.error), (expected, None));
        stage.revoked(lease).await;
        let rows = stage.gateway.audit(&format!("lease_id={lease}&limit=100")).await;
        let is_own =
            |row: &Value| row["user_id"] == *user && row["task_id"] == **task && row["decision"] == "allow";
        assert!(rows.len() >= 4 && rows.iter().all(is_own), "{rows:?}");
    }
    for (_, task, ..) in [&asked[0], &asked[5]] {
        let found = stage.call("db.finding.list", json!({ "task_id": task })).await;
        assert_eq!(found["items"].as_array().unwrap().len(), 5);
    }
}

/// Evidence that is not in the material is asked for again, and does not count.
#[tokio::test]
async fn verdict_with_invented_evidence_is_rejected() {
    let stage = Stage::start().await;
    let task = stage.task("ada", "the build works").await;
    stage.call("artifact.put", json!({ "task_id": task, "path": "log.txt", "content": "step 1 of 3" })).await;
    let invented = json!({ "verdict": "met", "severity": "info", "evidence": "the build works, I promise",
        "location": null, "recommended_action": null });
    let nothing = Script::say("There is no evidence.");
    let judge = move |_: &ModelRequest| Script::Say(invented.to_string());
    let model = Model::start_with_structured([nothing], judge).await;
    let _analyst = stage.worker("project_analyst", &model).await.start().await;
    let handoff = verification(&task);
    let (_, lease) = stage.lease("project_analyst", "ada", handoff.id, Some(&task)).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    let findings = stage.orchestrator.findings(handoff.id).await;
    assert_eq!(findings.status, FindingsStatus::NeedsClarification, "{findings:?}");
    assert_eq!(findings.findings[0].evidence, None);
    assert_eq!(model.asked().len(), 3, "asked twice for a verdict, and once to look for evidence");
}

/// An analyst that cannot judge by the material looks for evidence with its tools, which only read.
#[tokio::test]
async fn analyst_looks_for_evidence_with_its_tools() {
    let stage = Stage::start().await;
    let task = stage.task("ada", "the build works").await;
    let put = async |path: &str, content: &str| {
        let new = json!({ "task_id": task, "path": path, "content": content });
        stage.call("artifact.put", new).await["artifact_id"].as_str().unwrap().to_owned()
    };
    let named = put("notes.txt", "nothing of interest").await;
    put("log.txt", "the build works since Monday").await;
    let wrong = json!({ "criterion": "the build works", "verdict": "met", "severity": "info" });
    let turns = [
        Script::call("db__finding__create", &wrong),
        Script::call("artifact__get", &json!({ "path": "log.txt" })),
        Script::say("The log says it."),
    ];
    let model = Model::start_with_structured(turns, judge).await;
    let _analyst = stage.worker("project_analyst", &model).await.start().await;
    let mut handoff = verification(&task);
    if let Work::Verify(verify) = &mut handoff.work {
        verify.artifacts = vec![Artifact { artifact_id: named.parse().unwrap(), path: None }];
    }
    let (_, lease) = stage.lease("project_analyst", "ada", handoff.id, Some(&task)).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    let findings = stage.orchestrator.findings(handoff.id).await;
    assert_eq!(findings.status, FindingsStatus::Pass, "{findings:?}");
    assert_eq!(findings.findings[0].evidence.as_deref(), Some("the build works since Monday"));
    let refused = model.turns()[1].messages().last().unwrap()["content"].to_string();
    assert!(refused.contains("only tools that read"), "{refused}");
    let recorded = stage.call("db.finding.list", json!({ "task_id": task })).await;
    assert_eq!(recorded["items"].as_array().unwrap().len(), 1, "{recorded}");
}

/// A lease that does not fit its handoff is refused before any work.
#[tokio::test]
async fn lease_that_does_not_fit_is_refused() {
    let stage = Stage::start().await;
    let model = Model::start([Script::say("done")]).await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let of_eve = |mut handoff: Handoff| {
        handoff.scope.user_id = Some("eve".parse().unwrap());
        handoff
    };
    let (_, of_other) = stage.lease("project_manager", "ada", HandoffId::now(), None).await;
    let (_, of_analyst) =
        stage.gateway.lease(json!({ "agent": "project_analyst", "user_id": "ada", "task_id": "t" })).await;
    let (_, general) = stage.gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    for (handoff, lease, code) in [
        (chat("x"), of_other.as_str(), ErrorCode::ScopeMismatch),
        (chat("x"), &of_analyst, ErrorCode::InvalidHandoff),
        (chat("x"), "nonsense", ErrorCode::InvalidHandoff),
        (of_eve(chat("x")), &general, ErrorCode::ScopeMismatch),
    ] {
        stage.orchestrator.publish_under(&handoff, lease).await;
        let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
        assert_eq!(answer.error.map(|error| error.code), Some(code));
    }
    assert!(model.asked().is_empty());
    let fits = chat("x");
    stage.orchestrator.publish_under(&fits, &general).await;
    assert_eq!(stage.orchestrator.completion(Kind::Chat, fits.id).await.status, Status::Completed);
}

/// A handoff whose lease was revoked fails and says so; it does not look as if there were no tools.
#[tokio::test]
async fn handoff_under_a_revoked_lease_fails() {
    let stage = Stage::start().await;
    let model = Model::start([Script::say("done")]).await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    for user in ["ada", "eve"] {
        let handoff = chat("x");
        let (id, lease) = stage.lease("project_manager", user, handoff.id, None).await;
        stage.gateway.must("DELETE", &format!("/api/v1/leases/{id}"), None).await;
        stage.orchestrator.publish_under(&handoff, &lease).await;
        let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
        let error = answer.error.unwrap();
        assert_eq!(error.code, ErrorCode::ToolRejected, "{error:?}");
        assert!(error.message.contains("the lease was revoked"), "{error:?}");
    }
    assert!(model.asked().is_empty(), "nothing was paid");
}

/// A lease that expires while its handoff waits or is worked on is renewed, also by the worker that takes
/// over after a crash; the effect happens once.
#[tokio::test]
async fn expired_lease_is_renewed_also_after_a_crash() {
    let stage = Stage::start_delivering_again_after("2s", &[("leases.lifetime", "3s")]).await;
    let create = json!({ "name": "once" });
    let model = Model::start([Script::call("db__task__create", &create), Script::say("Created.")]).await;
    let settings = stage.worker("project_manager", &model).await.set("worker.ack_wait", "2s");
    let handoff = chat("Create a task: once");
    let (id, lease) = stage.lease("project_manager", "ada", handoff.id, None).await;
    eventually("it expires", async || (stage.lease_state(&id).await == "renewable").then_some(())).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    let mut first = settings.clone().stopping_at("ToolAnswered#2").start().await;
    eventually("it stops", async || first.log().contains("\"stops\":true").then_some(())).await;
    first.process.kill();
    let _second = settings.start().await;
    let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2), "{answer:?}");
    let tasks = stage.call("db.task.list", json!({ "text": "once" })).await;
    assert_eq!(tasks["items"].as_array().unwrap().len(), 1, "{tasks}");
    stage.revoked(&id).await;
}

/// A copy without the lease does not go on with the work: its calls would be made for the whole system, and
/// the gateway would not know them again.
#[tokio::test]
async fn copy_without_the_lease_does_not_continue_the_handoff() {
    let stage = Stage::start().await;
    let create = json!({ "name": "once" });
    let model = Model::start([Script::call("db__task__create", &create), Script::say("Created.")]).await;
    let settings = stage.worker("project_manager", &model).await.set("worker.ack_wait", "2s");
    let user = Scope { user_id: Some("ada".parse().unwrap()), ..Scope::default() };
    let handoff = Handoff { scope: user, ..chat("Create a task: once") };
    let (_, lease) = stage.lease("project_manager", "ada", handoff.id, None).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    let mut first = settings.clone().stopping_at("ToolAnswered#2").start().await;
    eventually("it stops", async || first.log().contains("\"stops\":true").then_some(())).await;
    first.process.kill();
    // Only the copy is left, so that it is the next to be claimed.
    stage.orchestrator.jetstream.get_stream(streams::HANDOFFS).await.unwrap().purge().await.unwrap();
    let body = handoff.encode(Encoding::Json).unwrap();
    stage.orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), body).await;
    let _second = settings.start().await;
    eventually("the copy is refused", async || {
        (stage.orchestrator.stored(streams::DEAD).await == 1).then_some(())
    })
    .await;
    let letters = stage.orchestrator.contents(streams::DEAD).await;
    assert!(format!("{:?}", letters[0].headers).contains("scope_mismatch"), "{letters:?}");
    assert_eq!(stage.orchestrator.answer(Kind::Chat, handoff.id).await, None);
    let tasks = stage.call("db.task.list", json!({ "text": "once" })).await;
    assert_eq!(tasks["items"].as_array().unwrap().len(), 1, "{tasks}");
}

/// A handoff that failed keeps its lease for a replay; the replay gives it back.
#[tokio::test]
async fn replay_goes_on_under_the_same_lease() {
    let stage = Stage::start().await;
    let create = Script::call("db__task__create", &json!({ "name": "late" }));
    let model = Model::start([create, Script::say("Created.")]).await;
    model.fail_with(Some(400));
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let handoff = chat("Create a task: late");
    let (id, lease) = stage.lease("project_manager", "ada", handoff.id, None).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!(answer.status, Status::Failed, "{answer:?}");
    assert_eq!(stage.lease_state(&id).await, "active");
    model.fail_with(None);
    let url = stage.nats.url();
    let replaying = move || run(&cynodectl(), workspace(), &["--server", &url, "dead", "replay", "1"], &[]);
    let replayed = tokio::task::spawn_blocking(replaying).await.unwrap();
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let answer = stage.orchestrator.completion(Kind::Chat, handoff.id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    let task = stage.call("db.task.get", json!({ "task_id": answer.tasks[0].task_id })).await;
    assert_eq!(task["user_id"], "ada");
    stage.revoked(&id).await;
}

/// A plan under a lease: all its tasks belong to the user.
#[tokio::test]
async fn tasks_of_a_plan_have_their_owner() {
    let stage = Stage::start().await;
    let model = Model::start_with_structured([], |asked: &ModelRequest| {
        Script::Say(typical(asked.form().unwrap()).to_string())
    })
    .await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let (acceptance_criteria, constraints) = (Vec::new(), Vec::new());
    let goal = "Publish the site".to_owned();
    let handoff = handoff(Work::Plan(Plan { goal, acceptance_criteria, constraints, task_id: None }));
    let (answer, _) = stage.ask("ada", handoff).await;
    assert!(!answer.tasks.is_empty(), "{answer:?}");
    for change in &answer.tasks {
        let task = stage.call("db.task.get", json!({ "task_id": change.task_id })).await;
        assert_eq!(task["user_id"], "ada");
    }
}
