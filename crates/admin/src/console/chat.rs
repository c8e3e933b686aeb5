//! Chat with the project manager. The script streams answers; without it, the form waits for a while and then
//! shows the thread.

mod notice;
mod stream;
mod turns;

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use contract::thread::Thread;
use control::ThreadTurn;
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};
use subjects::HandoffId;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

pub(super) use self::turns::list as turn_list;
use super::{
    Console, Failure, assets,
    components::{address, visible},
    form::{CSRF, Fields, PostedForm},
    live::{self, LiveView, Update as LiveUpdate},
    page::{Section, with_actions},
    session::Session,
};
use crate::{
    Error,
    orchestrator::{Answering, ChatFailure, Message, Update},
};

pub(super) const CHAT: &str = "/console/chat";
/// How long the form waits for an answer before it shows that there is none yet.
const PLAIN_WAIT: Duration = Duration::from_secs(20);
/// How often the store is asked for the answer of a turn that another page has begun.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const LISTED_THREADS: u64 = 30;
pub(super) const SHOWN_TURNS: u64 = 30;
const MAX_MESSAGE_CHARS: usize = 60_000;

/// The contents of the page besides the thread.
#[derive(Default)]
struct Extra {
    /// Typed text that must not be lost.
    text: String,
    /// Names the message in the form, if it may have been sent before.
    request: Option<Uuid>,
    notice: Option<Markup>,
    /// The position before which turns are shown.
    before: Option<i64>,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let before = fields.given("before").and_then(|before| before.parse().ok());
    render(&console, &session, fields.given("thread"), Extra { before, ..Extra::default() }).await
}

/// Sends a message and waits for the answer, for pages without a script.
pub(super) async fn send(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    match begin(&console, &session, &fields).await? {
        Ok(mut answering) => {
            let until = Instant::now() + PLAIN_WAIT;
            while let Ok(Update::Text(_) | Update::Progress(_)) = timeout_at(until, answering.next()).await {}
            let page = address(CHAT, &[("thread", &answering.thread_id)]);
            Ok(Redirect::to(&format!("{page}#{}", turns::id_of(answering.handoff_id))).into_response())
        }
        Err(failure) => {
            let extra = Extra {
                text: fields.text("message").to_owned(),
                request: fields.text("request").parse().ok().filter(|_| !notice::is_another_text(&failure)),
                notice: Some(notice::not_sent(&failure)),
                before: None,
            };
            let page = render(&console, &session, fields.given("thread"), extra).await?;
            Ok((status_of(&failure), page).into_response())
        }
    }
}

/// Sends a message and streams the answer, for the script.
pub(super) async fn stream(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    Ok(match begin(&console, &session, &fields).await? {
        Ok(answering) => stream::answer(console, session, headers, answering),
        Err(failure) => stream::refusal(&failure),
    })
}

/// Stops the work on a turn.
pub(super) async fn stop(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (thread, text) = (fields.given("thread"), fields.text("message").to_owned());
    let turn: HandoffId =
        fields.text("turn").parse().map_err(|_| Error::not_found("turn", fields.text("turn")))?;
    match console.admin.stop_turn(&session.actor, turn).await? {
        Ok(()) if text.is_empty() => {
            Ok(Redirect::to(&address(CHAT, &[("thread", thread.unwrap_or_default())])).into_response())
        }
        Ok(()) => render(&console, &session, thread, Extra { text, ..Extra::default() }).await,
        Err(failure) => {
            let extra = Extra { text, notice: Some(notice::not_stopped(&failure)), ..Extra::default() };
            let page = render(&console, &session, thread, extra).await?;
            Ok((status_of(&failure), page).into_response())
        }
    }
}

/// Waits for the answer of the open turn of a thread.
pub(super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let thread = fields.text("thread").to_owned();
    let turn: HandoffId =
        fields.text("turn").parse().map_err(|_| Error::not_found("turn", fields.text("turn")))?;
    console.admin.get_thread(&session.actor, &thread).await?;
    Ok(live::events(console, headers, POLL_INTERVAL, OpenTurn { thread, turn }))
}

