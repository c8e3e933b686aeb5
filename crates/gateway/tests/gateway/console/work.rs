//! Handoffs and dead letters, with and without NATS.

use serde_json::{Value, json};
use subjects::{
    Kind,
    streams::{self, Layout},
};
use testkit::{Nats, Orchestrator, Worker, chat, eventually, verify};

use super::support::{Gateway, form};

const UNKNOWN: &str = "/console/handoffs/0193f2c0-5a00-7000-8000-0000000000aa";
const VERIFICATION: &str = "0193f2c0-5a00-7000-8000-0000000000bb";
const EVIL: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}";

/// A gateway whose console is connected to this NATS.
pub(crate) async fn gateway_with_nats(url: &str) -> Gateway {
    Gateway::start_with(&["--set", &format!("nats.url={url}")]).await
}

/// A worker that requires signatures, so that every handoff becomes a dead letter. It creates its queues with
/// a short `ack_wait`.
pub(crate) async fn worker_that_requires_signatures(nats: &Nats) -> Worker {
    worker_that_requires_signatures_in(Layout::default(), nats).await
}

async fn worker_that_requires_signatures_in(layout: Layout, nats: &Nats) -> Worker {
    let key = nkeys::KeyPair::new_user().public_key();
    let worker = Worker::manager(nats).laid_out(layout).set("worker.ack_wait", "1s");
    worker.set("security.trusted_producers", format!("[\"{key}\"]")).start().await
}

pub(crate) async fn letters(orchestrator: &Orchestrator, count: u64) {
    eventually("the dead letters", async || {
        // A letter is stored before its handoff leaves the queue: another worker would take what is still
        // there.
        let is_done = orchestrator.stored(streams::DEAD).await == count && orchestrator.queued().await == 0;
        is_done.then_some(())
    })
    .await;
}

/// A journal entry with every kind of record, in which every text that others can write is hostile.
pub(crate) fn hostile_entry() -> String {
    let at = "2026-11-14T10:00:00Z";
    let records = json!([
        { "record": "claimed", "attempt": 1, "instance": "one", "build": EVIL, "queued": 1, "request": EVIL },
        { "record": "context", "tools": [EVIL] },
        { "record": "model_turn", "question": { "think": { "form": EVIL, "lane": 0, "repeat": 0 } }, "ms": 5,
            "reply": { "content": EVIL, "finish": "stop", "tokens": { "prompt": 1, "completion": 1 },
                "model": EVIL, "tries": 2, "cost_usd": null } },
        { "record": "tool_intent", "call": { "number": 0, "tool": EVIL, "arguments_hash": EVIL },
            "key": EVIL },
        { "record": "tool_result", "call": { "number": 1, "tool": EVIL, "arguments_hash": "" }, "key": "",
            "ms": 5, "outcome": { "rejected": { "why": EVIL } } },
        { "record": "verified", "handoff_id": VERIFICATION, "ms": 5, "findings": {
            "schema_version": 1, "handoff_id": VERIFICATION, "kind": "verify", "task_id": "t-1",
            "status": "needs_clarification",
            "findings": [], "recommended_actions": [], "preferences_applied": [],
            "trace": { "trace_id": "t", "steps": [], "stop": "refused" },
            "usage": { "prompt_tokens": 0, "completion_tokens": 0, "model_calls": 0, "tool_calls": 0,
                "cost_usd": null },
            "attempts": 1, "instance": "two", "error": { "code": "internal", "message": EVIL,
                "retryable": false } } },
    ]);
    json!({ "v": 1, "at": at, "records": records }).to_string()
}

#[tokio::test]
async fn pages_without_nats_say_how_to_enable_them() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    for path in ["/console/handoffs", "/console/dead", "/console/dead/letter?number=1", UNKNOWN] {
        let page = admin.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.shows("not connected to NATS") && page.shows("nats.url"), "{path}: {}", page.body);
    }
    let posted = admin.post("/console/dead/replay", &[("number", "1")]).await;
    assert_eq!(posted.status, 303);
    assert!(admin.get("/console/dead").await.shows("not connected to NATS"));
}

/// Serving agents never waits for NATS, neither at startup nor later.
#[tokio::test]
async fn outage_of_nats_is_reported_and_affects_nothing_else() {
    let mut nats = Nats::start();
    let url = nats.url();
    nats.kill();
    let gateway = gateway_with_nats(&url).await;
    let admin = gateway.administrator().await;
    let agent = gateway.agent(&admin.issue_manager().await);
    let works = async || {
        assert_eq!(gateway.get("/readyz").await.status, 200);
        agent.call("db.project.list").await.unwrap();
    };
    works().await;
    for path in ["/console/handoffs", "/console/dead", UNKNOWN] {
        let page = admin.get(path).await;
        assert!(page.shows("NATS is not available"), "{path}: {}", page.body);
    }

    nats.start_again();
    let sees = async |text: &str| {
        eventually(text, async || admin.get("/console/handoffs").await.shows(text).then_some(())).await;
    };
    sees("the streams do not exist").await;
    let _worker = Worker::manager(&nats).start().await;
    sees("No handoffs in progress").await;
    works().await;

    nats.kill();
    sees("is lost").await;
    works().await;
    nats.start_again();
    sees("No handoffs in progress").await;
}

