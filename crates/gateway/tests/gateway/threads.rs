//! Threads and API keys at the running gateway, as orchestrators use them.

mod api_keys;
mod concurrent;

use std::time::Duration;

use access::tokens;
use contract::{
    Page, ToolContract, arguments,
    key::{Check, Checked, Key},
    lease::Issued,
    thread::{
        AnswerState, BeginOutcome, BeginTurn, BegunTurn, EndTurn, EndedTurn, GetTurn, ListMessages,
        ListUnsent, MAX_ANSWER_BYTES, MAX_MESSAGES_BYTES, MarkSent, MarkedSent, ThreadMessage, Turn,
        TurnAnswer, TurnOptions, Unsent,
    },
};
use futures_util::future::join_all;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use subjects::{ChatMessage, ChatRole, HandoffId};
use testkit::GatewayProcess;
use tokio::time::sleep;

/// An orchestrator at one gateway.
pub(crate) struct Orchestrator {
    agent: mcp::Client,
}

impl Orchestrator {
    pub(crate) async fn at(gateway: &GatewayProcess) -> Self {
        Self { agent: gateway.agent(&gateway.unbound("orchestrator").await) }
    }

    /// Calls a tool once.
    pub(crate) async fn try_call<T>(&self, input: &T) -> Result<T::Output, mcp::Error>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        let call = mcp::Call {
            name: T::NAME,
            arguments: arguments(input),
            idempotency_key: None,
            traceparent: None,
            lease: None,
        };
        let reply = self.agent.call(call).await?;
        assert!(!reply.is_error, "{}: {:.500}", T::NAME, reply.text);
        Ok(serde_json::from_value(reply.structured.expect("a result")).expect("the result of the contract"))
    }

    pub(crate) async fn call<T>(&self, input: &T) -> T::Output
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        self.try_call(input).await.unwrap_or_else(|error| panic!("{}: {error}", T::NAME))
    }

    /// Calls again until the gateway answers. The call must be one that may be repeated.
    async fn call_until_answered<T>(&self, input: &T) -> T::Output
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        loop {
            match self.try_call(input).await {
                Ok(output) => return output,
                Err(error) if error.is_transient() => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{}: {error}", T::NAME),
            }
        }
    }

    pub(crate) async fn check(&self, secret: &str) -> Option<Key> {
        let checked: Checked = self.call(&Check { hash: tokens::hash(secret) }).await;
        checked.key
    }
}

/// Creates an API key and returns its id.
pub(crate) async fn key_of(gateway: &GatewayProcess, user: &str) -> String {
    gateway.issue(json!({ "label": "test", "agent": "user", "user_id": user })).await.0
}

pub(crate) fn request(user: &str, key_id: &str, content: &str) -> BeginTurn {
    let messages = vec![ChatMessage { role: ChatRole::User, content: content.to_owned() }];
    BeginTurn {
        user_id: user.parse().unwrap(),
        key_id: key_id.to_owned(),
        thread: None,
        in_new_thread: false,
        request_key: None,
        body_hash: tokens::hash(content),
        is_retry: false,
        received_at: None,
        max_open: None,
        follows: None,
        wait_id: None,
        messages,
        options: TurnOptions::default(),
    }
}

pub(crate) fn end(handoff_id: HandoffId, text: &str) -> EndTurn {
    let answer = TurnAnswer {
        state: AnswerState::Completed,
        text: text.to_owned(),
        error_code: None,
        is_cut: false,
        prompt_tokens: 1,
        completion_tokens: 2,
    };
    EndTurn { handoff_id, answer, is_work_over: true }
}

/// A turn from its beginning to its answer. The lease is one that a manager can use and renew.
#[tokio::test]
async fn turn_is_begun_sent_and_ended() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = Orchestrator::at(&gateway).await;
    let key = key_of(&gateway, "ada").await;
    let begun = orchestrator.call(&request("ada", &key, "hello")).await;
    assert_eq!(begun.outcome, BeginOutcome::Begun);
    let id = begun.turn.handoff_id;
    let unsent: Unsent = orchestrator.call(&ListUnsent { older_than_seconds: 0, limit: 10 }).await;
    assert_eq!(unsent.turns.len(), 1);
    let manager = gateway.agent(&gateway.manager().await);
    for lease in [begun.lease.unwrap(), unsent.turns[0].lease.clone()] {
        let renewed = gateway.call_under(&manager, Some(&lease), "lease.renew", json!({})).await.unwrap();
        let renewed: Issued = serde_json::from_value(renewed.structured.unwrap()).unwrap();
        assert!(!renewed.lease.is_empty());
        let others = json!({ "user_id": "eve" });
        let denied = gateway.call_under(&manager, Some(&lease), "db.task.list", others).await;
        assert!(denied.is_err(), "{denied:?}");
    }
    let marked: MarkedSent = orchestrator.call(&MarkSent { handoff_ids: vec![id] }).await;
    assert_eq!(marked.marked, 1);
    let ended: EndedTurn = orchestrator.call(&end(id, "hi")).await;
    assert!(ended.ended);
    let rows = gateway.audit("tool=thread.*").await;
    let begin = rows.iter().find(|row| row["tool"] == "thread.turn.begin").unwrap();
    assert_eq!((&begin["user_id"], &begin["agent"]), (&json!("ada"), &json!("orchestrator")), "{rows:?}");
    assert!(!gateway.log().contains("hello"), "what users say is not logged");
}

