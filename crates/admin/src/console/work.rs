//! The live page of queues, instances, handoffs in progress and latest answers.

mod charts;
mod tables;

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
    components::{FormState, empty, input, visible},
    form::Fields,
    live::{self, LiveView, Update},
    page::{Section, with_actions},
    session::Session,
};
use crate::{Error, operations::Work};

pub(super) use self::{charts::swatch, tables::status};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
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
    let filled = FormState { fields: &fields, error: wrong.as_ref() };
    let look_up = html! {
        form .filter .look-up method="get" action=(Section::Work.address()) role="search" {
            (input(filled, ("id", "id"), "search", "Look up a handoff by its id", ""))
            button .button .quiet type="submit" { "Show" }
        }
    };
    let result = console.admin.get_work(&session.actor).await;
    let body = match result {
        Err(error) => match render_nats_error(&console, &error) {
            Some(notice) => notice,
            None => return Err(error.into()),
        },
        Ok(work) => html! { (look_up) (live_parts(Ok(&work))) },
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
    // Refuse users now, before the stream begins.
    if let Err(error @ Error::Forbidden(_)) = console.admin.get_work(&session.actor).await {
        return Err(error.into());
    }
    Ok(live::events(console, headers, POLL_INTERVAL, WorkUpdates { last: None }))
}

struct WorkUpdates {
    last: Option<Result<Arc<Work>, Error>>,
}

impl LiveView for WorkUpdates {
    async fn poll(&mut self, console: &Console, session: &Session) -> Update {
        let result = console.admin.get_work(&session.actor).await;
        if self.last.as_ref() == Some(&result) {
            return Update::Unchanged;
        }
        let parts = live_parts(result.as_deref());
        self.last = Some(result);
        Update::Parts(parts)
    }
}

/// Renders the live parts of the page. If NATS is not available, only the alert is updated and the rest
/// stays.
fn live_parts(result: Result<&Work, &Error>) -> Markup {
    match result {
        Err(error) => html! { div #away { (nats_alert(error)) } },
        Ok(work) => html! {
            div #away {}
            section #queues { h2 { "Queues" } (charts::queues(&work.status.queues)) }
            section #instances { h2 { "Instances" } (tables::instances(&work.status.instances)) }
            section #in-work { h2 { "In progress" } (tables::in_work(&work.in_work)) }
            section #answered { h2 { "Recent answers" } (tables::answered(&work.answered)) }
        },
    }
}

fn nats_alert(error: &Error) -> Markup {
    html! {
        p .flash .bad role="alert" { "NATS is not available: " (visible(&error.to_string())) ". Retrying." }
    }
}

/// Renders an error of NATS in place of the content. Returns `None` for other errors.
pub(super) fn render_nats_error(console: &Console, error: &Error) -> Option<Markup> {
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
            (nats_alert(error))
            (empty("Nothing to show.", &html! {
                "Handoffs are stored in NATS. Agent calls do not depend on it and continue. Reload the \
                 page to try again."
            }))
        }),
        _ => None,
    }
}

/// Returns the address of the page of a handoff.
pub(super) fn address(id: &str) -> String {
    format!("{}/{id}", Section::Work.address())
}
