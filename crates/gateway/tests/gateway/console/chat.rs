//! Chat and threads with forms alone, against a real orchestrator, worker and scripted model.

use serde_json::Value;
use testkit::{
    GatewayProcess, Model, Nats, OrchestratorBuilder, OrchestratorProcess, Script, Worker, eventually,
    free_port,
};

use super::support::{Answer, Gateway, Visitor};

pub(crate) const CHAT: &str = "/console/chat";

/// A gateway whose console chats with an orchestrator, a worker and a model that follows a script.
pub(crate) struct ChatStack {
    pub(crate) gateway: Gateway,
    pub(crate) process: GatewayProcess,
    pub(crate) model: Model,
    pub(crate) orchestrator: Option<OrchestratorProcess>,
    builder: OrchestratorBuilder,
    pub(crate) worker: Worker,
    _nats: Nats,
}

impl ChatStack {
    pub(crate) async fn start(turns: impl IntoIterator<Item = Script>) -> Self {
        let (nats, port, model) = (Nats::start(), free_port(), Model::start(turns).await);
        let url = format!("http://127.0.0.1:{port}/v1");
        let settings = [("nats.url", &*nats.url()), ("admin.orchestrator_url", &url)];
        let process = GatewayProcess::start_with(&settings).await;
        let manager = Worker::manager(&nats).asking(&model).set("inference.timeout", "60s");
        let worker = manager.calling_process(&process).await.start().await;
        let builder = OrchestratorBuilder::new(&nats, &process).await.on_port(port);
        let orchestrator = Some(builder.start().await);
        let gateway = Gateway::of(&process);
        Self { gateway, process, model, orchestrator, builder, worker, _nats: nats }
    }

    pub(crate) async fn start_orchestrator(&mut self) {
        self.orchestrator = Some(self.builder.start().await);
    }
}

/// Sends a message and returns the address of the page that is shown next.
async fn say(visitor: &Visitor<'_>, thread: &str, text: &str) -> String {
    let sent = visitor.post(CHAT, &[("thread", thread), ("message", text)]).await;
    assert_eq!(sent.status, 303, "{}", sent.body);
    sent.header("location").unwrap().split('#').next().unwrap().to_owned()
}

fn id_of(page: &str) -> &str {
    page.split("thread=").nth(1).unwrap()
}

fn export(page: &str, format: &str) -> String {
    format!("/console/threads/export?id={}&format={format}", id_of(page))
}

fn assert_shows(answer: &Answer, texts: &[&str]) {
    for text in texts {
        assert!(answer.shows(text), "{text}: {}", answer.body);
    }
}

#[tokio::test]
async fn chat_works_without_a_script() {
    let stack = ChatStack::start([
        Script::say("Two *tasks* are left.\n\n<script>alert(1)</script>"),
        Script::say("Paint the fence."),
    ])
    .await;
    let admin = stack.gateway.administrator().await;
    let new = admin.get(CHAT).await;
    assert_shows(&new, &["New thread", "You chat as <strong>admin</strong>", "action=\"/console/chat\""]);
    let page = say(&admin, "", "What is <b>left</b>?").await;
    let shown = admin.get(&page).await;
    assert_shows(
        &shown,
        &["What is &lt;b&gt;left&lt;/b&gt;?", "Two <em>tasks</em> are left.", "&lt;script&gt;alert(1)"],
    );
    assert!(!shown.shows("<script>alert") && !shown.shows("<b>left"), "{}", shown.body);
    assert_eq!(say(&admin, id_of(&page), "Which is first?").await, page);
    assert_shows(&admin.get(&page).await, &["Two <em>tasks</em>", "Which is first?", "Paint the fence."]);
    // The manager was told what was said before.
    let asked = stack.model.turns().last().unwrap().body.to_string();
    assert!(asked.contains("Which is first?") && asked.contains("are left"), "{asked}");
    let audit = admin.get("/console/audit").await;
    assert_shows(&audit, &["admin.chat.key", "admin.chat.send"]);
    // One key for both messages, which the console alone knows.
    let tokens = admin.get("/console/tokens").await;
    assert_eq!(tokens.body.matches("chat in the console").count(), 2, "a row and its question");
    // A message that is posted twice is sent once.
    let twice =
        [("thread", id_of(&page)), ("message", "Once."), ("request", "0197f0a0-0000-7000-8000-000000000001")];
    for _ in 0..2 {
        assert_eq!(admin.post(CHAT, &twice).await.status, 303);
    }
    assert_eq!(admin.get(&page).await.body.matches("Once.").count(), 1);
    // A text that was changed since is not sent under the name of the first, but can be sent after that.
    let changed = [twice[0], ("message", "Once <more>."), twice[2]];
    let refused = admin.post(CHAT, &changed).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert_shows(&refused, &["sent before with another text", "Once &lt;more&gt;.</textarea>"]);
    let request = refused.body.split("name=\"request\" value=\"").nth(1).unwrap();
    let request = request.split('"').next().unwrap();
    assert_ne!(request, twice[2].1);
    let sent = admin.post(CHAT, &[changed[0], changed[1], ("request", request)]).await;
    assert_eq!(sent.status, 303, "{}", sent.body);
    assert_shows(&admin.get(&page).await, &["Once.", "Once &lt;more&gt;."]);
}

