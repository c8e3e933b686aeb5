//! With the keys and permissions of `deploy/nats`, every identity can do its work without a permissions
//! violation.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream::consumer::pull};
use futures_util::StreamExt;
use serde_json::json;
use subjects::{
    ErrorCode, FindingsStatus, Handoff, Kind, Role, Status, Subject, journal::SPILL_THRESHOLD, streams,
};
use testkit::{
    Gateway, GatewayProcess, Model, ModelRequest, NodeBuilder, Orchestrator, OrchestratorBuilder,
    RunnerBuilder, Script, Tool, Worker, WorkerBuilder, chat, eventually, eventually_within, typical, verify,
};

use super::stage::{LAYOUT, Stage};

/// Permissions violations are in the log of the client that caused them.
#[track_caller]
fn assert_no_violations(worker: &Worker) {
    let log = worker.log();
    let objections: Vec<_> = log.lines().filter(|line| line.contains("ermissions")).collect();
    assert!(objections.is_empty(), "{objections:#?}");
}

fn tools() -> Vec<Tool> {
    let any = json!({ "type": "object" });
    vec![
        Tool::new("db.task.get", "Reads a task.", any.clone(), |_| {
            testkit::Answer::task("deploy-docs-2", "x", &["It was published"])
        }),
        Tool::new("db.task.create", "Creates a task.", any.clone(), |_| {
            testkit::Answer::text("x".repeat(SPILL_THRESHOLD + 1))
        }),
        // As the typical judgement quotes it.
        Tool::new("artifact.list", "Lists the artifacts of a task.", any.clone(), |_| {
            testkit::Answer::text("logs/deploy.txt: published in 212 s")
        }),
        Tool::new("db.finding.create", "Records a finding.", any, |_| testkit::Answer::text("recorded")),
    ]
}

/// Limits large enough for the tools above.
fn calling(worker: WorkerBuilder, gateway: &Gateway) -> WorkerBuilder {
    worker
        .calling(gateway)
        .set("worker.ack_wait", "30s")
        .set("agent.assess_input", "false")
        .set("agent.context_tokens", "1000000")
        .set("gateway.max_result_bytes", "1000000")
}

/// C7: a handoff with streamed text and progress, a verification that the manager requests, the answer and
/// its copy; then all read operations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handoff_is_answered_and_verified_with_the_deployed_credentials() {
    let stage = Stage::start().await;
    let gateway = Gateway::start(tools()).await;
    let wanted = json!({ "task_id": "deploy-docs-2" });
    let turns = [Script::call("request_verification", &wanted), Script::say("Verified.")];
    let think = |asked: &ModelRequest| Script::Say(typical(asked.form().unwrap()).to_string());
    let model = Model::start_with_structured(turns, think).await;
    let manager =
        stage.worker(Role::ProjectManager).set("analysts.enabled", "true").set("instance", "pm-one");
    let manager = calling(manager.asking(&model), &gateway).start().await;
    let analyst = stage.worker(Role::ProjectAnalyst).set("instance", "pa-one");
    let analyst = calling(analyst.asking(&model), &gateway).start().await;

    let client = stage.identity("orchestrator").await.client;
    let orchestrator = Orchestrator::over(client.clone()).laid_out(LAYOUT);
    let mut copies = client.subscribe("pma.reply.copies").await.unwrap();
    let mut heard = client.subscribe("pma.run.*.completion").await.unwrap();
    let mut events = client.subscribe("pma.event.*").await.unwrap();
    let asked = Handoff { reply_to: Some("pma.reply.copies".to_owned()), ..chat("Is deploy-docs-2 done?") };
    let id = orchestrator.publish(&asked).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert_eq!(answer.verifications[0].status, Some(FindingsStatus::Pass), "{answer:?}");
    for heard in [&mut copies, &mut heard, &mut events] {
        tokio::time::timeout(Duration::from_secs(10), heard.next()).await.expect("heard").unwrap();
    }
    // A durable consumer misses no answer.
    let config = pull::Config {
        durable_name: Some("orchestrator".to_owned()),
        filter_subject: "pma.run.*.completion".to_owned(),
        ..Default::default()
    };
    let consumer = orchestrator.jetstream.create_consumer_on_stream(config, streams::RUNS).await.unwrap();
    let mut batch = consumer.fetch().max_messages(1).messages().await.unwrap();
    batch.next().await.unwrap().unwrap().ack().await.unwrap();

    let observer = |command: &[&str]| {
        let finished = stage.ctl("observer", command);
        assert_eq!(finished.code, 0, "{command:?}: {finished:?}");
        finished.stdout
    };
    let status = observer(&["status"]);
    assert!(status.contains("pm-one") && status.contains("pa-one"), "{status}");
    let life = observer(&["journal", "show", &id.to_string()]);
    assert!(life.contains("pm-one"), "{life}");
    // Following needs a consumer, and a client that can create one can also change others.
    let verification = answer.verifications[0].handoff_id.to_string();
    let followed = stage.ctl("operator", &["journal", "show", &verification, "--follow"]);
    assert_eq!(followed.code, 0, "{followed:?}");
    assert_no_violations(&manager);
    assert_no_violations(&analyst);
}

