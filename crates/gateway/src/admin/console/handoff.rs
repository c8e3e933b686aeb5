mod picture; // attempts and steps along the time
mod told; // facts and the answer

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
    live::{self, Follow, Next},
    page::{Section, with_actions},
    parts::{empty, name},
    session::Session,
    work::{address, without},
};
use crate::{
    admin::{
        Error,
        operations::{Life, LifeState},
    },
    clock,
};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What goes on is drawn anew so often, since time passes.
const DRAW_EVERY: Duration = Duration::from_secs(2);

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let handoff = read(&id)?;
    let (inner, goes_on) = match console.admin.get_handoff(&session.actor, handoff).await {
        Ok(life) => (told(&life), life.state != LifeState::Answered),
        // As far as anybody knows it waits in its queue, so this is no fault.
        Err(Error::NotFound { .. }) => (unknown(), true),
        Err(error) => match without(&console, &error) {
            Some(said) => (said, false),
            None => return Err(error.into()),
        },
    };
    let body = html! {
        p .crumbs { a href=(Section::Work.address()) { "Work" } " / " (name(&handoff.to_string())) }
        div #life { (inner) }
    };
    let source = format!("{}/live", address(&handoff.to_string()));
    let actions = if goes_on {
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
    let id = read(&id)?;
    // Whoever may not see it is told now.
    if let Err(error @ Error::Forbidden(_)) = console.admin.end_of_handoff(&session.actor, id).await {
        return Err(error.into());
    }
    Ok(live::events(console, headers, LOOK_EVERY, Following { id, last: None }))
}

struct Following {
    id: HandoffId,
    /// Where the run ended when it was drawn last, and when that was.
    last: Option<(u64, Instant)>,
}

impl Follow for Following {
    /// While NATS is away, what was drawn last stays.
    async fn look(&mut self, console: &Console, session: &Session) -> Next {
        let Ok(Some(end)) = console.admin.end_of_handoff(&session.actor, self.id).await else {
            return Next::Nothing;
        };
        if self.last.is_some_and(|(drawn, at)| drawn == end && at.elapsed() < DRAW_EVERY) {
            return Next::Nothing;
        }
        let Ok(life) = console.admin.get_handoff(&session.actor, self.id).await else { return Next::Nothing };
        self.last = Some((life.sequence, Instant::now()));
        let parts = html! { div #life { (told(&life)) } };
        if life.state == LifeState::Answered { Next::Last(parts) } else { Next::Parts(parts) }
    }
}

fn told(life: &Life) -> Markup {
    html! {
        (told::facts(life))
        (told::unreadable(life))
        @if !life.attempts.is_empty() || !life.steps.is_empty() {
            section { h2 { "Timeline" } (picture::timeline(life, clock::now())) }
        }
        (told::answer(life))
    }
}

fn unknown() -> Markup {
    empty(
        "No instance has claimed this handoff.",
        &html! {
            "It may still be queued, it may have been answered more than seven days ago, or the id is wrong. "
            a href=(Section::Work.address()) { "Show the queues" }
        },
    )
}

fn read(id: &str) -> Result<HandoffId, Failure> {
    id.parse().map_err(|_| Error::NotFound { what: "handoff", id: id.to_owned() }.into())
}