#[tokio::test]
async fn missing_and_unreadable_journals_are_explained() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let gateway = gateway_with_nats(&nats.url()).await;
    let admin = gateway.administrator().await;

    let page = admin.get(UNKNOWN).await;
    assert_eq!(page.status, 200);
    assert!(page.shows("No instance has claimed this handoff"), "{}", page.body);
    assert_eq!(admin.get("/console/handoffs/nonsense").await.status, 404);
    assert_eq!(admin.get("/console/dead/letter?number=7").await.status, 404);
    assert_eq!(admin.get("/console/dead/letter?number=x").await.status, 404);
    let looked_up = admin.get("/console/handoffs?id=nonsense").await;
    assert!(looked_up.shows("aria-invalid"), "{}", looked_up.body);
    let id = UNKNOWN.rsplit('/').next().unwrap();
    let looked_up = admin.get(&format!("/console/handoffs?id={}", id.to_uppercase())).await;
    assert_eq!((looked_up.status, looked_up.header("location")), (303, Some(UNKNOWN)));

    let torn = chat("torn");
    orchestrator.write_journal(torn.id, "{").await;
    let page = format!("/console/handoffs/{}", torn.id);
    let read = admin.get(&page).await;
    assert!(read.shows("is corrupt and cannot be read") && read.shows("Unreadable"), "{}", read.body);
    // A worker that claims it does not guess either.
    orchestrator.publish(&torn).await;
    orchestrator.wait_for_answer(Kind::Chat, torn.id).await;
    letters(&orchestrator, 1).await;
    let read = admin.get(&page).await;
    assert!(read.shows("docs/errors/internal.md") && read.shows("Failed"), "{}", read.body);
    assert!(read.shows("/console/dead/letter?number=1"), "{}", read.body);
    let newer = chat("newer").id;
    orchestrator.write_journal(newer, r#"{"v":99}"#).await;
    let page = admin.get(&format!("/console/handoffs/{newer}")).await;
    assert!(page.shows("was written by a newer build"), "{}", page.body);
}

/// Texts of models, tools, users and unknown clients are escaped everywhere.
#[tokio::test]
async fn untrusted_text_in_journals_is_escaped() {
    let nats = Nats::start();
    let _strict_worker = worker_that_requires_signatures(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let gateway = gateway_with_nats(&nats.url()).await;
    let admin = gateway.administrator().await;

    let id = chat("written by hand").id;
    orchestrator.write_journal(id, hostile_entry()).await;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("X-Evil", EVIL);
    let body = serde_json::to_vec(&json!({ "handoff_id": id, "evil": EVIL })).unwrap();
    orchestrator.publish_raw(Kind::Chat, headers, body).await;
    letters(&orchestrator, 1).await;

    let letter = "/console/dead/letter?number=1";
    for path in [&*format!("/console/handoffs/{id}"), "/console/handoffs", "/console/dead", letter] {
        let page = admin.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.shows("<script>alert") && !page.shows("<img src") && !page.shows("\u{202e}"), "{path}");
    }
    let page = admin.get(&format!("/console/handoffs/{id}")).await;
    assert!(
        page.shows("&lt;script&gt;alert(1)") && page.shows("2 tries") && page.shows("rejected"),
        "{}",
        page.body
    );
    assert!(page.shows(&format!("href=\"/console/handoffs/{VERIFICATION}\"")), "{}", page.body);
    assert!(page.shows("<dt>Request</dt>"), "{}", page.body);
    assert!(admin.get(letter).await.shows("&lt;script&gt;alert(1)"));
}

