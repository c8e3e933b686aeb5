//! The page of the egress: what users used of external providers.

use std::sync::Arc;

use api::{ProviderUsage, UsageFilter};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{FormState, address, cells, empty, input, table},
    form::Fields,
    format,
    page::{Section, page},
    session::Session,
};

const HEADINGS: [&str; 6] = ["Day", "User", "Provider", "Calls", "Tokens", "Cost"];

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let filter = UsageFilter {
        user_id: fields.owned("user_id"),
        provider: fields.owned("provider"),
        ..UsageFilter::default()
    };
    let used = console.admin.list_usage(&session.actor, &filter).await?;
    let rows: Vec<Markup> = used.iter().map(row).collect();
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        p .lead {
            "What agents used of external providers on behalf of users, by day in UTC. The orchestrator \
             holds the providers' keys and the budgets."
        }
        form .filter method="get" action=(Section::Egress.address()) role="search" {
            (input(filled, ("user_id", "user_id"), "search", "User", ""))
            (input(filled, ("provider", "provider"), "search", "Provider", ""))
            button .button type="submit" { "Filter" }
        }
        @if rows.is_empty() {
            (empty("No calls to external providers.", &html! {
                "Agents call a provider when the orchestrator has its key and a preference of the user \
                 allows it. "
                a href=(Section::Egress.address()) { "Show all usage" } "."
            }))
        } @else {
            (table("Usage of external providers, newest first", &HEADINGS, &rows))
        }
    };
    Ok(page(&session, Some(Section::Egress), "Egress", &body))
}

fn row(used: &ProviderUsage) -> Markup {
    let tool = format!("egress.{}", used.provider);
    let calls = address(Section::Audit.address(), &[("user_id", &used.user_id), ("tool", &tool)]);
    let estimated = format::number(used.estimated_calls);
    let cells_of = [
        html! { (used.day) },
        html! { bdi { (used.user_id) } },
        html! { bdi { (used.provider) } },
        html! {
            a href=(calls) { (format::number(used.calls)) }
            @if used.open_calls > 0 { span .sub { (format::number(used.open_calls)) " open" } }
            @if used.estimated_calls > 0 { span .sub { (estimated) " with estimated usage" } }
        },
        html! {
            (format::number(used.prompt_tokens.saturating_add(used.completion_tokens)))
            span .sub {
                (format::number(used.prompt_tokens)) " in, " (format::number(used.completion_tokens)) " out"
            }
        },
        html! { (format::dollars(used.usd)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}
