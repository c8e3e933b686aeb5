//! What must be refused is refused: by a real server, to real keys.

use std::time::Duration;

use serde_json::json;
use subjects::{Kind, Role, Subject, streams};
use testkit::{Orchestrator, chat, verify};

use crate::stage::Stage;

const EVERYONE: [&str; 7] =
    ["orchestrator", "project_manager", "project_analyst", "gateway", "operator", "observer", "provisioner"];
const STREAMS: [&str; 9] = [
    "CYNODE_HANDOFFS",
    "CYNODE_PA_HANDOFFS",
    "CYNODE_RUNS",
    "CYNODE_PA_RUNS",
    "CYNODE_DEAD",
    "CYNODE_ADVISORIES",
    "CYNODE_AUDIT",
    "OBJ_CYNODE_SPILL",
    "OBJ_CYNODE_PA_SPILL",
];

/// An answer that is not refused comes within milliseconds.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Each subject, and who may publish on it. Everyone else is refused.
const MAY_PUBLISH: &[(&str, &[&str])] = &[
    // C6, P2: handoffs come from the orchestrator; a manager may have something verified; to replay is to hand off.
    ("pma.handoff.chat", &["orchestrator", "operator"]),
    ("pma.handoff.schedule", &["orchestrator", "operator"]),
    ("pma.handoff.plan", &["orchestrator", "operator"]),
    ("pma.handoff.continue", &["orchestrator", "operator"]),
    ("pa.verify", &["orchestrator", "operator", "project_manager"]),
    ("pma.cancel.x", &["orchestrator", "operator", "project_manager"]),
    // Journals and answers, each by the role whose handoff it is.
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
    // Queues: pulled and settled by their own role.
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_HANDOFFS.pma-chat", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_HANDOFFS.pma-plan", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_PA_HANDOFFS.pa-verify", &["project_analyst"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_ADVISORIES.pma-dead-mover", &["project_manager"]),
    ("$JS.API.CONSUMER.MSG.NEXT.CYNODE_ADVISORIES.pa-dead-mover", &["project_analyst"]),
    ("$JS.ACK.CYNODE_HANDOFFS.pma-chat.1.1.1.1.0", &["project_manager"]),
    ("$JS.ACK.CYNODE_PA_HANDOFFS.pa-verify.1.1.1.1.0", &["project_analyst"]),
    ("$JS.ACK._.hash.CYNODE_HANDOFFS.pma-chat.1.1.1.1.0", &["project_manager"]),
    ("$JS.ACK._.hash.CYNODE_PA_HANDOFFS.pa-verify.1.1.1.1.0", &["project_analyst"]),
    // What stands in the streams: of the other role a worker reads nothing, but a manager the findings that it asked for.
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
    // A consumer of one's own on the queue would read what is not one's own, and a work queue's is its end.
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
    // Nobody speaks as a server, or into another's ear but where handoffs ask for copies.
    ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.CYNODE_HANDOFFS.pma-chat", &[]),
    ("_INBOX_pma.x", &[]),
    ("_INBOX_pa.x", &[]),
    ("_INBOX_operator.x", &[]),
    ("_INBOX.x", &["project_manager", "project_analyst"]),
    ("pma.handoff.chat.x", &[]),
    ("anything", &[]),
];

/// Each subject, and who may listen on it.
const MAY_LISTEN: &[(&str, &[&str])] = &[
    ("_INBOX.>", &["orchestrator"]),
    ("_INBOX_pma.>", &["project_manager"]),
    ("_INBOX_pa.>", &["project_analyst"]),
    ("_INBOX_gateway.>", &["gateway"]),
    ("_INBOX_operator.>", &["operator"]),
    ("_INBOX_observer.>", &["observer"]),
    ("_INBOX_provisioner.>", &["provisioner"]),
    // Who hands off, and who took what, is nobody else's business.
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
    ("$JS.ACK.>", &[]),
    ("$JS.API.>", &[]),
    ("$SYS.>", &[]),
    (">", &[]),
];