/// A worker dies after it stored an entry that is too large for a message; the next one reads it and
/// continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spilled_entry_is_found_by_the_next_worker() {
    let stage = Stage::unprovisioned(1).await;
    assert_eq!(stage.ctl("provisioner", &["provision", "--ack-wait", "1s"]).code, 0);
    let gateway = Gateway::start(tools()).await;
    let model = Model::start([Script::call("db__task__create", &json!({})), Script::say("fini")]).await;
    let settings =
        calling(stage.worker(Role::ProjectManager).asking(&model), &gateway).set("worker.ack_wait", "1s");
    let mut first = settings.clone().stopping_at("Appended#2").start().await;
    let orchestrator = stage.orchestrator().await;
    let id = orchestrator.publish(&chat("create the tasks at length")).await;
    eventually("the entry to be stored", async || first.log().contains("\"stops\":true").then_some(())).await;
    first.process.kill();
    assert_no_violations(&first);
    let second = settings.start().await;
    let standing = async || orchestrator.answer(Kind::Chat, id).await;
    eventually("an answer", async || {
        assert_no_violations(&second);
        standing().await
    })
    .await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2), "{answer:?}");
    let shown = stage.ctl("operator", &["journal", "show", &id.to_string()]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_no_violations(&second);
}

/// An operator cancels running handoffs, and replays and drops dead letters; an observer can read them but
/// neither cancel nor drop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_cancels_replays_and_drops() {
    let stage = Stage::start().await;
    let worker = stage.worker(Role::ProjectManager).thinking(Duration::from_secs(600)).start().await;
    let orchestrator = stage.orchestrator().await;
    let id = orchestrator.publish(&chat("long")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    let by_observer = stage.ctl("observer", &["cancel", &id.to_string(), "--timeout", "1s"]);
    assert_ne!(by_observer.code, 0, "{by_observer:?}");
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none(), "an observer cancelled");
    stage.ctl("operator", &["cancel", &id.to_string()]);
    let answer = orchestrator.wait_for_answer(Kind::Chat, id).await;
    assert_eq!(answer.error().map(|error| error.code), Some(ErrorCode::Cancelled));

    let unfit = chat("x").encode(subjects::Encoding::Json).unwrap();
    let unfit = String::from_utf8(unfit).unwrap().replace("cynodeai.pm", "cynodeai.xx");
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), unfit.into_bytes()).await;
    let letters = async || {
        let listed = stage.ctl("observer", &["dead", "ls", "--json"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.stdout.lines().filter(|line| line.contains("not_for_pma")).count()
    };
    eventually("the dead letter", async || (letters().await == 1).then_some(())).await;
    let by_observer = stage.ctl("observer", &["dead", "drop", "--all", "--yes"]);
    assert_ne!(by_observer.code, 0, "{by_observer:?}");
    assert_eq!(letters().await, 1, "an observer dropped a dead letter");
    let replayed = stage.ctl("operator", &["dead", "replay", "--all"]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
    eventually("the replay to be refused again", async || (letters().await == 1).then_some(())).await;
    let dropped = stage.ctl("operator", &["dead", "drop", "--all", "--yes"]);
    assert_eq!((dropped.code, letters().await), (0, 0), "{dropped:?}");
    assert_no_violations(&worker);
}

/// Dead-lettering after the delivery limit works for both roles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_roles_dead_letter_after_the_delivery_limit() {
    for (role, handoff) in [(Role::ProjectManager, chat("too much")), (Role::ProjectAnalyst, verify("t-1"))] {
        let stage = Stage::start().await;
        two_deliveries_only(&stage, handoff.kind()).await;
        let orchestrator = stage.orchestrator().await;
        let id = orchestrator.publish(&handoff).await;
        let settings = stage.worker(role).set("nats.provision", "none").set("worker.ack_wait", "3s");
        for _ in 0..2 {
            let mut dies = settings.clone().thinking(Duration::from_secs(600)).start().await;
            dies.wait_for_in_flight(handoff.kind(), 1).await;
            dies.process.kill();
        }
        let worker = settings.set("worker.sweep_every", "1s").start().await;
        let answer = orchestrator.wait_for_answer(handoff.kind(), id).await;
        assert_eq!(answer.error().map(|error| error.code), Some(ErrorCode::Poisoned), "{role}");
        orchestrator.wait_until_settled().await;
        // Counted shortly after it left the queue.
        eventually(&format!("{role}: the handoff to be counted"), async || {
            let moved = worker.metric("pma_dead_moved_total").await?;
            let swept = worker.metric("pma_dead_swept_total").await?;
            (moved + swept >= 1.0).then_some(())
        })
        .await;
        assert_no_violations(&worker);
    }
}

/// The orchestrator answers chats, streamed and whole, cancels, and notices revoked keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrator_serves_clients_with_the_deployed_credentials() {
    let stage = Stage::start().await;
    let link = |identity: &str, prefix: &str| {
        [
            ("nats.url", stage.url()),
            ("nats.nkey_file", stage.path(&format!("{identity}.nk"))),
            ("nats.inbox_prefix", prefix.to_owned()),
            ("nats.layout", LAYOUT.to_string()),
            ("nats.tls.required", "true".to_owned()),
            ("nats.tls.ca_file", stage.path("tls/ca.crt")),
            ("nats.tls.cert_file", stage.path("tls/tls.crt")),
            ("nats.tls.key_file", stage.path("tls/tls.key")),
        ]
    };
    let settings = link("gateway", "_INBOX_gateway");
    let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let gateway = GatewayProcess::start_with(&settings).await;
    let model = Model::start([Script::say("Whole."), Script::say("Streamed."), Script::Hang]).await;
    let manager = stage.worker(Role::ProjectManager).asking(&model).set("inference.timeout", "5m");
    let manager = manager.calling_process(&gateway).await.start().await;
    let door = OrchestratorBuilder::at(&stage.url(), &gateway).await;
    let door = link("orchestrator", "_INBOX").iter().fold(door, |door, (key, value)| door.set(key, value));
    let door = door.start().await;
    door.wait_until_it_hands_off().await;

    let (key_id, key) = gateway.api_key("ada").await;
    let client = door.client(&key);
    assert_eq!(client.ask("hello").await.content(), "Whole.");
    let streamed = client.stream(&[("user", "hello again")]).await.read().await;
    assert_eq!((streamed.content.as_str(), streamed.is_done), ("Streamed.", true), "{streamed:?}");
    let stream = client.stream(&[("user", "never mind")]).await;
    let path = format!("/chat/completions/chatcmpl-{}/cancel", stream.header("x-cynode-handoff").unwrap());
    manager.wait_for_in_flight(Kind::Chat, 1).await;
    let cancelled = client.send("POST", &path, None).await;
    assert_eq!((cancelled.status, cancelled.code()), (409, "cancelled"));
    // Heard over NATS, long before the key would have been checked again.
    gateway.must("DELETE", &format!("/api/v1/tokens/{key_id}"), None).await;
    eventually("the key to be refused", async || {
        (client.send("GET", "/models", None).await.status == 401).then_some(())
    })
    .await;
    for log in [door.log(), gateway.log()] {
        let objections: Vec<_> = log.lines().filter(|line| line.contains("ermissions")).collect();
        assert!(objections.is_empty(), "{objections:#?}");
    }
    assert_no_violations(&manager);
}