struct OpenTurn {
    thread: String,
    turn: HandoffId,
}

impl LiveView for OpenTurn {
    async fn poll(&mut self, console: &Console, session: &Session) -> LiveUpdate {
        match console.admin.get_thread(&session.actor, &self.thread).await {
            Ok(thread) if thread.open_turn == Some(self.turn) => LiveUpdate::Unchanged,
            // A store that is away for a moment, or a thread that was deleted, which a reload will tell.
            Err(Error::Unavailable) => LiveUpdate::Unchanged,
            _ => match parts(console, session, &self.thread, self.turn).await {
                Ok(parts) => LiveUpdate::Last(parts),
                Err(_) => LiveUpdate::Last(html! {}),
            },
        }
    }
}

/// Sends the message of a form. The thread must be one of the visitor's: the orchestrator would create it.
async fn begin(
    console: &Console,
    session: &Session,
    fields: &Fields,
) -> Result<Result<Answering, ChatFailure>, Error> {
    let text = fields.text("message");
    if text.is_empty() {
        return Ok(Err(refused("invalid_value", "The message is empty; write something")));
    }
    if text.chars().count() > MAX_MESSAGE_CHARS {
        let why = format!("The message is too long; at most {MAX_MESSAGE_CHARS} characters can be sent");
        return Ok(Err(refused("invalid_value", &why)));
    }
    if let Some(failure) = console.admin.chat_obstacle(&session.actor) {
        return Ok(Err(failure));
    }
    let thread = match fields.given("thread") {
        Some(id) => Some(console.admin.get_thread(&session.actor, id).await?.thread_id),
        None => None,
    };
    let request_key = match fields.text("request").parse::<Uuid>() {
        Ok(id) => format!("console-{id}"),
        Err(_) => format!("console-{}", Uuid::new_v4()),
    };
    let message = Message { thread: thread.as_deref(), text, request_key: &request_key };
    console.admin.send_message(&session.actor, message).await
}

fn refused(code: &str, message: &str) -> ChatFailure {
    ChatFailure::Refused { code: code.to_owned(), message: message.to_owned(), retry_after: None }
}

fn status_of(failure: &ChatFailure) -> StatusCode {
    match failure {
        ChatFailure::NotConfigured | ChatFailure::Unreachable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        ChatFailure::NoUser => StatusCode::FORBIDDEN,
        ChatFailure::NotAnOrchestrator { .. } => StatusCode::BAD_GATEWAY,
        ChatFailure::Refused { code, .. } => match code.as_str() {
            "thread_busy" | notice::KEY_REUSED => StatusCode::CONFLICT,
            "rate_limit_exceeded" => StatusCode::TOO_MANY_REQUESTS,
            "invalid_value" => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        },
    }
}

async fn render(
    console: &Console,
    session: &Session,
    thread: Option<&str>,
    extra: Extra,
) -> Result<Response, Failure> {
    let actor = &session.actor;
    let thread = match thread {
        Some(id) => Some(console.admin.get_thread(actor, id).await?),
        None => None,
    };
    let turns = match &thread {
        Some(it) => console.admin.turns_before(actor, &it.thread_id, extra.before, SHOWN_TURNS).await?,
        None => Vec::new(),
    };
    let obstacle = console.admin.chat_obstacle(actor);
    let title = thread.as_ref().map_or_else(|| "New thread".to_owned(), |thread| visible(&thread.title));
    let body = html! {
        link rel="stylesheet" href=(assets::CHAT_STYLE.path);
        div .chat {
            (threads_beside(console, session, thread.as_ref()).await?)
            div .conversation {
                @if let Some(failure) = &obstacle { (notice::obstacle(failure)) }
                (conversation(session, thread.as_ref(), &turns, obstacle.is_some()))
                @if obstacle.is_none() { (composer(session, thread.as_ref(), extra)) }
            }
        }
        script src=(assets::CHAT_SCRIPT.path) defer {}
    };
    let actions = html! {
        @let id = thread.as_ref().map_or("", |thread| &thread.thread_id);
        a #manage .button .quiet .small href=(address("/console/threads/thread", &[("id", id)]))
            hidden[id.is_empty()] { "Rename, export, delete" }
        a .button .small href=(CHAT) { "New thread" }
    };
    Ok(with_actions(session, Some(Section::Chat), &title, &actions, &body))
}