#[tokio::test]
async fn unfinished_work_is_shown_and_stopped_without_a_script() {
    let stack = ChatStack::start([Script::Hang]).await;
    let admin = stack.gateway.administrator().await;
    let sending = admin.post(CHAT, &[("message", "Take your time.")]);
    let looking = async {
        let list = eventually("a thread that is worked on", async || {
            let list = admin.get("/console/threads").await;
            list.shows("Working").then_some(list)
        })
        .await;
        let id = list.body.split("/console/threads/thread?id=").nth(1).unwrap().split('"').next().unwrap();
        let page = format!("{CHAT}?thread={id}");
        let shown = admin.get(&page).await;
        assert_shows(&shown, &["Working…", "Refresh the page", "formaction=\"/console/chat/stop\""]);
        let turn = shown.body.split("name=\"turn\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        // Another message is refused while the manager works, and is not lost.
        let busy = admin.post(CHAT, &[("thread", id), ("message", "And <this>?")]).await;
        assert_eq!(busy.status, 409, "{}", busy.body);
        assert_shows(&busy, &["still works on the last message", "And &lt;this&gt;?</textarea>"]);
        stack.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
        let stopped = admin.post("/console/chat/stop", &[("thread", id), ("turn", turn)]).await;
        assert_eq!((stopped.status, stopped.header("location")), (303, Some(&*page)));
        assert_shows(&admin.get(&page).await, &["You stopped this."]);
    };
    let (sent, ()) = tokio::join!(sending, looking);
    assert_eq!(sent.status, 303, "{}", sent.body);
}

#[tokio::test]
async fn failures_are_explained_and_the_typed_text_is_kept() {
    let mut stack = ChatStack::start([Script::Refuse(400, "no such model".to_owned())]).await;
    let admin = stack.gateway.administrator().await;
    let page = say(&admin, "", "Is the model there?").await;
    assert_shows(&admin.get(&page).await, &["The project manager could not answer."]);
    stack.orchestrator = None;
    let fields = [("thread", id_of(&page)), ("message", "Is anyone there?")];
    let away = admin.post(CHAT, &fields).await;
    assert_eq!(away.status, 503);
    assert_shows(
        &away,
        &[
            "Your message was not sent.",
            "cynode-orchestrator",
            "admin.orchestrator_url",
            "Is anyone there?</textarea>",
        ],
    );
    stack.start_orchestrator().await;
    let gateway = Gateway::of(&stack.process);
    let admin = gateway.administrator().await;
    say(&admin, id_of(&page), "Is anyone there?").await;
    let empty = admin.post(CHAT, &[("message", "  ")]).await;
    assert!(empty.status == 422 && empty.shows("The message is empty"), "{}", empty.body);
}

#[tokio::test]
async fn page_says_how_chat_is_set_up() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    assert_shows(&admin.get(CHAT).await, &["Chat is not set up.", "admin.orchestrator_url"]);
    assert_eq!(admin.post(CHAT, &[("message", "hello")]).await.status, 503);
    // An administrator whose token names no user has no threads and cannot chat.
    let nobody = gateway.sign_in(&admin.issue(&[("agent", "admin"), ("label", "nobody")]).await).await;
    assert_shows(&nobody.get(CHAT).await, &["Your token names no user"]);
    assert_shows(&nobody.get("/console/threads").await, &["Your token names no user"]);
    assert_eq!(nobody.post(CHAT, &[("message", "hello")]).await.status, 403);
    let wrong = [("agent", "admin"), ("label", "a"), ("user_id", "no user")];
    assert_eq!(admin.post("/console/tokens", &wrong).await.status, 422);
}

#[tokio::test]
async fn threads_of_others_are_not_found() {
    let stack = ChatStack::start([Script::say("Noted.")]).await;
    let admin = stack.gateway.administrator().await;
    let secret = admin.issue(&[("agent", "admin"), ("label", "second"), ("user_id", "bob")]).await;
    let bob = stack.gateway.sign_in(&secret).await;
    let ada = stack.gateway.sign_in(&admin.issue_user("ada").await).await;
    let page = say(&ada, "", "The word is swordfish.").await;
    assert_shows(&ada.get("/console/threads").await, &["The word is swordfish."]);
    let id = id_of(&page);
    for other in [&admin, &bob] {
        for path in ["/console/threads", CHAT] {
            assert!(!other.get(path).await.shows("swordfish"), "{path}");
        }
        let thread = format!("/console/threads/thread?id={id}");
        for path in [&*page, &thread, &export(&page, "json"), &format!("{CHAT}/live?thread={id}&turn={id}")] {
            let answer = other.get(path).await;
            assert!(answer.status == 404 && !answer.shows("swordfish"), "{path}: {}", answer.status);
        }
        assert_eq!(other.post(CHAT, &[("thread", id), ("message", "mine now")]).await.status, 404);
        other.post("/console/threads/rename", &[("id", id), ("title", "mine now")]).await;
        other.post("/console/threads/delete", &[("id", id)]).await;
    }
    // The same user, with another token, has the same threads.
    let again = stack.gateway.sign_in(&admin.issue_user("ada").await).await;
    let shown = again.get(&page).await;
    assert_shows(&shown, &["The word is swordfish.", "Noted."]);
    assert!(!shown.shows("mine now"));
    // What was asked over the API is in the same list.
    let key = stack.process.api_key("bob").await.1;
    stack.orchestrator.as_ref().unwrap().client(&key).ask("Over the API.").await;
    assert_shows(&bob.get("/console/threads").await, &["Over the API."]);
}