async fn two_deliveries_only(stage: &Stage, kind: Kind) {
    let jetstream = async_nats::jetstream::new(stage.identity("provisioner").await.client);
    let stream = jetstream.get_stream(LAYOUT.handoffs(kind.role())).await.unwrap();
    let name = streams::consumer_name(kind);
    stream.delete_consumer(name).await.unwrap();
    let config = pull::Config {
        durable_name: Some(name.to_owned()),
        filter_subject: Subject::Handoff(kind).to_string(),
        // A worker whose heartbeat is late would get the second delivery itself.
        ack_wait: Duration::from_secs(3),
        max_deliver: 2,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
}

/// A node takes a job from the gateway, runs it, and stores its log, file and result; it hears a cancel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_runs_jobs_with_the_deployed_credentials() {
    let stage = Stage::start().await;
    let link = |identity: &str| {
        [
            ("nats.url", stage.url()),
            ("nats.nkey_file", stage.path(&format!("{identity}.nk"))),
            ("nats.inbox_prefix", format!("_INBOX_{identity}")),
            ("nats.tls.required", "true".to_owned()),
            ("nats.tls.ca_file", stage.path("tls/ca.crt")),
            ("nats.tls.cert_file", stage.path("tls/tls.crt")),
            ("nats.tls.key_file", stage.path("tls/tls.key")),
        ]
    };
    let settings = link("gateway");
    let mut settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let layout = LAYOUT.to_string();
    settings.push(("nats.layout", &layout));
    let gateway = GatewayProcess::start_with(&settings).await;
    let elsewhere = testkit::Nats::start();
    let node = NodeBuilder::new("build-1", &elsewhere, &gateway).await.at_nats(&stage.url());
    let settings = link("node-build-1").into_iter().skip(1);
    let node = settings.fold(node, |node, (key, value)| node.set(key, value));
    // As the unit does.
    let node = node.set("nats.provision", "verify").set("node.ack_wait", "30s").start().await;
    let manager = gateway.agent(&gateway.manager().await);
    let call = async |tool: &str, arguments: serde_json::Value| {
        let reply = gateway.call(&manager, tool, arguments).await.expect(tool);
        assert!(!reply.is_error, "{tool}: {}", reply.text);
        reply.structured.unwrap()
    };
    let task =
        call("db.task.create", json!({ "title": "Run things", "user_id": "ada" })).await["task_id"].clone();
    for place in [json!({ "pool": "default" }), json!({ "node_id": "build-1" })] {
        let mut run = json!({
            "task_id": task, "script": "echo built | tee out.txt", "outputs": ["out.txt"], "wait_seconds": 60,
        });
        run.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        let job = call("sandbox.run", run).await;
        assert_eq!((&job["status"], &job["node_id"]), (&json!("completed"), &json!("build-1")), "{job}");
        assert_eq!(job["log_tail"], "built\n", "{job}");
        assert_eq!(job["files"][0]["path"], "out.txt", "{job}");
    }
    let long = call("sandbox.run", json!({ "task_id": task, "script": "sleep 600" })).await["job_id"].clone();
    let state = async || call("sandbox.job.get", json!({ "job_id": long })).await["status"].clone();
    eventually("the job to run", async || (state().await == "running").then_some(())).await;
    call("sandbox.job.cancel", json!({ "job_id": long })).await;
    eventually("the job to end", async || (state().await == "canceled").then_some(())).await;
    for log in [node.log(), gateway.log()] {
        let objections: Vec<_> = log.lines().filter(|line| line.contains("ermissions")).collect();
        assert!(objections.is_empty(), "{objections:#?}");
    }
}

