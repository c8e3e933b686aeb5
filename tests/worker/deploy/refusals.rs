//! A real server refuses what the permissions do not allow, tested with real keys.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use subjects::{Kind, Role, Subject, streams};
use testkit::{Orchestrator, chat, verify};

use super::stage::Stage;

const EVERYONE: [&str; 10] = [
    "orchestrator",
    "project_manager",
    "project_analyst",
    "gateway",
    "operator",
    "observer",
    "provisioner",
    "workflow",
    "node-build-1",
    "node-build-2",
];
const STREAMS: [&str; 15] = [
    "CYNODE_HANDOFFS",
    "CYNODE_PA_HANDOFFS",
    "CYNODE_RUNS",
    "CYNODE_PA_RUNS",
    "CYNODE_DEAD",
    "CYNODE_ADVISORIES",
    "CYNODE_AUDIT",
    "CYNODE_EVENTS",
    "CYNODE_JOBS",
    "CYNODE_JOB_RUNS",
    "CYNODE_JOB_LOGS",
    "CYNODE_EDGE_AUDIT",
    "CYNODE_WORKFLOWS",
    "OBJ_CYNODE_SPILL",
    "OBJ_CYNODE_PA_SPILL",
];

/// Responses arrive within milliseconds unless the request is refused.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Each subject with the identities that may publish on it. All others are refused.
const MAY_PUBLISH: &[(&str, &[&str])] = &[
    // C6, P2: handoffs come from the orchestrator, and those of workflows from the gateway; a manager may
    // publish verifications; a replay is a handoff.
    ("pma.handoff.chat", &["orchestrator", "operator", "gateway"]),
    ("pma.handoff.schedule", &["orchestrator", "operator"]),
    ("pma.handoff.plan", &["orchestrator", "operator", "gateway"]),
    ("pma.handoff.review", &["orchestrator", "operator", "gateway"]),
    ("pma.handoff.continue", &["orchestrator", "operator"]),
    ("pa.verify", &["orchestrator", "operator", "project_manager"]),
    ("pma.cancel.x", &["orchestrator", "operator", "project_manager", "gateway"]),
    // Journals and answers: only the role that owns the handoff.
    ("pma.run.x.journal", &["project_manager"]),
    ("pma.run.x.completion", &["project_manager"]),
    ("pa.run.x.journal", &["project_analyst"]),
    ("pa.run.x.findings", &["project_analyst"]),
    ("pma.run.x.findings", &[]),
    ("pa.run.x.completion", &[]),
    ("pma.dead.chat", &["project_manager"]),
    ("pa.dead.verify", &["project_analyst"]),
    ("pma.presence", &["project_manager", "project_analyst"]),
    ("pma.delta.x", &["project_manager"]),
    ("cynode.audit.head", &["gateway"]),
    ("cynode.lease.revoked", &["gateway"]),
    ("cynode.key.revoked", &["gateway"]),
    // Queues: only their own role pulls and settles.
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_HANDOFFS.pma-chat", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_HANDOFFS.pma-plan", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_HANDOFFS.pma-review", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_PA_HANDOFFS.pa-verify", &["project_analyst"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_ADVISORIES.pma-dead-mover", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_ADVISORIES.pa-dead-mover", &["project_analyst"]),
    ("$JS.ACK.CYNODE_HANDOFFS.pma-chat.1.1.1.1.0", &["project_manager"]),
    ("$JS.ACK.CYNODE_PA_HANDOFFS.pa-verify.1.1.1.1.0", &["project_analyst"]),
    ("$JS.ACK._.hash.CYNODE_HANDOFFS.pma-chat.1.1.1.1.0", &["project_manager"]),
    ("$JS.ACK._.hash.CYNODE_PA_HANDOFFS.pa-verify.1.1.1.1.0", &["project_analyst"]),
    // Stored messages: a worker reads nothing of the other role, except that a manager reads the findings
    // that it requested.
    ("$JS.API.STREAM.MSG.GET.CYNODE_HANDOFFS", &["project_manager", "operator"]),
    ("$JS.API.STREAM.MSG.GET.CYNODE_PA_HANDOFFS", &["project_analyst", "operator"]),
    (
        "$JS.API.STREAM.MSG.GET.CYNODE_RUNS",
        &["project_manager", "orchestrator", "operator", "observer", "gateway"],
    ),
    (
        "$JS.API.STREAM.MSG.GET.CYNODE_PA_RUNS",
        &["project_manager", "project_analyst", "orchestrator", "operator", "observer", "gateway"],
    ),
    ("$JS.API.DIRECT.GET.CYNODE_RUNS", &["project_manager", "operator", "observer", "gateway"]),
    ("$JS.API.DIRECT.GET.CYNODE_PA_RUNS", &["project_analyst", "operator", "observer", "gateway"]),
    ("$JS.API.DIRECT.GET.CYNODE_RUNS.pma.run.x.completion", &["orchestrator", "operator"]),
    ("$JS.API.DIRECT.GET.CYNODE_RUNS.pma.run.x.journal", &["operator"]),
    (
        "$JS.API.CONSUMER.CREATE.OBJ_CYNODE_SPILL",
        &["project_manager", "operator", "observer", "gateway", "provisioner"],
    ),
    (
        "$JS.API.CONSUMER.CREATE.OBJ_CYNODE_PA_SPILL",
        &["project_analyst", "operator", "observer", "gateway", "provisioner"],
    ),
    ("$O.CYNODE_SPILL.C.x", &["project_manager"]),
    ("$O.CYNODE_PA_SPILL.C.x", &["project_analyst"]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_HANDOFFS", &["project_manager"]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_PA_HANDOFFS", &["project_analyst"]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_DEAD", &["operator"]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_RUNS", &[]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_AUDIT", &[]),
    ("$JS.API.STREAM.MSG.GET.CYNODE_DEAD", &["operator", "observer", "gateway"]),
    ("$JS.API.DIRECT.GET.CYNODE_HANDOFFS", &["operator"]),
    // A new consumer on a queue could read messages of others, and on a work queue it would remove them.
    ("$JS.API.CONSUMER.CREATE.CYNODE_HANDOFFS.mine.pma.handoff.chat", &["provisioner"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_HANDOFFS.mine", &["provisioner"]),
    ("$JS.API.CONSUMER.DURABLE.CREATE.CYNODE_HANDOFFS.mine", &["provisioner"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_RUNS", &["operator", "provisioner"]),
    (
        "$JS.API.CONSUMER.CREATE.CYNODE_RUNS.orchestrator.pma.run.*.completion",
        &["orchestrator", "provisioner"],
    ),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_RUNS.orchestrator", &["orchestrator", "operator"]),
    (
        "$JS.API.CONSUMER.CREATE.CYNODE_PA_RUNS.orchestrator.pa.run.*.findings",
        &["orchestrator", "provisioner"],
    ),
    ("$JS.API.CONSUMER.CREATE.CYNODE_PA_HANDOFFS.mine", &["provisioner"]),
    ("$JS.API.STREAM.SNAPSHOT.CYNODE_PA_RUNS", &[]),
    ("$JS.API.CONSUMER.DELETE.CYNODE_HANDOFFS.mine", &["provisioner"]),
    ("$JS.API.CONSUMER.PAUSE.CYNODE_HANDOFFS.mine", &["provisioner"]),
    // Workflows come from the gateway; runners take and settle them, and do nothing else.
    ("workflow.run", &["gateway"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_WORKFLOWS.workflow-runners", &["workflow"]),
    ("$JS.ACK.CYNODE_WORKFLOWS.workflow-runners.1.1.1.1.0", &["workflow"]),
    ("$JS.ACK._.hash.CYNODE_WORKFLOWS.workflow-runners.1.1.1.1.0", &["workflow"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_WORKFLOWS.mine", &["provisioner"]),
    ("$JS.API.STREAM.MSG.GET.CYNODE_WORKFLOWS", &["operator"]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_WORKFLOWS", &[]),
    // Jobs come from the gateway. What a node writes has its id in the subject.
    ("jobs.class.default_bwrap", &["gateway"]),
    ("jobs.node.build-1", &["gateway"]),
    ("jobs.cancel.x", &["gateway"]),
    ("job.x.gateway.result", &["gateway"]),
    ("job.x.gateway.journal", &[]),
    ("job.x.build-1.journal", &["node-build-1"]),
    ("job.x.build-1.result", &["node-build-1"]),
    ("job.x.build-1.log", &["node-build-1"]),
    ("job.x.build-2.result", &["node-build-2"]),
    ("job.x.build-1.anything", &[]),
    ("node.presence.build-1", &["node-build-1"]),
    ("node.presence.build-2", &["node-build-2"]),
    ("edge.audit.build-1.x", &["node-build-1"]),
    ("edge.audit.build-2.x", &["node-build-2"]),
    ("edge.audit.gateway.x", &[]),
    // Queues of jobs: each node its own, and that of its class. `build-2` is in another pool.
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_JOBS.node-build-1", &["node-build-1"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_JOBS.node-build-2", &["node-build-2"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_JOBS.class-default_bwrap", &["node-build-1"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_JOBS.class-gpu_bwrap", &["node-build-2"]),
    ("$JS.ACK.CYNODE_JOBS.node-build-1.1.1.1.1.0", &["node-build-1"]),
    ("$JS.ACK._.hash.CYNODE_JOBS.class-default_bwrap.1.1.1.1.0", &["node-build-1"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_JOBS.node-build-1.jobs.node.build-1", &["node-build-1", "provisioner"]),
    (
        "$JS.API.CONSUMER.CREATE.CYNODE_JOBS.class-default_bwrap.jobs.class.default_bwrap",
        &["node-build-1", "provisioner"],
    ),
    ("$JS.API.CONSUMER.CREATE.CYNODE_JOBS.node-build-1.jobs.node.build-2", &["provisioner"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_JOBS.mine.jobs.class.default_bwrap", &["provisioner"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_JOBS.node-build-1", &["provisioner"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_JOBS", &["provisioner"]),
    ("$JS.API.CONSUMER.CREATE.CYNODE_JOB_RUNS.mine", &["provisioner"]),
    ("$JS.API.CONSUMER.DELETE.CYNODE_JOBS.class-default_bwrap", &["provisioner"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_JOB_RUNS.gateway-jobs", &["gateway"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_EDGE_AUDIT.gateway-edge-audit", &["gateway"]),
    ("$JS.ACK.CYNODE_JOB_RUNS.gateway-jobs.1.1.1.1.0", &["gateway"]),
    ("$JS.API.STREAM.MSG.GET.CYNODE_JOB_RUNS", &["gateway", "operator", "node-build-1", "node-build-2"]),
    ("$JS.API.STREAM.MSG.GET.CYNODE_JOB_LOGS", &["gateway", "operator"]),
    // Jobs that waited for a removed node.
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_JOBS", &["gateway"]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_JOB_RUNS", &[]),
    ("$JS.API.STREAM.MSG.DELETE.CYNODE_EDGE_AUDIT", &[]),
    ("_INBOX_node-build-1.x", &[]),
    ("$JS.API.STREAM.SNAPSHOT.CYNODE_HANDOFFS", &[]),
    ("$JS.API.STREAM.RESTORE.CYNODE_HANDOFFS", &[]),
    ("$JS.API.ACCOUNT.PURGE.CYNODE", &[]),
    ("$JS.API.SERVER.REMOVE", &[]),
    ("$SYS.REQ.SERVER.PING", &[]),
    // No client may publish as the server, or to the inbox of another, except where handoffs ask for copies.
    ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.CYNODE_HANDOFFS.pma-chat", &[]),
    ("_INBOX_pma.x", &[]),
    ("_INBOX_pa.x", &[]),
    ("_INBOX_operator.x", &[]),
    ("_INBOX.x", &["project_manager", "project_analyst"]),
    ("pma.handoff.chat.x", &[]),
    ("anything", &[]),
];

/// Each subject with the identities that may subscribe to it.
const MAY_LISTEN: &[(&str, &[&str])] = &[
    ("_INBOX.>", &["orchestrator"]),
    ("_INBOX_pma.>", &["project_manager"]),
    ("_INBOX_pa.>", &["project_analyst"]),
    ("_INBOX_gateway.>", &["gateway"]),
    ("_INBOX_operator.>", &["operator"]),
    ("_INBOX_observer.>", &["observer"]),
    ("_INBOX_provisioner.>", &["provisioner"]),
    ("_INBOX_workflow.>", &["workflow"]),
    ("workflow.run", &[]),
    ("_INBOX_node-build-1.>", &["node-build-1"]),
    ("_INBOX_node-build-2.>", &["node-build-2"]),
    // A node hears which jobs end, and nothing about the jobs of others.
    ("jobs.cancel.*", &["node-build-1", "node-build-2"]),
    ("jobs.class.*", &[]),
    ("jobs.node.build-1", &[]),
    ("job.*.*.log", &[]),
    ("job.*.build-1.result", &[]),
    ("node.presence.*", &["gateway"]),
    ("edge.audit.*.*", &[]),
    // Handoffs and journals are visible to no plain subscriber.
    ("pma.handoff.*", &[]),
    ("pma.handoff.chat", &[]),
    ("pa.verify", &[]),
    ("pma.run.*.journal", &[]),
    ("pa.run.*.journal", &[]),
    ("pma.run.*.completion", &["orchestrator", "operator", "observer", "gateway"]),
    ("pa.run.*.findings", &["orchestrator", "operator", "observer", "project_manager"]),
    ("pma.delta.*", &["orchestrator", "operator", "observer"]),
    ("pma.dead.*", &[]),
    ("cynode.audit.head", &[]),
    ("cynode.lease.revoked", &["orchestrator", "operator", "observer", "node-build-1", "node-build-2"]),
    ("cynode.key.revoked", &["orchestrator", "operator", "observer"]),
    ("$JS.ACK.>", &[]),
    ("$JS.API.>", &[]),
    ("$SYS.>", &[]),
    (">", &[]),
];

/// C6, P2, G3: every identity against every subject. Identities that are not listed are refused.
#[tokio::test]
async fn identities_may_do_only_what_the_table_allows() {
    let stage = Stage::start().await;
    let mut wrong = Vec::new();
    for who in EVERYONE {
        let mut identity = stage.identity(who).await;
        for (subject, may) in MAY_PUBLISH {
            if identity.may_publish(subject).await != may.contains(&who) {
                wrong.push(format!("{who} publishes {subject}: {}", !may.contains(&who)));
            }
        }
        for (subject, may) in MAY_LISTEN {
            if identity.may_listen(subject).await != may.contains(&who) {
                wrong.push(format!("{who} listens on {subject}: {}", !may.contains(&who)));
            }
        }
        // Only the provisioner, whose key no running program has, may create, change and remove streams.
        for stream in STREAMS {
            for verb in ["CREATE", "UPDATE", "DELETE", "PURGE"] {
                let subject = format!("$JS.API.STREAM.{verb}.{stream}");
                // A large body replaces the one of the same name, which purges the old one.
                let own = match who {
                    "project_manager" => "OBJ_CYNODE_SPILL",
                    "project_analyst" => "OBJ_CYNODE_PA_SPILL",
                    _ => "",
                };
                let spills = verb == "PURGE" && stream == own;
                // The provisioner would really do it.
                if who != "provisioner" && identity.may_publish(&subject).await != spills {
                    wrong.push(format!("{who} publishes {subject}: {}", !spills));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same by outcome: with a stolen worker key, a client cannot pull, settle or publish handoffs of the
/// other role; with the orchestrator key, it cannot settle or write journals.
#[tokio::test]
async fn stolen_key_gives_only_the_rights_of_its_identity() {
    let stage = Stage::start().await;
    let orchestrator = stage.orchestrator().await;
    orchestrator.publish(&chat("for a manager")).await;
    orchestrator.publish(&verify("t-1")).await;
    let (manager, analyst) = (streams::HANDOFFS, streams::PA_HANDOFFS);
    for (thief, stream, queue) in [
        ("project_analyst", manager, "pma-chat"),
        ("project_manager", analyst, "pa-verify"),
        ("observer", manager, "pma-chat"),
    ] {
        let client = stage.identity(thief).await.client;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{queue}");
        let asked = client.request(subject, r#"{"batch":1,"no_wait":true}"#.into());
        let got = tokio::time::timeout(BRIEFLY, asked).await;
        assert!(!matches!(got, Ok(Ok(_))), "{thief} pulled from {queue}: {got:?}");
        let strange = Orchestrator::over(client);
        let queue = strange.jetstream.get_stream_no_info(stream).await.unwrap();
        let read = tokio::time::timeout(BRIEFLY, queue.get_raw_message(1)).await;
        assert!(!matches!(read, Ok(Ok(_))), "{thief} read the queue: {read:?}");
        let sent = strange.jetstream.publish("pma.handoff.chat", "{}".into()).await.unwrap();
        let stored = tokio::time::timeout(BRIEFLY, sent.into_future()).await;
        assert!(!matches!(stored, Ok(Ok(_))), "{thief} handed off: {stored:?}");
    }
    let journal = orchestrator.jetstream.publish("pma.run.x.journal", "{}".into()).await.unwrap();
    let stored = tokio::time::timeout(BRIEFLY, journal.into_future()).await;
    assert!(!matches!(stored, Ok(Ok(_))), "an orchestrator wrote a journal: {stored:?}");
    assert!(orchestrator.jetstream.delete_stream(streams::HANDOFFS).await.is_err());
    assert_eq!(orchestrator.queued().await, 2, "both handoffs are still queued");
    let operator = stage.acts_as("operator").await;
    assert_eq!(operator.stored(streams::RUNS).await, 0, "nothing was stored");
    for kind in [Kind::Chat, Kind::Verify] {
        let consumer = orchestrator.consumer(kind).await;
        assert_eq!(consumer.delivered.stream_sequence, 0, "nothing of {kind} was delivered");
    }
    // The real workers still get the handoffs.
    let (_manager, _analyst) =
        (stage.worker(Role::ProjectManager).start().await, stage.worker(Role::ProjectAnalyst).start().await);
    orchestrator.wait_until_settled().await;
}

/// G3: an analyst's key can neither read nor remove a manager's queued handoffs, journals, answers or large
/// bodies, by any API of the server.
#[tokio::test]
async fn analyst_key_cannot_read_a_managers_data() {
    let stage = Stage::start().await;
    let orchestrator = stage.orchestrator().await;
    let manager = stage.worker(Role::ProjectManager).start().await;
    let answered = orchestrator.publish(&chat("answered")).await;
    orchestrator.wait_for_answer(Kind::Chat, answered).await;
    // The answer comes before the ack.
    testkit::eventually("the handoff is acknowledged", || async {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    drop(manager);
    orchestrator.publish(&chat("queued")).await;
    let thief = stage.acts_as("project_analyst").await;
    let questions = [
        ("$JS.API.STREAM.INFO.CYNODE_HANDOFFS", String::new()),
        ("$JS.API.STREAM.INFO.CYNODE_RUNS", String::new()),
        ("$JS.API.STREAM.MSG.GET.CYNODE_HANDOFFS", json!({ "seq": 2 }).to_string()),
        ("$JS.API.STREAM.MSG.DELETE.CYNODE_HANDOFFS", json!({ "seq": 2 }).to_string()),
        ("$JS.API.STREAM.MSG.GET.CYNODE_RUNS", json!({ "seq": 1 }).to_string()),
        (
            "$JS.API.STREAM.MSG.GET.CYNODE_RUNS",
            json!({ "last_by_subj": Subject::Completion(answered).to_string() }).to_string(),
        ),
        ("$JS.API.STREAM.MSG.DELETE.CYNODE_RUNS", json!({ "seq": 1 }).to_string()),
        ("$JS.API.DIRECT.GET.CYNODE_HANDOFFS", json!({ "seq": 2 }).to_string()),
        ("$JS.API.DIRECT.GET.CYNODE_RUNS", json!({ "seq": 1, "batch": 9 }).to_string()),
        ("$JS.API.STREAM.INFO.OBJ_CYNODE_SPILL", String::new()),
        ("$JS.API.STREAM.PURGE.OBJ_CYNODE_SPILL", String::new()),
    ];
    // The operator gets answers to the same requests, so the requests themselves are valid.
    let operator = stage.acts_as("operator").await;
    for (subject, question) in questions {
        if !subject.contains(".DELETE.") && !subject.contains(".PURGE.") {
            let told = operator.client.request(subject, question.clone().into()).await.expect(subject);
            let body = String::from_utf8_lossy(&told.payload);
            assert!(told.status.is_none() && !body.contains("\"error\""), "{subject}: {told:?}");
        }
        let got = tokio::time::timeout(BRIEFLY, thief.client.request(subject, question.into())).await;
        assert!(!matches!(got, Ok(Ok(_))), "{subject} was answered: {got:?}");
    }
    assert!(orchestrator.answer(Kind::Chat, answered).await.is_some());
    assert_eq!(orchestrator.queued().await, 1);
}

/// G3: with the key of a node, a client writes under no other node's name, takes no job of another pool, and
/// reaches no handoff and no answer.
#[tokio::test]
async fn key_of_a_node_reaches_only_its_own_jobs() {
    let stage = Stage::start().await;
    let orchestrator = stage.orchestrator().await;
    orchestrator.publish(&chat("for a manager")).await;
    let gateway = stage.acts_as("gateway").await;
    let job = "0193f2c0-0000-7000-8000-0000000000aa";
    for subject in ["jobs.class.default_bwrap", "jobs.node.build-1"] {
        let queued = gateway.jetstream.publish(subject, "{}".into()).await.unwrap();
        queued.await.expect(subject);
    }
    let of_first = stage.acts_as("node-build-1").await;
    for queue in [Subject::NodeJobs("build-1".parse().unwrap()), "jobs.class.default_bwrap".parse().unwrap()]
    {
        let wanted = streams::node_consumer(&queue, Duration::from_secs(30));
        of_first.jetstream.create_consumer_on_stream(wanted, streams::JOBS).await.expect("its own queue");
    }
    let thief = stage.acts_as("node-build-2").await;
    for subject in [
        format!("job.{job}.build-1.result"),
        format!("job.{job}.gateway.result"),
        format!("jobs.cancel.{job}"),
        "jobs.node.build-1".to_owned(),
        "pma.handoff.chat".to_owned(),
        "edge.audit.build-1.x".to_owned(),
    ] {
        let sent = thief.jetstream.publish(subject.clone(), "{}".into()).await.unwrap();
        let stored = tokio::time::timeout(BRIEFLY, sent.into_future()).await;
        assert!(!matches!(stored, Ok(Ok(_))), "build-2 published {subject}: {stored:?}");
    }
    let steal =
        streams::node_consumer(&Subject::NodeJobs("build-1".parse().unwrap()), Duration::from_secs(1));
    let changed = thief.jetstream.create_consumer_on_stream(steal, streams::JOBS);
    let changed = tokio::time::timeout(BRIEFLY, changed).await;
    assert!(!matches!(changed, Ok(Ok(_))), "build-2 changed the queue of build-1");
    for queue in ["CYNODE_JOBS.node-build-1", "CYNODE_JOBS.class-default_bwrap", "CYNODE_HANDOFFS.pma-chat"] {
        assert_eq!(pull(&thief, queue).await, None, "build-2 pulled from {queue}");
    }
    for (subject, question) in [
        ("$JS.API.STREAM.MSG.GET.CYNODE_HANDOFFS", r#"{"seq":1}"#),
        ("$JS.API.STREAM.MSG.GET.CYNODE_RUNS", r#"{"seq":1}"#),
        ("$JS.API.DIRECT.GET.CYNODE_RUNS", r#"{"seq":1}"#),
        ("$JS.API.STREAM.MSG.GET.CYNODE_JOB_LOGS", r#"{"seq":1}"#),
    ] {
        let got = tokio::time::timeout(BRIEFLY, thief.client.request(subject, question.into())).await;
        assert!(!matches!(got, Ok(Ok(_))), "{subject} was answered: {got:?}");
    }
    // The rightful node gets its jobs, and may report about them.
    for queue in ["CYNODE_JOBS.node-build-1", "CYNODE_JOBS.class-default_bwrap"] {
        assert_eq!(pull(&of_first, queue).await.as_deref(), Some("{}"), "{queue}");
    }
    let told = of_first.jetstream.publish(format!("job.{job}.build-1.result"), "{}".into()).await.unwrap();
    told.await.expect("its own result");
}

/// Pulls one message from a queue. A message has the subject that it was stored under, so that a plain
/// request would not find it.
async fn pull(client: &Orchestrator, queue: &str) -> Option<String> {
    let inbox = client.client.new_inbox();
    let mut pulled = client.client.subscribe(inbox.clone()).await.unwrap();
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{queue}");
    client.client.publish_with_reply(subject, inbox, r#"{"batch":1,"no_wait":true}"#.into()).await.unwrap();
    let message = tokio::time::timeout(BRIEFLY, pulled.next()).await.ok()??;
    message.status.is_none().then(|| String::from_utf8_lossy(&message.payload).into_owned())
}

/// The gateway hears a node's presence and may reply to it, which needs no permission for the node's inbox.
#[tokio::test]
async fn gateway_replies_to_the_presence_of_a_node() {
    let stage = Stage::start().await;
    let gateway = stage.identity("gateway").await.client;
    let mut heard = gateway.subscribe("node.presence.*").await.unwrap();
    gateway.flush().await.unwrap();
    let node = stage.identity("node-build-1").await.client;
    let asked = node.request("node.presence.build-1", "here".into());
    let answered = async {
        let message = heard.next().await.unwrap();
        gateway.publish(message.reply.unwrap(), "cordoned".into()).await.unwrap();
    };
    let (reply, ()) = tokio::join!(asked, answered);
    assert_eq!(&*reply.expect("a reply").payload, b"cordoned");
}

/// A client without a listed key cannot connect.
#[tokio::test]
async fn unlisted_key_cannot_connect() {
    let stage = Stage::start().await;
    let seed = nkeys::KeyPair::new_user().seed().unwrap();
    super::stage::kept(&stage, "stranger.nk", &seed);
    let refused = stage.ctl("stranger", &["status"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("rejected the credentials"), "{refused:?}");
}
