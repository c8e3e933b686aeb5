//! The answer to a message as server-sent events, for the script of the page: parts of the page that replace
//! others by their ids.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response, Sse,
    sse::{Event, KeepAlive},
};
use futures_util::stream;
use http::HeaderMap;
use maud::{Markup, html};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::{
    notice, parts,
    turns::{self, Draft},
};
use crate::{
    Error,
    console::{Console, components::visible, session::Session},
    orchestrator::{Answering, ChatFailure, Update},
};

/// How often the session of a stream is checked.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Text is rendered at most this often; a long one, which takes longer, less often.
const RENDER_INTERVAL: Duration = Duration::from_millis(60);
const LONG_TEXT_BYTES: usize = 16 << 10;
/// More than this of a text is not shown before it is the answer.
const MAX_DRAFT_BYTES: usize = 256 << 10;

/// Streams the answer to a message that was accepted.
pub(super) fn answer(
    console: Arc<Console>,
    session: Session,
    headers: HeaderMap,
    answering: Answering,
) -> Response {
    let now = Instant::now();
    let stream = AnswerStream {
        console,
        session,
        headers,
        answering,
        phase: Phase::Begun,
        draft: Draft::default(),
        render_at: None,
        rendered_at: now,
        checked_at: now,
    };
    let events = stream::unfold(Box::new(stream), |mut stream| async {
        let event = stream.next().await?;
        Some((Ok::<Event, Infallible>(event), stream))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Tells that a message was not accepted.
pub(super) fn refusal(failure: &ChatFailure) -> Response {
    let event = event("refused", &notice::not_sent(failure));
    Sse::new(stream::iter([Ok::<Event, Infallible>(event)])).into_response()
}

enum Phase {
    /// The page does not know the turn yet.
    Begun,
    /// The page knows the turn and does not show it.
    Announced,
    Open,
    Ended,
}

struct AnswerStream {
    console: Arc<Console>,
    session: Session,
    headers: HeaderMap,
    answering: Answering,
    phase: Phase,
    draft: Draft,
    /// When text that was not shown yet is to be shown.
    render_at: Option<Instant>,
    rendered_at: Instant,
    checked_at: Instant,
}

impl AnswerStream {
    /// Returns the next event; `None` at the end, or when the session has ended.
    async fn next(&mut self) -> Option<Event> {
        match self.phase {
            Phase::Begun => {
                self.phase = Phase::Announced;
                Some(self.announce().await)
            }
            Phase::Announced => {
                self.phase = Phase::Open;
                Some(match self.stored_parts().await {
                    Ok(parts) => event("message", &parts),
                    Err(_) => self.lost(),
                })
            }
            Phase::Open => self.follow().await,
            Phase::Ended => None,
        }
    }

    /// Tells the page where the turn is, so that it makes a place for it.
    async fn announce(&mut self) -> Event {
        let (thread_id, turn) = (self.answering.thread_id.clone(), self.answering.handoff_id);
        let thread = self.console.admin.get_thread(&self.session.actor, &thread_id).await.ok();
        let title = thread.map(|thread| visible(&thread.title));
        let data = json!({ "thread": thread_id, "turn": turn, "id": turns::id_of(turn), "title": title });
        Event::default().event("turn").data(data.to_string())
    }

    async fn follow(&mut self) -> Option<Event> {
        let stop = self.console.admin.stop.clone();
        loop {
            let check_at = self.checked_at + SESSION_CHECK_INTERVAL;
            let until = self.render_at.map_or(check_at, |at| at.min(check_at));
            let update = tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return Some(self.lost()),
                // Cancel-safe: what was read of the stream stays in it.
                update = timeout_at(until, self.answering.next()) => update,
            };
            match update {
                Ok(Update::Text(text)) => self.add_text(&text),
                Ok(Update::Progress(text)) => {
                    self.draft.steps.push_str(&text);
                    return Some(event("message", &turns::steps(&self.draft.steps)));
                }
                Ok(Update::Ended) => return Some(self.end().await),
                Ok(Update::Lost) => return Some(self.lost()),
                Err(_) => {}
            }
            let now = Instant::now();
            if now >= check_at {
                self.checked_at = now;
                // A session that cannot be confirmed has ended.
                Session::find(&self.console, &self.headers).await.ok().flatten()?;
            }
            if self.render_at.is_some_and(|at| now >= at) {
                (self.render_at, self.rendered_at) = (None, now);
                return Some(event("message", &turns::text(&self.draft.text)));
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        let room = MAX_DRAFT_BYTES.saturating_sub(self.draft.text.len());
        self.draft.text.push_str(&text[..text.floor_char_boundary(room)]);
        let times = u32::try_from(self.draft.text.len() / LONG_TEXT_BYTES).unwrap_or(u32::MAX);
        let interval = RENDER_INTERVAL * times.saturating_add(1);
        self.render_at.get_or_insert(self.rendered_at + interval);
    }

    /// Shows the turn as it is stored.
    async fn end(&mut self) -> Event {
        self.phase = Phase::Ended;
        match self.stored_parts().await {
            Ok(parts) => event("done", &parts),
            Err(_) => self.lost(),
        }
    }

    async fn stored_parts(&mut self) -> Result<Markup, Error> {
        let thread = self.answering.thread_id.clone();
        parts(&self.console, &self.session, &thread, self.answering.handoff_id).await
    }

    /// Tells that the stream broke: the page then waits for the stored answer.
    fn lost(&mut self) -> Event {
        self.phase = Phase::Ended;
        event("lost", &html! {})
    }
}

fn event(name: &str, parts: &Markup) -> Event {
    // A field of an event has no carriage return.
    Event::default().event(name).data(parts.0.replace('\r', ""))
}
