//! Runs the commands of `cynodectl` against a server with workers.

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

/// Runs a command line against a server, on a blocking thread.
async fn ctl(nats: &Nats, line: &[&str]) -> Finished {
    ctl_in(Layout::default(), nats, line).await
}

/// Runs a command line with a stream layout.
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
async fn handoffs_print_their_answer_and_exit_with_its_code() {
    for layout in Layout::ALL {
        every_kind_prints_its_answer(layout).await;
    }
}

const REVIEW: &str = r#"{ "task_id": "t-1", "step": { "name": "a", "kind": "job", "script": "true" },
    "result": { "outcome": "succeeded" }, "iteration": 1, "max_iterations": 3 }"#;

async fn every_kind_prints_its_answer(layout: Layout) {
    let nats = Nats::start();
    let ctl = async |nats: &Nats, line: &[&str]| ctl_in(layout, nats, line).await;
    let _manager = Worker::manager(&nats).laid_out(layout).start().await;
    let _analyst = Worker::analyst(&nats).laid_out(layout).start().await;
    let finished = ctl(&nats, &["handoff", "chat", "What is left to do?"]).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(finished.stdout.contains("What is left to do?"), "{finished:?}");
    assert!(finished.stderr.contains("completed · attempt 1"), "{finished:?}");

    for line in [
        &["--json", "handoff", "chat", "hello", "--msgpack"][..],
        &["--json", "handoff", "schedule", "Check the links."],
        &["--json", "handoff", "plan", "Ship it", "--criterion", "it is shipped", "--project", "p-1"],
        &["--json", "handoff", "plan", "Run `make test`", "--steps-of", "t-1"],
        &["--json", "handoff", "review", REVIEW],
    ] {
        let finished = ctl(&nats, line).await;
        assert_eq!(finished.code, 0, "{line:?}: {finished:?}");
        assert_eq!(json(&finished)["status"], "completed", "{line:?}");
    }
    let finished = ctl(&nats, &["handoff", "review", REVIEW]).await;
    assert!(finished.stdout.contains("The step `a` passes."), "{finished:?}");
    let finished = ctl(&nats, &["handoff", "review", "{}"]).await;
    assert!(finished.code == USAGE && finished.stderr.contains("missing field `task_id`"), "{finished:?}");
    // Continuing an unknown handoff needs clarification; it is not a failure.
    let id = "0193f2c0-5a00-7000-8000-00000000beef";
    let finished = ctl(&nats, &["--json", "handoff", "continue", id, "staging"]).await;
    assert_eq!(
        (finished.code, &json(&finished)["status"]),
        (NEEDS_CLARIFICATION, &Value::from("needs_clarification"))
    );
    let finished =
        ctl(&nats, &["--json", "handoff", "verify", "deploy-docs-2", "--criterion", "it works"]).await;
    assert_eq!(
        (finished.code, &json(&finished)["status"]),
        (NEEDS_CLARIFICATION, &Value::from("needs_clarification"))
    );
    let finished = ctl(&nats, &["--json", "handoff", "plan", " "]).await;
    assert_eq!((finished.code, &json(&finished)["error"]["code"]), (FAILED, &Value::from("invalid_handoff")));

    // An id is answered once, even if it is published again; answer and journal are found in either layout.
    for (id, arguments) in [
        ("0193f2c0-5a00-7000-8000-0000000000aa", ["chat", "once"]),
        ("0193f2c0-5a00-7000-8000-0000000000ab", ["verify", "t-1"]),
    ] {
        let line = ["--json", "handoff", arguments[0], arguments[1], "--id", id];
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
async fn errors_say_what_to_do() {
    let nats = Nats::start();
    let finished = ctl(&nats, &["handoff", "chat", "hello"]).await;
    assert_eq!(finished.code, UNAVAILABLE);
    assert!(finished.stderr.contains("start a worker with nats.provision = create"), "{finished:?}");
    assert_eq!(ctl(&nats, &["status"]).await.code, UNAVAILABLE);
    drop(Worker::manager(&nats).start().await);
    let finished = ctl(&nats, &["handoff", "chat", "hello", "--timeout", "300ms"]).await;
    assert_eq!(finished.code, NO_ANSWER);
    assert!(
        finished.stderr.contains("no answer to") && finished.stderr.contains("cynodectl watch"),
        "{finished:?}"
    );
    let finished = ctl(&nats, &["cancel", "0193f2c0-5a00-7000-8000-0000000000aa"]).await;
    assert_eq!(finished.code, UNAVAILABLE);
    assert!(finished.stderr.contains("no running instance"), "{finished:?}");
    let finished = ctl(&nats, &["dead", "show", "7"]).await;
    assert_eq!(finished.code, FAILED);
    assert!(finished.stderr.contains("dead letter 7 not found"), "{finished:?}");
    assert_eq!(ctl(&nats, &["handoff", "chat", "hi", "--id", "nonsense"]).await.code, USAGE);
    assert_eq!(ctl(&nats, &["dead", "replay"]).await.code, USAGE);
    let finished = ctl(&nats, &["handoff", "chat", "hi", "--sign", "/nowhere"]).await;
    assert_eq!(finished.code, USAGE);
    assert!(finished.stderr.contains("/nowhere"), "{finished:?}");
    // Files are read before anything connects, and a missing user is named before anything is published.
    for option in ["--sign", "--lease"] {
        let line = ["--server", "nats://127.0.0.1:1", "handoff", "chat", "hi", option, "/nowhere"];
        let finished = run(&cynodectl(), Path::new("."), &line, &[]);
        assert_eq!(finished.code, USAGE, "{finished:?}");
    }
    let line = ["--server", "nats://127.0.0.1:1", "handoff", "chat", "hi"];
    let finished = run(&cynodectl(), Path::new("."), &line, &[]);
    let (note, error) = finished.stderr.split_once("\n").unwrap();
    assert!(note.contains("no user is named") && note.contains("--user ID"), "{finished:?}");
    assert!(error.contains("cannot connect to NATS"), "{finished:?}");
    let finished = run(&cynodectl(), Path::new("."), &[&line[..], &["--no-lease"]].concat(), &[]);
    assert!(!finished.stderr.contains("no user is named"), "{finished:?}");
    let unreachable = run(&cynodectl(), Path::new("."), &["--server", "nats://127.0.0.1:1", "status"], &[]);
    assert_eq!(unreachable.code, UNAVAILABLE);
    assert!(unreachable.stderr.contains("cannot connect to NATS"), "{unreachable:?}");
    assert_eq!(unreachable.stderr.matches("Connection refused").count(), 1, "said once: {unreachable:?}");
}

#[tokio::test]
async fn status_shows_queues_work_and_instances() {
    let nats = Nats::start();
    let worker =
        Worker::manager(&nats).set("instance", "pm-one").thinking(Duration::from_secs(60)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("long")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    let finished = ctl(&nats, &["status"]).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    for part in ["CYNODE_HANDOFFS", "IN FLIGHT", "pm-one", "project_manager", "ready", "chat 1/16", "offline"]
    {
        assert!(finished.stdout.contains(part), "{part} is missing in\n{}", finished.stdout);
    }
    let finished = json(&ctl(&nats, &["status", "--json"]).await);
    assert_eq!(finished["queues"][0]["in_flight"], 1);
    assert_eq!(finished["instances"][0]["in_flight"]["chat"]["running"], 1);
    drop(worker);
    assert!(ctl(&nats, &["status"]).await.stdout.contains("no instance is running"));
    let finished = ctl_in(Layout::ByRole, &nats, &["status"]).await;
    assert_eq!(finished.code, UNAVAILABLE, "{finished:?}");
    assert!(finished.stderr.contains("`pa.verify` is in CYNODE_HANDOFFS"), "{finished:?}");
    assert!(
        finished.stderr.contains("--layout") && finished.stderr.contains("CYNODE_LAYOUT"),
        "{finished:?}"
    );
    let finished = run(&cynodectl(), Path::new("."), &["status"], &[("CYNODE_LAYOUT", "per_role")]);
    assert_eq!(finished.code, USAGE, "{finished:?}");
    assert!(finished.stderr.contains("`shared` or `by_role`"), "{finished:?}");
}

#[tokio::test]
async fn cancelled_handoff_is_watched_to_its_end() {
    let nats = Nats::start();
    let worker =
        Worker::manager(&nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(60)).start().await;
    let finished = ctl(&nats, &["handoff", "chat", "never mind", "--no-wait"]).await;
    let id = finished.stdout.trim().to_owned();
    worker.wait_for_in_flight(Kind::Chat, 1).await;
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
    // Long enough for the watchers to subscribe and for one heartbeat.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let finished = ctl(&nats, &["cancel", &id]).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    let expected = format!("the chat handoff {id} is cancelled");
    assert!(finished.stdout.starts_with(&expected), "{finished:?}");
    let watched = watching.await.unwrap();
    assert_eq!(watched.code, FAILED, "{watched:?}");
    assert!(watched.stdout.lines().last().unwrap().contains("\"status\":\"cancelled\""), "{watched:?}");
    let seen = everything.await.unwrap();
    assert!(seen.stdout.contains("working for") && seen.stdout.contains("cancelled by"), "{seen:?}");
    // Too late to cancel: prints the existing answer.
    let finished = ctl(&nats, &["cancel", &id]).await;
    assert_eq!(finished.code, FAILED, "{finished:?}");
    assert!(finished.stderr.contains("was already answered as cancelled"), "{finished:?}");
    // Neither running nor waiting.
    let finished = ctl(&nats, &["cancel", "01890a5d-ac96-774b-bcce-b302099a8057"]).await;
    assert_eq!((finished.code, finished.stdout.as_str()), (FAILED, ""), "{finished:?}");
    assert!(finished.stderr.contains("nothing to cancel: no worker works on 01890a5d"), "{finished:?}");
}

/// The holder of a lease can act under it, so it is no part of what is shown of a dead letter.
#[tokio::test]
async fn lease_of_a_dead_handoff_is_not_shown() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish_under(&chat("hello"), "cyl1.a.signed-lease").await;
    eventually("it to be dead-lettered", async || {
        (orchestrator.stored(streams::DEAD).await == 1).then_some(())
    })
    .await;
    for line in [&["dead", "show", "1"][..], &["--json", "dead", "show", "1"]] {
        let shown = ctl(&nats, line).await;
        assert!(shown.stdout.contains("Cynode-Lease") && shown.stdout.contains("[redacted]"), "{shown:?}");
        assert!(!shown.stdout.contains("signed-lease"), "{shown:?}");
    }
}

/// Subscribers also receive an answer that the stream refuses, such as that of a fenced worker. It must be
/// ignored.
#[tokio::test]
async fn answer_that_is_not_stored_is_ignored() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).thinking(Duration::from_secs(2)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let before = orchestrator.publish(&chat("before")).await;
    let Answer::Completion(mut refused) = orchestrator.wait_for_answer(Kind::Chat, before).await else {
        panic!()
    };
    let id = orchestrator.publish(&chat("what is asked")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
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

/// A dead letter is listed, shown, replayed under a new id because it was answered, and dropped.
#[tokio::test]
async fn dead_letters_are_listed_shown_replayed_and_dropped() {
    for layout in Layout::ALL {
        dead_letter_commands_work(layout, chat("too late")).await;
        dead_letter_commands_work(layout, verify("too-late")).await;
    }
}

async fn dead_letter_commands_work(layout: Layout, mut late: Handoff) {
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
    orchestrator.wait_for_answer(kind, id).await;
    orchestrator.publish_raw(kind, async_nats::HeaderMap::new(), b"{\"half".to_vec()).await;
    eventually("both to be dead-lettered", async || {
        (orchestrator.stored(streams::DEAD).await == 2).then_some(())
    })
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

    // With the wrong layout the answer would not be found, and the replay would keep an id that is answered.
    let wrong_layout = ctl_in(layout.other(), &nats, &["dead", "replay", &number]).await;
    assert_eq!(
        (wrong_layout.code, orchestrator.stored(streams::DEAD).await),
        (UNAVAILABLE, 2),
        "{wrong_layout:?}"
    );
    assert!(wrong_layout.stderr.contains(&format!("use the layout `{layout}`")), "{wrong_layout:?}");
    let replayed = ctl(&nats, &["--json", "dead", "replay", &number]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    assert!(
        replayed.stderr.contains("has been answered") && replayed.stderr.contains("without one"),
        "{replayed:?}"
    );
    let replayed = json(&replayed);
    assert_eq!(replayed["replay_of"], id.to_string());
    let new_id = replayed["handoff_id"].as_str().unwrap().parse().unwrap();
    let answer = orchestrator.wait_for_answer(kind, new_id).await;
    assert_eq!(answer.error(), None, "the replay was answered without an error");
    assert_eq!(
        orchestrator.wait_for_answer(kind, id).await.error().unwrap().code,
        subjects::ErrorCode::DeadlineExceeded
    );

    assert_eq!(orchestrator.stored(streams::DEAD).await, 1, "the replayed letter is deleted");
    let refused = ctl(&nats, &["dead", "drop", "--all"]).await;
    assert_eq!((refused.code, orchestrator.stored(streams::DEAD).await), (FAILED, 1), "{refused:?}");
    let dropped = ctl(&nats, &["dead", "drop", "--all", "--yes"]).await;
    assert_eq!((dropped.code, orchestrator.stored(streams::DEAD).await), (0, 0), "{dropped:?}");
}

/// A handoff that was never answered keeps its id when it is replayed, and the operator's signature is
/// trusted.
#[tokio::test]
async fn unsigned_handoff_is_replayed_with_a_signature_under_its_own_id() {
    let nats = Nats::start();
    let key = nkeys::KeyPair::new_user();
    let seed = nats.folder().join("operator.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let seed = seed.display().to_string();
    let trusted = format!("[\"{}\"]", key.public_key());
    let _worker = Worker::manager(&nats).set("security.trusted_producers", &trusted).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("forgot to sign")).await;
    eventually("it to be dead-lettered", async || {
        (orchestrator.stored(streams::DEAD).await == 1).then_some(())
    })
    .await;
    let replayed = ctl(&nats, &["--json", "dead", "replay", "--all", "--sign", &seed]).await;
    assert_eq!(
        (replayed.code, &json(&replayed)["handoff_id"]),
        (0, &Value::from(id.to_string())),
        "{replayed:?}"
    );
    assert_eq!(orchestrator.wait_for_answer(Kind::Chat, id).await.error(), None);
    let finished = ctl(&nats, &["handoff", "chat", "signed from the start", "--sign", &seed]).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    let unsigned = ctl(&nats, &["handoff", "chat", "unsigned", "--timeout", "500ms"]).await;
    assert_eq!(unsigned.code, NO_ANSWER, "{unsigned:?}");
}

/// Foreign text must not control the terminal.
#[tokio::test]
async fn control_characters_do_not_reach_the_terminal() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let finished = ctl(&nats, &["handoff", "chat", "\u{1b}[2Jgone"]).await;
    assert!(!finished.stdout.contains('\u{1b}') && finished.stdout.contains("gone"), "{finished:?}");
}

/// A journal shows attempts, turns, tool calls and cost, before and after a crash, as text and as JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_is_shown_followed_and_printed_as_json() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let nats = Nats::start();
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let mut first = settings.clone().stopping_at("ToolAnswered#2").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    let id = id.to_string();
    eventually("the first to stop", async || first.log().contains("\"stops\":true").then_some(())).await;

    let shown = ctl(&nats, &["journal", "show", &id]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in [
        "attempt 1 by",
        "“Create the tasks of",
        "turn 1: local/scripted answered",
        "call 1: db.task.create …",
        "not answered yet",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {shown:?}");
    }
    first.process.kill();
    let line = ["journal", "show", &id, "--follow"];
    let (followed, _second) = tokio::join!(ctl(&nats, &line), settings.start());
    assert_eq!(followed.code, 0, "{followed:?}");
    for part in [
        "attempt 2 by",
        "resuming from here",
        "call 4: db.task.create returned after",
        "answered: completed by",
        "after 2 attempts; 3 model calls, 5 tool calls, 300 + 30 tokens",
        "x1 is done",
    ] {
        assert!(followed.stdout.contains(part), "{part}: {followed:?}");
    }
    let printed = ctl(&nats, &["--json", "journal", "show", &id]).await;
    let lines: Vec<Value> = printed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["entry"]["records"][0]["record"], "claimed");
    assert_eq!(lines.last().unwrap()["answer"]["status"], "completed");

    let unknown = ctl(&nats, &["journal", "show", "0193f2c0-5a00-7000-8000-00000000beef"]).await;
    assert_eq!(unknown.code, FAILED);
    assert!(unknown.stderr.contains("no worker has claimed"), "{unknown:?}");
}
