//! The operator's commands, as an operator runs them.

use std::{path::Path, time::Duration};

use serde_json::Value;
use subjects::{
    Answer, Encoding, Handoff, Kind, Role, headers,
    streams::{self, Layout},
};
use testkit::{Errands, Finished, Nats, Orchestrator, Worker, chat, cynodectl, eventually, run, verify};

const FAILED: i32 = 1;
const NEEDS_CLARIFICATION: i32 = 2;
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const NO_ANSWER: i32 = 75;

/// Runs a command line against a server, off the test's own thread.
async fn ctl(nats: &Nats, line: &[&str]) -> Finished {
    ctl_in(Layout::default(), nats, line).await
}

/// The same for streams that are laid out so.
async fn ctl_in(layout: Layout, nats: &Nats, line: &[&str]) -> Finished {
    let mut arguments = vec!["--server".to_owned(), nats.url(), format!("--layout={layout}")];
    arguments.extend(line.iter().map(|&word| word.to_owned()));
    tokio::task::spawn_blocking(move || run(&cynodectl(), Path::new("."), &arguments, &[])).await.unwrap()
}

#[track_caller]
fn json(finished: &Finished) -> Value {
    serde_json::from_str(finished.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

#[tokio::test]
async fn a_chat_prints_its_answer_and_a_script_can_tell_how_it_went() {
    for layout in Layout::ALL {
        every_kind_prints_its_answer(layout).await;
    }
}

async fn every_kind_prints_its_answer(layout: Layout) {
    let nats = Nats::start();
    let ctl = async |nats: &Nats, line: &[&str]| ctl_in(layout, nats, line).await;
    let _manager = Worker::manager(&nats).laid_out(layout).start().await;
    let _analyst = Worker::analyst(&nats).laid_out(layout).start().await;
    let said = ctl(&nats, &["handoff", "chat", "What is left to do?"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("What is left to do?"), "{said:?}");
    assert!(said.stderr.contains("completed · attempt 1"), "{said:?}");

    for line in [
        &["--json", "handoff", "chat", "hello", "--msgpack"][..],
        &["--json", "handoff", "schedule", "Check the links."],
        &["--json", "handoff", "plan", "Ship it", "--criterion", "it is shipped", "--project", "p-1"],
    ] {
        let said = ctl(&nats, line).await;
        assert_eq!(said.code, 0, "{line:?}: {said:?}");
        assert_eq!(json(&said)["status"], "completed", "{line:?}");
    }
    // Nothing to go on from is a question back, not a failure.
    let id = "0193f2c0-5a00-7000-8000-00000000beef";
    let said = ctl(&nats, &["--json", "handoff", "continue", id, "staging"]).await;
    assert_eq!(
        (said.code, &json(&said)["status"]),
        (NEEDS_CLARIFICATION, &Value::from("needs_clarification"))
    );
    let said = ctl(&nats, &["--json", "handoff", "verify", "deploy-docs-2", "--criterion", "it works"]).await;
    assert_eq!(
        (said.code, &json(&said)["status"]),
        (NEEDS_CLARIFICATION, &Value::from("needs_clarification"))
    );
    let said = ctl(&nats, &["--json", "handoff", "plan", " "]).await;
    assert_eq!((said.code, &json(&said)["error"]["code"]), (FAILED, &Value::from("invalid_handoff")));

    // The same id is answered once, also when it is asked again; its answer and its journal are found wherever they lie.
    for (id, words) in [
        ("0193f2c0-5a00-7000-8000-0000000000aa", ["chat", "once"]),
        ("0193f2c0-5a00-7000-8000-0000000000ab", ["verify", "t-1"]),
    ] {
        let line = ["--json", "handoff", words[0], words[1], "--id", id];
        let (once, again) = (ctl(&nats, &line).await, ctl(&nats, &line).await);
        assert_eq!((again.code, json(&once)), (once.code, json(&again)));
        let watched = ctl(&nats, &["--json", "watch", id]).await;
        assert_eq!(json(&watched), json(&once), "{layout}: {watched:?}");
        for line in [&["journal", "show", id][..], &["journal", "show", id, "--follow"]] {
            let shown = ctl(&nats, line).await;
            assert!(shown.stdout.contains("attempt 1 by"), "{layout}, {line:?}: {shown:?}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_done_says_what_to_do() {
    let nats = Nats::start();
    let said = ctl(&nats, &["handoff", "chat", "hello"]).await;
    assert_eq!(said.code, UNAVAILABLE);
    assert!(said.stderr.contains("start a worker with nats.provision = create"), "{said:?}");
    assert_eq!(ctl(&nats, &["status"]).await.code, UNAVAILABLE);
    drop(Worker::manager(&nats).start().await);
    let said = ctl(&nats, &["handoff", "chat", "hello", "--timeout", "300ms"]).await;
    assert_eq!(said.code, NO_ANSWER);
    assert!(said.stderr.contains("no answer to") && said.stderr.contains("cynodectl watch"), "{said:?}");
    let said = ctl(&nats, &["cancel", "0193f2c0-5a00-7000-8000-0000000000aa"]).await;
    assert_eq!(said.code, UNAVAILABLE);
    assert!(said.stderr.contains("no running instance"), "{said:?}");
    let said = ctl(&nats, &["dead", "show", "7"]).await;
    assert_eq!(said.code, FAILED);
    assert!(said.stderr.contains("dead letter 7 not found"), "{said:?}");
    assert_eq!(ctl(&nats, &["handoff", "chat", "hi", "--id", "nonsense"]).await.code, USAGE);
    assert_eq!(ctl(&nats, &["dead", "replay"]).await.code, USAGE);
    let said = ctl(&nats, &["handoff", "chat", "hi", "--sign", "/nowhere"]).await;
    assert_eq!(said.code, USAGE);
    assert!(said.stderr.contains("/nowhere"), "{said:?}");
    let nobody = run(&cynodectl(), Path::new("."), &["--server", "nats://127.0.0.1:1", "status"], &[]);
    assert_eq!(nobody.code, UNAVAILABLE);
    assert!(nobody.stderr.contains("cannot connect to NATS"), "{nobody:?}");
}

#[tokio::test]
async fn status_shows_queues_work_and_instances() {
    let nats = Nats::start();
    let worker =
        Worker::manager(&nats).set("instance", "pm-one").thinking(Duration::from_secs(60)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("long")).await;
    worker.holds(Kind::Chat, 1).await;
    let said = ctl(&nats, &["status"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for part in ["CYNODE_HANDOFFS", "IN FLIGHT", "pm-one", "project_manager", "ready", "chat 1/16", "offline"]
    {
        assert!(said.stdout.contains(part), "{part} is not in\n{}", said.stdout);
    }
    let said = json(&ctl(&nats, &["status", "--json"]).await);
    assert_eq!(said["queues"][0]["in_flight"], 1);
    assert_eq!(said["instances"][0]["in_flight"]["chat"]["running"], 1);
    drop(worker);
    assert!(ctl(&nats, &["status"]).await.stdout.contains("no instance is running"));
    let said = ctl_in(Layout::ByRole, &nats, &["status"]).await;
    assert_eq!(said.code, UNAVAILABLE, "{said:?}");
    assert!(said.stderr.contains("`pa.verify` is in CYNODE_HANDOFFS"), "{said:?}");
    assert!(said.stderr.contains("--layout") && said.stderr.contains("CYNODE_LAYOUT"), "{said:?}");
    let said = run(&cynodectl(), Path::new("."), &["status"], &[("CYNODE_LAYOUT", "per_role")]);
    assert_eq!(said.code, USAGE, "{said:?}");
    assert!(said.stderr.contains("`shared` or `by_role`"), "{said:?}");
}

#[tokio::test]
async fn a_handoff_is_cancelled_and_watched_to_its_end() {
    let nats = Nats::start();
    let worker =
        Worker::manager(&nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(60)).start().await;
    let said = ctl(&nats, &["handoff", "chat", "never mind", "--no-wait"]).await;
    let id = said.stdout.trim().to_owned();
    worker.holds(Kind::Chat, 1).await;
    let watching = {
        let (url, id) = (nats.url(), id.clone());
        tokio::task::spawn_blocking(move || {
            run(&cynodectl(), Path::new("."), &["--server", &url, "--json", "watch", &id], &[])
        })
    };
    let everything = {
        let url = nats.url();
        tokio::task::spawn_blocking(move || {
            run(&cynodectl(), Path::new("."), &["--server", &url, "watch", "--for", "3s"], &[])
        })
    };
    // Long enough that the watchers listen and a heartbeat passes.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let said = ctl(&nats, &["cancel", &id]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("is cancelled"), "{said:?}");
    let watched = watching.await.unwrap();
    assert_eq!(watched.code, FAILED, "{watched:?}");
    assert!(watched.stdout.lines().last().unwrap().contains("\"status\":\"cancelled\""), "{watched:?}");
    let seen = everything.await.unwrap();
    assert!(seen.stdout.contains("working for") && seen.stdout.contains("cancelled by"), "{seen:?}");
    // Too late to cancel: it says so and shows the answer that stands.
    let said = ctl(&nats, &["cancel", &id]).await;
    assert_eq!(said.code, FAILED, "{said:?}");
    assert!(said.stderr.contains("has its answer already"), "{said:?}");
}

/// An answer that the stream refuses, as that of a worker that was overtaken, is heard by whoever listens; it is none.
#[tokio::test]
async fn an_answer_that_is_not_stored_is_none() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).thinking(Duration::from_secs(2)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let before = orchestrator.publish(&chat("before")).await;
    let Answer::Completion(mut refused) = orchestrator.answered(Kind::Chat, before).await else { panic!() };
    let id = orchestrator.publish(&chat("what is asked")).await;
    worker.holds(Kind::Chat, 1).await;
    refused.handoff_id = id;
    let refused = Answer::Completion(refused);
    let mut headers = async_nats::HeaderMap::new();
    headers.insert(headers::EXPECTED_SEQUENCE, "999");
    headers.insert(headers::EXPECTED_SUBJECT, refused.subject().to_string());
    let line = ["--server", &nats.url(), "--json", "watch", &id.to_string()].map(str::to_owned);
    let watching = tokio::task::spawn_blocking(move || run(&cynodectl(), Path::new("."), &line, &[]));
    let body = bytes::Bytes::from(refused.encode(Encoding::Json).unwrap());
    while !watching.is_finished() {
        let subject = refused.subject().to_string();
        orchestrator.client.publish_with_headers(subject, headers.clone(), body.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let watched = watching.await.unwrap();
    let last = watched.stdout.lines().last().unwrap();
    assert!(last.contains("what is asked") && !watched.stdout.contains("before"), "{watched:?}");
    assert_eq!(watched.code, 0);
}

/// The whole life of a dead letter: listed, shown, replayed under a new id because it has been answered, dropped.
#[tokio::test]
async fn dead_letters_are_listed_shown_replayed_and_dropped() {
    for layout in Layout::ALL {
        dead_letters_live(layout, chat("too late")).await;
        dead_letters_live(layout, verify("too-late")).await;
    }
}

async fn dead_letters_live(layout: Layout, mut late: Handoff) {
    let (nats, kind) = (Nats::start(), late.kind());
    let ctl = async |nats: &Nats, line: &[&str]| ctl_in(layout, nats, line).await;
    let worker = match kind.role() {
        Role::ProjectManager => Worker::manager(&nats),
        Role::ProjectAnalyst => Worker::analyst(&nats),
    };
    let _worker = worker.laid_out(layout).start().await;
    let orchestrator = Orchestrator::connect(&nats).await.laid_out(layout);
    assert!(ctl(&nats, &["dead", "ls"]).await.stdout.contains("no dead letters"));
    late.deadline = Some("2020-01-01T00:00:00Z".parse().unwrap());
    let id = orchestrator.publish(&late).await;
    orchestrator.answered(kind, id).await;
    orchestrator.publish_raw(kind, async_nats::HeaderMap::new(), b"{\"half".to_vec()).await;
    eventually("both to be given up", async || (orchestrator.stored(streams::DEAD).await == 2).then_some(()))
        .await;

    let listed = ctl(&nats, &["dead", "ls"]).await;
    assert!(
        listed.stdout.contains("deadline_exceeded") && listed.stdout.contains(&id.to_string()),
        "{listed:?}"
    );
    assert!(listed.stdout.contains("invalid_handoff"), "{listed:?}");
    let only = ctl(&nats, &["--json", "dead", "ls", "--reason", "deadline_exceeded"]).await;
    let number = json(&only)["number"].as_u64().unwrap().to_string();
    let shown = ctl(&nats, &["dead", "show", &number]).await;
    assert!(
        shown.stdout.contains("dead-lettered as deadline_exceeded") && shown.stdout.contains("late\""),
        "{shown:?}"
    );
    let raw = ctl(&nats, &["dead", "show", &number, "--raw"]).await;
    assert_eq!(raw.stdout.as_bytes(), late.encode(subjects::Encoding::Json).unwrap());

    // Whoever looks for its answer where it is not would send it out under an id that has one.
    let lost = ctl_in(layout.other(), &nats, &["dead", "replay", &number]).await;
    assert_eq!((lost.code, orchestrator.stored(streams::DEAD).await), (UNAVAILABLE, 2), "{lost:?}");
    assert!(lost.stderr.contains(&format!("use the layout `{layout}`")), "{lost:?}");
    let replayed = ctl(&nats, &["--json", "dead", "replay", &number]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    assert!(
        replayed.stderr.contains("has been answered") && replayed.stderr.contains("without one"),
        "{replayed:?}"
    );
    let replayed = json(&replayed);
    assert_eq!(replayed["replay_of"], id.to_string());
    let new_id = replayed["handoff_id"].as_str().unwrap().parse().unwrap();
    let answer = orchestrator.answered(kind, new_id).await;
    assert_eq!(answer.error(), None, "the replay was answered well");
    assert_eq!(
        orchestrator.answered(kind, id).await.error().unwrap().code,
        subjects::ErrorCode::DeadlineExceeded
    );

    assert_eq!(orchestrator.stored(streams::DEAD).await, 1, "the replayed letter is gone");
    let refused = ctl(&nats, &["dead", "drop", "--all"]).await;
    assert_eq!((refused.code, orchestrator.stored(streams::DEAD).await), (FAILED, 1), "{refused:?}");
    let dropped = ctl(&nats, &["dead", "drop", "--all", "--yes"]).await;
    assert_eq!((dropped.code, orchestrator.stored(streams::DEAD).await), (0, 0), "{dropped:?}");
}

/// A handoff that was never answered keeps its id when it is replayed, and what an operator signs is trusted.
#[tokio::test]
async fn a_stranger_handoff_is_replayed_with_a_signature_under_its_own_id() {
    let nats = Nats::start();
    let key = nkeys::KeyPair::new_user();
    let seed = nats.folder().join("operator.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let seed = seed.display().to_string();
    let trusted = format!("[\"{}\"]", key.public_key());
    let _worker = Worker::manager(&nats).set("security.trusted_producers", &trusted).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("forgot to sign")).await;
    eventually("it to be given up", async || (orchestrator.stored(streams::DEAD).await == 1).then_some(()))
        .await;
    let replayed = ctl(&nats, &["--json", "dead", "replay", "--all", "--sign", &seed]).await;
    assert_eq!(
        (replayed.code, &json(&replayed)["handoff_id"]),
        (0, &Value::from(id.to_string())),
        "{replayed:?}"
    );
    assert_eq!(orchestrator.answered(Kind::Chat, id).await.error(), None);
    let said = ctl(&nats, &["handoff", "chat", "signed from the start", "--sign", &seed]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let unheard = ctl(&nats, &["handoff", "chat", "unsigned", "--timeout", "500ms"]).await;
    assert_eq!(unheard.code, NO_ANSWER, "{unheard:?}");
}

/// Text from others cannot play tricks with the terminal.
#[tokio::test]
async fn control_characters_do_not_reach_the_terminal() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let said = ctl(&nats, &["handoff", "chat", "\u{1b}[2Jgone"]).await;
    assert!(!said.stdout.contains('\u{1b}') && said.stdout.contains("gone"), "{said:?}");
}

/// A handoff's life as a person reads it: who, when, which turn, which tool, what it cost; before and after a death.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_is_read_followed_and_taken_by_programs() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let nats = Nats::start();
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let mut first = settings.clone().stopping_at("ToolAnswered#1").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    let id = id.to_string();
    eventually("the first to stop", async || first.log().contains("\"stops\":true").then_some(())).await;

    let shown = ctl(&nats, &["journal", "show", &id]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in
        ["attempt 1 by", "turn 1: local/scripted answered", "call 0: db.task.create …", "not answered yet"]
    {
        assert!(shown.stdout.contains(part), "{part}: {shown:?}");
    }
    first.process.kill();
    let line = ["journal", "show", &id, "--follow"];
    let (followed, _second) = tokio::join!(ctl(&nats, &line), settings.start());
    assert_eq!(followed.code, 0, "{followed:?}");
    for part in [
        "attempt 2 by",
        "going on from here",
        "call 3: db.task.create returned after",
        "answered: completed by",
        "after 2 attempts; 3 model calls, 4 tool calls, 300 + 30 tokens",
        "x1 is done",
    ] {
        assert!(followed.stdout.contains(part), "{part}: {followed:?}");
    }
    let told = ctl(&nats, &["--json", "journal", "show", &id]).await;
    let lines: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["entry"]["records"][0]["record"], "claimed");
    assert_eq!(lines.last().unwrap()["answer"]["status"], "completed");

    let stranger = ctl(&nats, &["journal", "show", "0193f2c0-5a00-7000-8000-00000000beef"]).await;
    assert_eq!(stranger.code, FAILED);
    assert!(stranger.stderr.contains("nobody has taken"), "{stranger:?}");
}