/// A runner takes a workflow, has a manager plan and do its step, and settles the message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_runner_drives_a_task_with_the_deployed_credentials() {
    let stage = Stage::start().await;
    let link = |identity: &str| {
        [
            ("nats.url", stage.url()),
            ("nats.nkey_file", stage.path(&format!("{identity}.nk"))),
            ("nats.inbox_prefix", format!("_INBOX_{identity}")),
            ("nats.tls.required", "true".to_owned()),
            ("nats.tls.ca_file", stage.path("tls/ca.crt")),
            ("nats.tls.cert_file", stage.path("tls/tls.crt")),
            ("nats.tls.key_file", stage.path("tls/tls.key")),
        ]
    };
    let settings = link("gateway");
    let mut settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let layout = LAYOUT.to_string();
    settings.push(("nats.layout", &layout));
    let gateway = GatewayProcess::start_with(&settings).await;
    let manager = stage.worker(Role::ProjectManager).calling_process(&gateway).await.start().await;
    let runner = RunnerBuilder::new(&stage.url(), &gateway).await;
    let runner = link("workflow").iter().fold(runner, |runner, (key, value)| runner.set(key, value));
    let runner = runner.start().await;
    let agent = gateway.agent(&gateway.manager().await);
    let call = async |tool: &str, arguments: serde_json::Value| {
        let reply = gateway.call(&agent, tool, arguments).await.expect(tool);
        assert!(!reply.is_error, "{tool}: {}", reply.text);
        reply.structured.unwrap()
    };
    let task = call("db.task.create", json!({ "title": "List tasks", "user_id": "ada" })).await;
    let task = json!({ "task_id": task["task_id"] });
    call("workflow.start", task.clone()).await;
    eventually_within(Duration::from_secs(60), "the workflow to end", async || {
        let workflow = call("workflow.get", task.clone()).await;
        assert!(!["failed", "waiting"].contains(&workflow["status"].as_str().unwrap()), "{workflow}");
        (workflow["status"] == "done").then_some(())
    })
    .await;
    let queue = async_nats::jetstream::new(stage.identity("observer").await.client);
    eventually("the message to be settled", async || {
        let stream = queue.get_stream(streams::WORKFLOWS).await.unwrap();
        (stream.cached_info().state.messages == 0).then_some(())
    })
    .await;
    for log in [runner.log(), gateway.log()] {
        let objections: Vec<_> = log.lines().filter(|line| line.contains("ermissions")).collect();
        assert!(objections.is_empty(), "{objections:#?}");
    }
    assert_no_violations(&manager);
}