/// C6, P2, G3: everyone against everything, by name. Whoever is not named is refused.
#[tokio::test]
async fn nobody_may_more_than_the_table_says() {
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
        // Making, changing and removing streams is for one identity, which nothing that runs has.
        for stream in STREAMS {
            for verb in ["CREATE", "UPDATE", "DELETE", "PURGE"] {
                let subject = format!("$JS.API.STREAM.{verb}.{stream}");
                // What is too large for a message is replaced by name; what it replaces goes.
                let own = match who {
                    "project_manager" => "OBJ_CYNODE_SPILL",
                    "project_analyst" => "OBJ_CYNODE_PA_SPILL",
                    _ => "",
                };
                let spills = verb == "PURGE" && stream == own;
                // The provisioner would do it.
                if who != "provisioner" && identity.may_publish(&subject).await != spills {
                    wrong.push(format!("{who} publishes {subject}: {}", !spills));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same by what comes of it: a worker's key in the wrong hands takes no work of the other role, settles none, and
/// hands none off; an orchestrator's settles nothing and writes no journal.
#[tokio::test]
async fn stolen_keys_open_only_their_own_door() {
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
        assert!(!matches!(read, Ok(Ok(_))), "{thief} read what is queued: {read:?}");
        let sent = strange.jetstream.publish("pma.handoff.chat", "{}".into()).await.unwrap();
        let stored = tokio::time::timeout(BRIEFLY, sent.into_future()).await;
        assert!(!matches!(stored, Ok(Ok(_))), "{thief} handed off: {stored:?}");
    }
    let journal = orchestrator.jetstream.publish("pma.run.x.journal", "{}".into()).await.unwrap();
    let stored = tokio::time::timeout(BRIEFLY, journal.into_future()).await;
    assert!(!matches!(stored, Ok(Ok(_))), "an orchestrator wrote a journal: {stored:?}");
    assert!(orchestrator.jetstream.delete_stream(streams::HANDOFFS).await.is_err());
    assert_eq!(orchestrator.queued().await, 2, "what was queued is queued");
    let operator = stage.acts_as("operator").await;
    assert_eq!(operator.stored(streams::RUNS).await, 0, "and nothing was written");
    for kind in [Kind::Chat, Kind::Verify] {
        let consumer = orchestrator.consumer(kind).await;
        assert_eq!(consumer.delivered.stream_sequence, 0, "nothing of {kind} was delivered");
    }
    // And the real ones still get it.
    let (_manager, _analyst) =
        (stage.worker(Role::ProjectManager).start().await, stage.worker(Role::ProjectAnalyst).start().await);
    orchestrator.settled().await;
}

/// G3: with an analyst's key nothing of a manager is read or removed: no queued handoff, no journal, no answer, no large
/// body; whichever of the server's ways is tried.
#[tokio::test]
async fn an_analysts_key_reads_nothing_of_a_manager() {
    let stage = Stage::start().await;
    let orchestrator = stage.orchestrator().await;
    let manager = stage.worker(Role::ProjectManager).start().await;
    let answered = orchestrator.publish(&chat("answered")).await;
    orchestrator.answered(Kind::Chat, answered).await;
    drop(manager);
    orchestrator.publish(&chat("queued")).await;
    let before = orchestrator.consumer(Kind::Chat).await.num_pending;

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
    // Whoever may ask is told, so it is not for the questions that the other hears nothing.
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
    assert_eq!(orchestrator.consumer(Kind::Chat).await.num_pending, before);
}

/// Whoever has no key of the list stays outside.
#[tokio::test]
async fn a_key_that_is_not_in_the_list_opens_nothing() {
    let stage = Stage::start().await;
    let seed = nkeys::KeyPair::new_user().seed().unwrap();
    crate::stage::kept(&stage, "stranger.nk", &seed);
    let refused = stage.ctl("stranger", &["status"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("rejected the credentials"), "{refused:?}");
}
