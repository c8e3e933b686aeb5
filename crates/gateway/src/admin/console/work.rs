mod picture; // queues and slots, drawn
mod tables; // instances and handoffs, row by row

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::HeaderMap;
use maud::{Markup, html};
use subjects::HandoffId;

use super::{
    Console, Failure,
    form::Fields,
    live::{self, Follow, Next},
    page::{Section, with_actions},
    parts::{Filled, empty, input, visible},
    session::Session,
};
use crate::admin::{Error, operations::Work};

pub(super) use self::{picture::swatch, tables::status};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const LIVE: &str = "/console/handoffs/live";

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let wrong = match fields.given("id") {
        None => None,
        Some(id) => match id.to_ascii_lowercase().parse::<HandoffId>() {
            Ok(id) => return Ok(Redirect::to(&address(&id.to_string())).into_response()),
            Err(error) => Some(Error::Invalid { field: "id", message: error.to_string() }),
        },
    };
    let filled = Filled { fields: &fields, error: wrong.as_ref() };
    let look_up = html! {
        form .filter .look-up method="get" action=(Section::Work.address()) role="search" {
            (input(filled, ("id", "id"), "search", "Look up a handoff by its id", ""))
            button .button .quiet type="submit" { "Show" }
        }
    };
    let looked = console.admin.look_at_work(&session.actor).await;
    let body = match looked {
        Err(error) => match without(&console, &error) {
            Some(said) => said,
            None => return Err(error.into()),
        },
        Ok(work) => html! { (look_up) (parts(Ok(&work))) },
    };
    let actions = if console.admin.nats.is_some() {
        live::panel(LIVE)
    } else {
        html! {}
    };
    Ok(with_actions(&session, Some(Section::Work), "Work", &actions, &body))
}

pub(super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    // Whoever may not see it is told now.
    if let Err(error @ Error::Forbidden(_)) = console.admin.look_at_work(&session.actor).await {
        return Err(error.into());
    }
    Ok(live::events(console, headers, LOOK_EVERY, Following { last: None }))
}

struct Following {
    last: Option<Result<Arc<Work>, Error>>,
}

impl Follow for Following {
    async fn look(&mut self, console: &Console, session: &Session) -> Next {
        let looked = console.admin.look_at_work(&session.actor).await;
        if self.last.as_ref() == Some(&looked) {
            return Next::Nothing;
        }
        let parts = parts(looked.as_deref());
        self.last = Some(looked);
        Next::Parts(parts)
    }
}

/// What follows what happens. When nothing can be seen, only that is told: what was seen last stays.
fn parts(looked: Result<&Work, &Error>) -> Markup {
    match looked {
        Err(error) => html! { div #away { (not_there(error)) } },
        Ok(work) => html! {
            div #away {}
            section #queues { h2 { "Queues" } (picture::queues(&work.status.queues)) }
            section #instances { h2 { "Instances" } (tables::instances(&work.status.instances)) }
            section #in-work { h2 { "In work" } (tables::in_work(&work.in_work)) }
            section #answered { h2 { "Recent answers" } (tables::answered(&work.answered)) }
        },
    }
}

fn not_there(error: &Error) -> Markup {
    html! { p .flash .bad role="alert" { "NATS is not available: " (visible(&error.to_string())) ". Retrying." } }
}

/// What is shown in place of anything from NATS. `None`: this is another matter.
pub(super) fn without(console: &Console, error: &Error) -> Option<Markup> {
    if console.admin.nats.is_none() && matches!(error, Error::Conflict(_)) {
        return Some(empty(
            "The gateway is not connected to NATS.",
            &html! {
                "Set " code { "nats.url" } " to see queued, running, answered and dead-lettered handoffs: in "
                code { "gateway.toml" } ", as " code { "GATEWAY_NATS__URL" } ", or with "
                code { "--set nats.url=nats://127.0.0.1:4222" } ". Calls of agents do not depend on it."
            },
        ));
    }
    match error {
        Error::Unreachable(_) => Some(html! {
            (not_there(error))
            (empty("Nothing to show.", &html! {
                "Handoffs are stored in NATS. Agent calls do not depend on it and continue. Reload the page to try again."
            }))
        }),
        _ => None,
    }
}

/// Where one handoff is shown.
pub(super) fn address(id: &str) -> String {
    format!("{}/{id}", Section::Work.address())
}