#[tokio::test]
async fn thread_is_read_renamed_exported_and_deleted() {
    let stack = ChatStack::start([Script::say("**Nothing** is left.")]).await;
    let admin = stack.gateway.administrator().await;
    assert_shows(&admin.get("/console/threads").await, &["No threads."]);
    let page = say(&admin, "", "What is left?").await;
    let thread = format!("/console/threads/thread?id={}", id_of(&page));
    assert_shows(
        &admin.get(&thread).await,
        &["<strong>Nothing</strong> is left.", "Continue in chat", "Delete this thread"],
    );
    let id = ("id", id_of(&page));
    let renamed = admin.post("/console/threads/rename", &[id, ("title", "What <is> left")]).await;
    assert_eq!((renamed.status, renamed.header("location")), (303, Some(&*thread)));
    assert_shows(&admin.get("/console/threads").await, &["What &lt;is&gt; left", "Answered"]);
    let markdown = admin.get(&export(&page, "markdown")).await;
    assert_eq!(markdown.header("content-disposition"), Some("attachment; filename=\"thread.md\""));
    assert_shows(
        &markdown,
        &["# What <is> left", "## User\n\nWhat is left?", "## Project manager\n\n**Nothing**"],
    );
    let json: Value = serde_json::from_str(&admin.get(&export(&page, "json")).await.body).unwrap();
    assert_eq!(json["messages"][1]["content"], "**Nothing** is left.");
    assert_eq!(admin.post("/console/threads/delete", &[id]).await.status, 303);
    for path in [&*thread, &page, &export(&page, "json")] {
        assert_eq!(admin.get(path).await.status, 404, "{path}");
    }
    assert_shows(&admin.get("/console/audit").await, &["admin.thread.rename", "admin.thread.delete"]);
}

/// The console's API key is lost with the gateway. What is sent again under its next one is the same request.
#[tokio::test]
async fn form_that_is_sent_again_after_a_restart_is_not_sent_twice() {
    let mut stack = ChatStack::start([Script::say("Two are left."), Script::say("Still two.")]).await;
    let form =
        [("thread", ""), ("message", "What is left?"), ("request", "0193f2c0-5a00-7000-8000-0000000000aa")];
    let first = stack.gateway.administrator().await.post(CHAT, &form).await;
    assert_eq!(first.status, 303, "{}", first.body);
    eventually("the answer", async || (stack.model.turns().len() == 1).then_some(())).await;
    stack.process.kill();
    stack.process.start_again().await;
    stack.gateway = Gateway::of(&stack.process);
    let admin = stack.gateway.administrator().await;
    // The orchestrator may still find the gateway away.
    let again = eventually("the form to be taken", async || {
        let again = admin.post(CHAT, &form).await;
        (again.status == 303).then_some(again)
    })
    .await;
    let page = |answer: &Answer| answer.header("location").unwrap().split('#').next().unwrap().to_owned();
    assert_eq!(page(&again), page(&first), "the same thread");
    assert_shows(&admin.get(&page(&again)).await, &["Two are left."]);
    assert_eq!(stack.model.turns().len(), 1);
}

#[tokio::test]
async fn key_of_the_console_that_was_revoked_is_replaced() {
    let stack = ChatStack::start([Script::say("Two are left."), Script::say("Paint it.")]).await;
    let admin = stack.gateway.administrator().await;
    let page = say(&admin, "", "What is left?").await;
    let thread = id_of(&page).to_owned();
    eventually("the answer", async || admin.get(&page).await.shows("Two are left.").then_some(())).await;
    let tokens = stack.process.must("GET", "/api/v1/tokens", None).await;
    let tokens = tokens.as_array().expect("tokens");
    let of_console: Vec<_> = tokens.iter().filter(|it| it["label"] == "chat in the console").collect();
    assert_eq!(of_console.len(), 1, "{tokens:?}");
    let id = of_console[0]["id"].as_str().expect("an id");
    stack.process.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
    let page = say(&admin, &thread, "What first?").await;
    eventually("the answer", async || admin.get(&page).await.shows("Paint it.").then_some(())).await;
}
