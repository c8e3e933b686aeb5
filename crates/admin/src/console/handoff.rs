//! The live page of one handoff: facts, timeline, answer.

mod facts;
mod offered;
mod timeline;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Path, State},
    response::Response,
};
use http::HeaderMap;
use maud::{Markup, html};
use subjects::HandoffId;

use super::{
    Console, Failure,
    components::{empty, name},
    live::{self, LiveView, Update},
    page::{Section, with_actions},
    session::Session,
    work::{address, render_nats_error},
};
use store::clock;

use crate::{
    Error,
    operations::{HandoffHistory, HandoffState},
};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// An open handoff is redrawn at this interval even if nothing was recorded, since its bars grow.
const REDRAW_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let handoff = parse_id(&id)?;
    let (inner, is_open) = match console.admin.get_handoff(&session.actor, handoff).await {
        Ok(history) => (render(&history), history.state != HandoffState::Answered),
        // It may still be queued, so this is not an error.
        Err(Error::NotFound { .. }) => (not_claimed(), true),
        Err(error) => match render_nats_error(&console, &error) {
            Some(notice) => (notice, false),
            None => return Err(error.into()),
        },
    };
    let body = html! {
        p .crumbs { a href=(Section::Work.address()) { "Work" } " / " (name(&handoff.to_string())) }
        div #life { (inner) }
    };
    let source = format!("{}/live", address(&handoff.to_string()));
    let actions = if is_open {
        live::panel(&source)
    } else {
        html! {}
    };
    Ok(with_actions(&session, Some(Section::Work), "Handoff", &actions, &body))
}

pub(super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let id = parse_id(&id)?;
    // Refuse users now, before the stream begins.
    if let Err(error @ Error::Forbidden(_)) = console.admin.handoff_end(&session.actor, id).await {
        return Err(error.into());
    }
    Ok(live::events(console, headers, POLL_INTERVAL, HandoffUpdates { id, last: None }))
}

struct HandoffUpdates {
    id: HandoffId,
    /// Last sequence of the run when it was last drawn, and the time.
    last: Option<(u64, Instant)>,
}

impl LiveView for HandoffUpdates {
    /// While NATS is not available, the page keeps its last state.
    async fn poll(&mut self, console: &Console, session: &Session) -> Update {
        let Ok(Some(end)) = console.admin.handoff_end(&session.actor, self.id).await else {
            return Update::Unchanged;
        };
        if self.last.is_some_and(|(drawn, at)| drawn == end && at.elapsed() < REDRAW_INTERVAL) {
            return Update::Unchanged;
        }
        let Ok(history) = console.admin.get_handoff(&session.actor, self.id).await else {
            return Update::Unchanged;
        };
        self.last = Some((history.sequence, Instant::now()));
        let parts = html! { div #life { (render(&history)) } };
        if history.state == HandoffState::Answered { Update::Last(parts) } else { Update::Parts(parts) }
    }
}

fn render(history: &HandoffHistory) -> Markup {
    html! {
        (facts::facts(history))
        (facts::unreadable(history))
        @if !history.attempts.is_empty() || !history.steps.is_empty() {
            section { h2 { "Timeline" } (timeline::render(history, clock::now())) }
        }
        (facts::answer(history))
        (offered::offered(&history.offered))
    }
}

fn not_claimed() -> Markup {
    empty(
        "No instance has claimed this handoff.",
        &html! {
            "It may still be queued, it may have been answered more than seven days ago, or the id is wrong. "
            a href=(Section::Work.address()) { "Show the queues" }
        },
    )
}

fn parse_id(id: &str) -> Result<HandoffId, Failure> {
    id.parse().map_err(|_| Error::NotFound { what: "handoff", id: id.to_owned() }.into())
}