/// The largest turn with the largest answer passes in and out, with control characters, which are longest as
/// JSON.
#[tokio::test]
async fn largest_turn_passes_whole() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = Orchestrator::at(&gateway).await;
    let key = key_of(&gateway, "ada").await;
    for unit in ["x", "\u{1}", "\"", "é"] {
        let width = serde_json::to_string(unit).unwrap().len() - 2;
        let content = unit.repeat((MAX_MESSAGES_BYTES - 100) / width);
        let begun: BegunTurn = orchestrator.call(&request("ada", &key, &content)).await;
        assert_eq!((begun.outcome, &begun.turn.messages[0].content), (BeginOutcome::Begun, &content));
        let unsent: Unsent = orchestrator.call(&ListUnsent { older_than_seconds: 0, limit: 50 }).await;
        assert_eq!(unsent.turns[0].turn.messages[0].content, content);
        let text = unit.repeat(MAX_ANSWER_BYTES / width);
        orchestrator.call(&end(begun.turn.handoff_id, &text)).await;
        let get = GetTurn { user_id: "ada".parse().unwrap(), handoff_id: begun.turn.handoff_id };
        let turn: Turn = orchestrator.call(&get).await;
        assert!(turn.answer.unwrap().text == text && turn.messages[0].content == content, "{unit:?}");
        let list = ListMessages {
            user_id: "ada".parse().unwrap(),
            thread: turn.thread_id,
            limit: None,
            cursor: None,
        };
        let page: Page<ThreadMessage> = orchestrator.call(&list).await;
        assert_eq!(page.items.len(), 2);
    }
}

/// No agent but an orchestrator sees or calls these tools, also not with a lease for the user.
#[tokio::test]
async fn other_agents_have_no_threads() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = gateway.unbound("orchestrator").await;
    let own: Vec<String> = gateway.tools(&orchestrator).await;
    let names: Vec<&String> = own.iter().filter(|name| name.starts_with("thread.")).collect();
    assert_eq!(names.len(), 13, "{own:?}");
    assert!(own.contains(&"key.check".to_owned()));
    let manager = gateway.manager().await;
    let bound = gateway.bound("project_analyst", "ada", "t-1").await;
    let sandbox = gateway.bound("sandbox", "ada", "t-1").await;
    for token in [&manager, &bound, &sandbox] {
        let listed = gateway.tools(token).await;
        assert!(!listed.iter().any(|name| name.starts_with("thread.") || name.starts_with("key.")));
        for name in own.iter().filter(|name| name.starts_with("thread.") || name.starts_with("key.")) {
            let (_, answer) = gateway.post_call(token, name, json!({ "user_id": "ada" })).await;
            let expected = json!(format!("Unknown tool: {name}"));
            assert_eq!(answer["error"]["message"], expected, "{answer}");
        }
    }
}

/// The gateway is killed again and again while orchestrators call: each named request is one turn, with one
/// answer, and the threads have them in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_stores_each_request_once_and_in_order() {
    const THREADS: usize = 6;
    const TURNS: usize = 12;
    const KILLS: usize = 6;
    let mut gateway = GatewayProcess::start().await;
    let (orchestrator, key) = (Orchestrator::at(&gateway).await, key_of(&gateway, "ada").await);
    let talk = async |thread: usize| {
        for number in 0..TURNS {
            let content = format!("{thread}-{number}");
            let request = BeginTurn {
                thread: Some(format!("thread-{thread}")),
                request_key: Some(content.clone()),
                ..request("ada", &key, &content)
            };
            let begun = orchestrator.call_until_answered(&request).await;
            // The answer to an earlier attempt may be lost.
            assert!(matches!(begun.outcome, BeginOutcome::Begun | BeginOutcome::Joined), "{begun:?}");
            assert_eq!(begun.turn.position, i64::try_from(number).unwrap());
            orchestrator.call_until_answered(&end(begun.turn.handoff_id, &format!("re {content}"))).await;
        }
    };
    let talking = join_all((0..THREADS).map(talk));
    let killing = async {
        for _ in 0..KILLS {
            sleep(Duration::from_millis(150)).await;
            gateway.start_again().await;
        }
    };
    tokio::join!(talking, killing);
    for thread in 0..THREADS {
        let list = ListMessages {
            user_id: "ada".parse().unwrap(),
            thread: format!("thread-{thread}"),
            limit: Some(200),
            cursor: None,
        };
        let page: Page<ThreadMessage> = orchestrator.call(&list).await;
        let said: Vec<String> = page.items.into_iter().map(|message| message.content).collect();
        let expected: Vec<String> = (0..TURNS)
            .flat_map(|number| [format!("{thread}-{number}"), format!("re {thread}-{number}")])
            .collect();
        assert_eq!(said, expected);
    }
    let verified: Value = gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!(verified["ok"], true, "{verified}");
}
