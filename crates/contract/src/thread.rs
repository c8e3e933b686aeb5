//! `thread.*`: conversations of users with the project manager, for orchestrators.
//!
//! A thread is a sequence of turns, one at a time. A turn has the messages of one request and, once it has
//! ended, its answer. Its id is the id of its handoff.

mod cancel;
mod end;
mod size;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{ChatMessage, HandoffId, ScopeId, Timestamp};

use crate::{Page, tool};
pub use cancel::{CancelTurn, CancelledTurn, DueCancel};
pub use end::{EndTurn, EndedTurn};
pub use size::{FRAME_BYTES, character_size, message_size, text_size};

pub const MAX_NAME_BYTES: usize = 256;
pub const MAX_TITLE_BYTES: usize = 256;
pub const MAX_REQUEST_KEY_BYTES: usize = 256;
pub const MAX_WAIT_ID_BYTES: usize = 64;
/// The most messages of a turn.
pub const MAX_MESSAGES: usize = 2_000;
/// The largest sum of all messages of a turn, as [`message_size`] counts them.
pub const MAX_MESSAGES_BYTES: usize = 512 * 1024;
/// The longest text of an answer, as JSON. A longer one is cut.
pub const MAX_ANSWER_BYTES: usize = 384 * 1024;
/// The most turns that `thread.turn.sent` marks at once.
pub const MAX_MARKED: usize = 200;
/// The most turns that `thread.turn.unsent` returns at once.
pub const MAX_UNSENT: u64 = 50;
/// How long after its handoff was published an open turn is listed by `thread.turn.unsent` again. After that,
/// it is listed each time its age has doubled, at least every hour.
pub const RESEND_AFTER_SECONDS: u64 = 5 * 60;
/// How long a request without a key of its own can be joined by its retry after it was made, and after its
/// turn ended. While its turn is open it can always be joined.
pub const JOIN_WINDOW_SECONDS: u64 = 15 * 60;
/// The same for a request whose answer was delivered. It may be lost on the way to the client, which then
/// repeats its request soon; later the client asks the same again.
pub const JOIN_DELIVERED_WINDOW_SECONDS: u64 = 30;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    pub thread_id: String,
    pub user_id: String,
    /// What the client calls the thread, if it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub title: String,
    /// How many turns it has.
    pub turns: i64,
    /// The turn that is not answered yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_turn: Option<HandoffId>,
    /// The turn whose answer is a question to the user, if it is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_question: Option<HandoffId>,
    pub created_at: String,
    pub updated_at: String,
}

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    pub handoff_id: HandoffId,
    pub thread_id: String,
    pub user_id: String,
    pub key_id: String,
    /// Counted from 0 within the thread.
    pub position: i64,
    /// The earlier turn whose question this one answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<HandoffId>,
    /// Of an open turn, the whole conversation for the handoff; afterwards what was new in it, with what the
    /// system says if that was new. The last message is the user's.
    pub messages: Vec<ChatMessage>,
    pub options: TurnOptions,
    pub created_at: String,
    /// When the handoff was last published. Absent while it is not known that it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
    /// Absent while the turn is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Absent while the turn is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<TurnAnswer>,
}

/// How the manager is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TurnOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ScopeId>,
    /// Whether the client does not wait for the answer, but fetches it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnAnswer {
    pub state: AnswerState,
    /// The text of the answer; of a failure, what failed.
    pub text: String,
    /// Of a failure: its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Whether the answer ends because it became too long.
    #[serde(default)]
    pub is_cut: bool,
    #[serde(default)]
    pub prompt_tokens: u64,
    #[serde(default)]
    pub completion_tokens: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerState {
    Completed,
    /// A question to the user. The next message of the thread answers it.
    Question,
    Failed,
    Cancelled,
}

/// `thread.turn.begin`: stores a request as the next turn of a thread, or finds the turn that it repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginTurn {
    pub user_id: ScopeId,
    /// The API key of the request: one of the user, or of a front end. If it is revoked or expired, the key
    /// is not found.
    pub key_id: String,
    /// A thread id of the user, or a name that the client chose. Without it, the thread whose messages of the
    /// user are those before the last one, or a new thread. A thread that waits for the answer to a question
    /// is found only by a request that repeats the question.
    #[serde(default)]
    #[schemars(length(max = MAX_NAME_BYTES))]
    pub thread: Option<String>,
    /// Whether the request begins a new thread without a name, also if it repeats what another one says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_new_thread: bool,
    /// Names the request: a second one of the user with the same API key and the same name is the same
    /// request.
    #[serde(default)]
    #[schemars(length(min = 1, max = MAX_REQUEST_KEY_BYTES))]
    pub request_key: Option<String>,
    /// SHA-256 of the request's body, in lower-case hexadecimal digits.
    #[schemars(length(equal = 64))]
    pub body_hash: String,
    /// Whether this is a retry: it joins the user's last request with the same API key, thread and body, if
    /// that was made recently, has no answer yet, or got its answer recently.
    #[serde(default)]
    pub is_retry: bool,
    /// When a request that is no retry was received. It joins the turn of its own retry, which may have
    /// overtaken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Timestamp>,
    /// Without secrets. The last message is the user's. If it is the only one of the user and the thread has
    /// earlier turns, they come before it, without the oldest if they are too large. What the system said
    /// last holds if it says nothing here.
    #[schemars(length(min = 1, max = MAX_MESSAGES))]
    pub messages: Vec<ChatMessage>,
    #[serde(default)]
    pub options: TurnOptions,
    /// How many turns of the API key may be open at the same time, with the new one.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_open: Option<u64>,
    /// The turn that the request follows, in the thread that it names. If that is not the last turn of the
    /// thread any more, nothing is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<HandoffId>,
    /// Names the wait of the request for its turn. A call that is repeated counts as one wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_WAIT_ID_BYTES))]
    pub wait_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BegunTurn {
    pub outcome: BeginOutcome,
    /// The new turn, the one that the request repeats, or another turn that is in its way.
    pub turn: Turn,
    /// The signed lease for the handoff of a turn that is new or joined, and not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BeginOutcome {
    Begun,
    /// The request was made before; this is its turn.
    Joined,
    /// Another turn of the thread is not answered. Nothing was stored.
    Busy,
    /// The name of the request was used with another body. Nothing was stored.
    KeyReused,
    /// As many turns of the API key are open as may be. Nothing was stored.
    TooManyOpen,
    /// The thread has gone on after the turn that the request follows. Nothing was stored.
    Moved,
}