fn conversation(session: &Session, thread: Option<&Thread>, turns: &[ThreadTurn], is_closed: bool) -> Markup {
    let earlier = turns.first().filter(|first| first.position > 0).zip(thread);
    html! {
        @if let Some((first, thread)) = earlier {
            p .earlier {
                @let before = first.position.to_string();
                a href=(address(CHAT, &[("thread", &thread.thread_id), ("before", &before)])) {
                    "Earlier messages"
                }
            }
        }
        div #turns { (turns::list(session, turns)) }
        @if turns.is_empty() && !is_closed {
            div #welcome .welcome {
                p .what { "What can the project manager do for you?" }
                p {
                    "It plans, creates and checks tasks, and uses the tools of this gateway. Ask for what is \
                     left to do, or describe what you want done."
                }
            }
        }
    }
}

/// Renders the form for the next message. While a turn is open, it can be stopped instead.
fn composer(session: &Session, thread: Option<&Thread>, extra: Extra) -> Markup {
    let open = thread.and_then(|thread| thread.open_turn).map(|turn| turn.to_string());
    let (id, is_question) =
        thread.map_or(("", false), |thread| (&*thread.thread_id, thread.open_question.is_some()));
    let placeholder = if is_question { "Answer the question…" } else { "Ask for something…" };
    html! {
        div .composer {
            (extra.notice.unwrap_or_else(notice::none))
            form #composer method="post" action=(CHAT) {
                input type="hidden" name=(CSRF) value=(session.csrf);
                input type="hidden" name="thread" value=(id);
                input type="hidden" name="request" value=(extra.request.unwrap_or_else(Uuid::new_v4));
                label .unseen for="message" { "Message to the project manager" }
                textarea #message name="message" rows="1" required maxlength=(MAX_MESSAGE_CHARS)
                    placeholder=(placeholder) autofocus aria-describedby="composer-hint" {
                    // Browsers drop the first line break.
                    "\n" (extra.text)
                }
                button #send .button type="submit" hidden[open.is_some()] { "Send" }
                button #stop .button .danger type="submit" name="turn" value=[open.as_deref()]
                    formaction="/console/chat/stop" formnovalidate hidden[open.is_none()] { "Stop" }
            }
            p #composer-hint .hint {
                "You chat as " strong { (visible(session.actor.chat_user.as_deref().unwrap_or_default())) }
                ". " span #chat-said role="status" aria-live="polite" {
                    @if open.is_some() { "The project manager is working." }
                }
            }
        }
    }
}

async fn threads_beside(
    console: &Console,
    session: &Session,
    current: Option<&Thread>,
) -> Result<Markup, Error> {
    // One more than the list has, to tell whether these are all.
    let mut threads = console.admin.list_threads(&session.actor, 0, LISTED_THREADS + 1).await?;
    let has_more = threads.len() as u64 > LISTED_THREADS;
    threads.truncate(LISTED_THREADS as usize);
    Ok(turns::thread_list(&threads, current.map(|thread| &*thread.thread_id), has_more))
}

/// Renders the parts of a page that change when a turn has begun or ended.
async fn parts(console: &Console, session: &Session, thread: &str, turn: HandoffId) -> Result<Markup, Error> {
    let thread = console.admin.get_thread(&session.actor, thread).await?;
    let turns = console.admin.turns_before(&session.actor, &thread.thread_id, None, SHOWN_TURNS).await?;
    let found = turns.iter().find(|found| found.handoff_id == turn);
    let list = threads_beside(console, session, Some(&thread)).await?;
    Ok(html! { @if let Some(found) = found { (turns::article(session, found)) } (list) })
}