#[tokio::test]
async fn only_administrators_see_replay_and_drop_and_must_confirm() {
    let nats = Nats::start();
    let _strict_worker = worker_that_requires_signatures(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("unsigned")).await;
    letters(&orchestrator, 1).await;
    let gateway = gateway_with_nats(&nats.url()).await;
    let admin = gateway.administrator().await;
    let user = gateway.sign_in(&admin.issue_user("ada").await).await;
    let handoff = format!("/console/handoffs/{id}");
    let live = format!("{handoff}/live");
    for path in [
        "/console/handoffs",
        "/console/handoffs/live",
        &*handoff,
        &live,
        "/console/dead",
        "/console/dead/letter?number=1",
    ] {
        assert_eq!(user.get(path).await.status, 403, "{path}");
    }
    assert!(!user.get("/console").await.shows("/console/dead"));
    for path in ["/console/dead/replay", "/console/dead/drop"] {
        assert_eq!(user.post(path, &[("number", "1")]).await.status, 403, "{path}");
        let forged = form(&[("number", "1"), ("csrf", "guessed")]);
        let cookie = [("Cookie", &*admin.cookie)];
        assert_eq!(gateway.send("POST", path, &cookie, &forged).await.status, 403, "{path}");
        assert_eq!(admin.get(path).await.status, 405, "{path}");
    }
    assert_eq!(
        orchestrator.stored(streams::DEAD).await,
        1,
        "the dead letter was neither replayed nor dropped"
    );
    let audit = admin.get("/console/audit?decision=deny").await;
    assert!(audit.shows("admin.dead.replay") && audit.shows("admin.dead.drop"), "{}", audit.body);

    let dropped = admin.post("/console/dead/drop", &[("number", "1")]).await;
    assert_eq!(dropped.status, 303);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    let again = admin.post("/console/dead/drop", &[("number", "1")]).await;
    assert_eq!(again.status, 303);
    let audit = admin.get("/console/audit?tool=admin.dead.drop&decision=allow").await;
    assert!(audit.shows("Succeeded") && audit.shows("Failed") && audit.shows("not found"), "{}", audit.body);
}

/// The same over REST.
#[tokio::test]
async fn rest_shows_and_replays_like_the_console() {
    for layout in Layout::ALL {
        check_rest_shows_and_replays(layout).await;
    }
}

async fn check_rest_shows_and_replays(layout: Layout) {
    let nats = Nats::start();
    let strict_worker = worker_that_requires_signatures_in(layout, &nats).await;
    let orchestrator = Orchestrator::connect(&nats).await.laid_out(layout);
    let unsigned = orchestrator.publish(&chat("unsigned")).await;
    letters(&orchestrator, 1).await;
    drop(strict_worker);
    let _worker = Worker::manager(&nats).laid_out(layout).start().await;
    let url = nats.url();
    let gateway_with_nats = async |layout: Layout| {
        let settings = [("nats.url", &*url), ("nats.layout", layout.as_str())];
        testkit::GatewayProcess::start_with(&settings).await
    };
    let elsewhere = gateway_with_nats(layout.other()).await.ask("GET", "/api/v1/work", None).await;
    assert_eq!(elsewhere.status, 409, "{layout}");
    let gateway = gateway_with_nats(layout).await;
    let listed = gateway.must("GET", "/api/v1/dead?reason=untrusted_producer", None).await;
    assert_eq!(listed[0]["handoff_id"], unsigned.to_string(), "{listed}");
    assert_eq!(gateway.must("GET", "/api/v1/dead?kind=plan", None).await, json!([]));
    let letter = gateway.must("GET", "/api/v1/dead/1", None).await;
    assert_eq!(letter["body"]["payload"]["messages"][0]["content"], "unsigned");
    assert_eq!(gateway.ask("GET", "/api/v1/dead/2", None).await.status, 404);
    assert_eq!(gateway.ask("GET", &format!("/api/v1/handoffs/{unsigned}"), None).await.status, 404);

    let replayed = gateway.must("POST", "/api/v1/dead/1/replay", None).await;
    assert_eq!(
        replayed["handoff_id"],
        unsigned.to_string(),
        "the handoff was never answered, so it keeps its id"
    );
    orchestrator.wait_for_answer(Kind::Chat, unsigned).await;
    let life = gateway.must("GET", &format!("/api/v1/handoffs/{unsigned}"), None).await;
    assert_eq!(
        (&life["state"], &life["attempts"][0]["end"]),
        (&json!("answered"), &json!("answered")),
        "{life}"
    );
    let work = eventually("the instance and the answer", async || {
        let work = gateway.must("GET", "/api/v1/work", None).await;
        (work["answered"][0]["handoff_id"] == unsigned.to_string()).then_some(work)
    })
    .await;
    assert_eq!(work["instances"].as_array().map(Vec::len), Some(1), "{work}");
    assert_eq!(
        gateway.ask("POST", "/api/v1/dead/1/replay", None).await.status,
        404,
        "the dead letter is gone"
    );
    let rows = gateway.must("GET", "/api/v1/audit?tool=admin.dead.replay", None).await;
    let statuses: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["status"]).collect();
    assert_eq!(statuses, ["failure", "success"]);

    // An analyst's handoffs are shown too, in either layout.
    let _analyst = Worker::analyst(&nats).laid_out(layout).start().await;
    let verified = orchestrator.publish(&verify("t-1")).await;
    orchestrator.wait_for_answer(Kind::Verify, verified).await;
    let life = gateway.must("GET", &format!("/api/v1/handoffs/{verified}"), None).await;
    assert_eq!((&life["state"], &life["role"]), (&json!("answered"), &json!("project_analyst")), "{life}");
    eventually("both answers and both queues", async || {
        let work = gateway.must("GET", "/api/v1/work", None).await;
        let answered = work["answered"].as_array().map(Vec::len);
        let queues = work["queues"].as_array().map(Vec::len);
        ((answered, queues) == (Some(2), Some(Kind::ALL.len()))).then_some(())
    })
    .await;
}