/// The gateway publishes its audit heads, which an observer can verify, and shows handoffs. It may not
/// publish handoffs: replaying a dead letter there fails with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_publishes_audit_heads_and_shows_handoffs() {
    let stage = Stage::start().await;
    let tools = Gateway::start(tools()).await;
    let manager = stage.worker(Role::ProjectManager).set("instance", "pm-one");
    let model = Model::start([Script::say("OK")]).await;
    let manager = calling(manager.asking(&model), &tools).start().await;
    let orchestrator = stage.orchestrator().await;
    let id = orchestrator.publish(&chat("hello")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), b"{}".to_vec()).await;

    let settings = [
        ("nats.url", stage.url()),
        ("nats.nkey_file", stage.path("gateway.nk")),
        ("nats.inbox_prefix", "_INBOX_gateway".to_owned()),
        ("nats.layout", LAYOUT.to_string()),
        ("nats.tls.ca_file", stage.path("tls/ca.crt")),
        ("nats.tls.cert_file", stage.path("tls/tls.crt")),
        ("nats.tls.key_file", stage.path("tls/tls.key")),
        ("audit.seal_every", "100ms".to_owned()),
    ];
    let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let gateway = GatewayProcess::start_with(&settings).await;
    gateway.issue(json!({ "label": "pm", "agent": "project_manager" })).await;
    let observer = async_nats::jetstream::new(stage.identity("observer").await.client);
    eventually("an audit head", async || {
        let stream = observer.get_stream(streams::AUDIT).await.unwrap();
        (stream.cached_info().state.messages > 0).then_some(())
    })
    .await;
    let (address, token) = (gateway.admin_url(), gateway.admin_token_file().display().to_string());
    let verified = stage
        .ctl("observer", &["--gateway", &address, "--admin-token-file", &token, "--json", "audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");

    let work = gateway.must("GET", "/api/v1/work", None).await;
    assert!(work.to_string().contains("pm-one"), "{work}");
    let life = gateway.must("GET", &format!("/api/v1/handoffs/{id}"), None).await;
    assert!(life.to_string().contains("pm-one"), "{life}");
    let letter = eventually("a dead letter", async || {
        gateway.must("GET", "/api/v1/dead", None).await[0]["number"].as_u64()
    })
    .await;
    assert!(!gateway.log().contains("ermissions"), "{}", gateway.log());
    for (method, path) in
        [("POST", format!("/api/v1/dead/{letter}/replay")), ("DELETE", format!("/api/v1/dead/{letter}"))]
    {
        let refused = gateway.ask(method, &path, None).await;
        let says_why = refused.body.to_string().contains("these credentials may not publish to it");
        assert!(refused.status == 502 && says_why, "{refused:?}");
    }
    assert_no_violations(&manager);
}