tool!("thread.turn.begin": BeginTurn => BegunTurn);

/// `thread.turn.sent`: records that the handoffs of turns were published, for the first time or again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkSent {
    #[schemars(length(min = 1, max = MAX_MARKED))]
    pub handoff_ids: Vec<HandoffId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarkedSent {
    /// How many were not marked before.
    pub marked: u64,
}

tool!("thread.turn.sent": MarkSent => MarkedSent);

/// `thread.turn.delivered`: records that clients received the answers of turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkDelivered {
    #[schemars(length(min = 1, max = MAX_MARKED))]
    pub handoff_ids: Vec<HandoffId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarkedDelivered {
    pub marked: u64,
}

tool!("thread.turn.delivered": MarkDelivered => MarkedDelivered);

/// `thread.turn.leave`: records that a request does not wait for its turn any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaveTurn {
    pub handoff_id: HandoffId,
    /// The wait that ends, as `thread.turn.begin` was given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_WAIT_ID_BYTES))]
    pub wait_id: Option<String>,
    /// Whether the turn is cancelled if no other request waits for it, as with `thread.turn.cancel`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftTurn {
    /// Whether the turn is open and no other request waits for it.
    pub is_abandoned: bool,
}

tool!("thread.turn.leave": LeaveTurn => LeftTurn);

/// `thread.turn.unsent`: open turns that were stored some time ago and are not known to be published, the
/// oldest first, each with a lease. Large turns come in smaller lists.
///
/// Open turns that were published five minutes ago are among them, with their `sent_at`: the handoff or
/// its answer may be lost with a stream that was restored from an older backup. A turn that is cancelled is
/// not among them: its handoff is in `cancels`, again and again until the turn has its answer. An hour after
/// workers refuse its handoff as too old, an open turn ends as failed, or as cancelled if it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListUnsent {
    pub older_than_seconds: u64,
    #[schemars(range(min = 1, max = MAX_UNSENT))]
    pub limit: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unsent {
    pub turns: Vec<UnsentTurn>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancels: Vec<DueCancel>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnsentTurn {
    pub turn: Turn,
    pub lease: String,
}

tool!("thread.turn.unsent": ListUnsent => Unsent);

/// `thread.turn.get`: one turn of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetTurn {
    pub user_id: ScopeId,
    pub handoff_id: HandoffId,
}

tool!("thread.turn.get": GetTurn => Turn);

/// `thread.list`: the threads of a user, the last changed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub user_id: ScopeId,
    #[serde(default)]
    pub limit: Option<u64>,
    #[serde(default)]
    pub cursor: Option<String>,
}

tool!("thread.list": List => Page<Thread>);

/// `thread.get`: one thread of a user, by its id or by the client's name for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub user_id: ScopeId,
    pub thread: String,
}

tool!("thread.get": Get => Thread);

/// `thread.messages`: the messages of a thread, the oldest first. A page ends with a turn, so it may have
/// more messages than `limit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMessages {
    pub user_id: ScopeId,
    pub thread: String,
    #[serde(default)]
    pub limit: Option<u64>,
    #[serde(default)]
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadMessage {
    pub handoff_id: HandoffId,
    pub role: subjects::ChatRole,
    pub content: String,
    /// Of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<AnswerState>,
    pub created_at: String,
}

tool!("thread.messages": ListMessages => Page<ThreadMessage>);

/// `thread.rename`: gives a thread another title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    pub user_id: ScopeId,
    pub thread: String,
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    pub title: String,
}

tool!("thread.rename": Rename => Thread);

/// `thread.delete`: deletes a thread with its turns and messages. An open turn is deleted as well, and is
/// cancelled as with `thread.turn.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    pub user_id: ScopeId,
    pub thread: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    pub thread_id: String,
    /// The turn that was not answered. Its work is to be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_turn: Option<HandoffId>,
}

tool!("thread.delete": Delete => Deleted);
