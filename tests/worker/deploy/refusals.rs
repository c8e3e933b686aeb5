//! A real server refuses what the permissions do not allow, tested with real keys.

use std::time::Duration;

use serde_json::json;
use subjects::{Kind, Role, Subject, streams};
use testkit::{Orchestrator, chat, verify};

use super::stage::Stage;

const EVERYONE: [&str; 7] =
    ["orchestrator", "project_manager", "project_analyst", "gateway", "operator", "observer", "provisioner"];
const STREAMS: [&str; 10] = [
    "CYNODE_HANDOFFS",
    "CYNODE_PA_HANDOFFS",
    "CYNODE_RUNS",
    "CYNODE_PA_RUNS",
    "CYNODE_DEAD",
    "CYNODE_ADVISORIES",
    "CYNODE_AUDIT",
    "CYNODE_EVENTS",
    "OBJ_CYNODE_SPILL",
    "OBJ_CYNODE_PA_SPILL",
];

/// Responses arrive within milliseconds unless the request is refused.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Each subject with the identities that may publish on it. All others are refused.
const MAY_PUBLISH: &[(&str, &[&str])] = &[
    // C6, P2: handoffs come from the orchestrator; a manager may publish verifications; a replay is a
    // handoff.
    ("pma.handoff.chat", &["orchestrator", "operator"]),
    ("pma.handoff.schedule", &["orchestrator", "operator"]),
    ("pma.handoff.plan", &["orchestrator", "operator"]),
    ("pma.handoff.continue", &["orchestrator", "operator"]),
    ("pa.verify", &["orchestrator", "operator", "project_manager"]),
    ("pma.cancel.x", &["orchestrator", "operator", "project_manager"]),
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
    // Handoffs and journals are visible to no plain subscriber.
    ("pma.handoff.*", &[]),
    ("pma.handoff.chat", &[]),
    ("pa.verify", &[]),
    ("pma.run.*.journal", &[]),
    ("pa.run.*.journal", &[]),
    ("pma.run.*.completion", &["orchestrator", "operator", "observer"]),
    ("pa.run.*.findings", &["orchestrator", "operator", "observer", "project_manager"]),
    ("pma.delta.*", &["orchestrator", "operator", "observer"]),
    ("pma.dead.*", &[]),
    ("cynode.audit.head", &[]),
    ("cynode.lease.revoked", &["orchestrator", "operator", "observer"]),
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