/// Dead letters are found although most messages of the stream were removed.
#[tokio::test]
async fn dead_letters_are_found_in_a_sparse_stream() {
    let nats = Nats::start();
    let _strict_worker = worker_that_requires_signatures(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let first = orchestrator.publish(&chat("the first")).await;
    letters(&orchestrator, 1).await;
    let subject = subjects::Subject::Dead(Kind::Chat).to_string();
    for _ in 0..2_000 {
        orchestrator.client.publish(subject.clone(), "not a letter of ours".into()).await.unwrap();
    }
    orchestrator.client.flush().await.unwrap();
    letters(&orchestrator, 2_001).await;
    let dead = orchestrator.jetstream.get_stream(streams::DEAD).await.unwrap();
    for number in (2..=2_001).step_by(3) {
        dead.delete_message(number).await.unwrap();
    }
    let gateway = testkit::GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let listed = gateway.must("GET", "/api/v1/dead", None).await;
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["handoff_id"]), (Some(1), &json!(first)));
}

/// The permissions that docs/gateway.md lists are sufficient.
#[tokio::test]
async fn documented_permissions_are_sufficient() {
    let document = std::fs::read_to_string(testkit::workspace().join("docs/gateway.md")).unwrap();
    let (_, said) = document.split_once("Permissions: publish ").unwrap();
    let (publish, subscribe) = said.split_once("; subscribe ").unwrap();
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let (publish, subscribe) = (quoted(publish), quoted(subscribe));
    let subscribe = &subscribe[..3];
    let heard = ["_INBOX.>", "node.presence.*", "pma.run.*.completion"].map(str::to_owned);
    assert_eq!((publish.len(), subscribe), (16, &heard[..]));

    let key = nkeys::KeyPair::new_user();
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("gateway.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let permissions = format!("publish: {publish:?}, subscribe: {subscribe:?}, allow_responses: true");
    let nats = Nats::start_with(&format!(
        "no_auth_user: anybody\naccounts {{ ALL {{ jetstream: enabled, users: [ \
         {{ user: anybody, password: anybody }}, \
         {{ nkey: {}, permissions: {{ {permissions} }} }} ] }} }}",
        key.public_key()
    ));
    let strict_worker = worker_that_requires_signatures(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("unsigned")).await;
    letters(&orchestrator, 1).await;
    drop(strict_worker);
    let _worker = Worker::manager(&nats).start().await;
    let file = seed.display().to_string();
    let settings = [("nats.url", &*nats.url()), ("nats.nkey_file", &file), ("audit.seal_every", "50ms")];
    let gateway = testkit::GatewayProcess::start_with(&settings).await;
    assert_eq!(gateway.must("GET", "/api/v1/dead", None).await[0]["handoff_id"], id.to_string());
    gateway.must("POST", "/api/v1/dead/1/replay", None).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    gateway.must("GET", &format!("/api/v1/handoffs/{id}"), None).await;
    let work = gateway.must("GET", "/api/v1/work", None).await;
    assert_eq!(work["instances"].as_array().map(Vec::len), Some(1), "{work}");
    eventually("an audit head", async || (orchestrator.stored(streams::AUDIT).await > 0).then_some(())).await;
    let (lease, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    gateway.must("DELETE", &format!("/api/v1/leases/{lease}"), None).await;
    let (key, _) = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "ada" })).await;
    gateway.must("DELETE", &format!("/api/v1/tokens/{key}"), None).await;
    eventually("the messages of the outbox", async || {
        (gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
    })
    .await;
    assert!(!gateway.log().to_lowercase().contains("permissions violation"), "{}", gateway.log());
}

/// If producers must sign, replays are signed too.
#[tokio::test]
async fn replay_is_signed_with_the_configured_key() {
    let key = nkeys::KeyPair::new_user();
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("replays.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let nats = Nats::start();
    let trusted = format!("[\"{}\"]", key.public_key());
    let _worker = Worker::manager(&nats).set("security.trusted_producers", trusted).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("unsigned")).await;
    letters(&orchestrator, 1).await;
    let file = seed.display().to_string();
    let settings = [("nats.url", &*nats.url()), ("nats.signing_key_file", &file)];
    let gateway = testkit::GatewayProcess::start_with(&settings).await;
    gateway.must("POST", "/api/v1/dead/1/replay", None).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
}
