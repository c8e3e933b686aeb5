use std::sync::{Arc, PoisonError};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use subjects::audit::Head;

use crate::{
    admin::{
        Actor, Error,
        console::{
            Console, Failure,
            flash::{self, Flash},
            form::Posted,
            page::Section,
            parts::{Tone, badge, short},
            when,
        },
        operations::Verified,
    },
    audit::Filter,
    clock,
};

/// So long an outcome is shown again instead of following the chain anew.
const FRESH_US: i64 = 10_000_000;
/// A longer chain is followed when somebody asks for it, not whenever somebody looks at a page.
const SHORT_CHAIN: i64 = 20_000;

/// What following the chain brought, and when.
#[derive(Clone, Debug)]
pub(in super::super) struct Checked {
    pub(in super::super) verified: Verified,
    at: i64,
    head: Option<Head>,
}

pub(in super::super) async fn verify(
    State(console): State<Arc<Console>>,
    posted: Posted,
) -> Result<Response, Failure> {
    let checked = follow(&console, &posted.session.actor).await?;
    let Verified { ok, rows, heads, problem, .. } = checked.verified;
    let text = match problem {
        None => format!("The chain is intact: {} rows, {heads} signed heads match.", when::number(rows)),
        Some(problem) => format!("The chain is broken: {problem}."),
    };
    Ok(flash::redirect(&console, Section::Audit.address(), &Flash { good: ok, text }))
}

/// How many rows there are now.
pub(in super::super) async fn rows(console: &Console, actor: &Actor) -> Result<i64, Error> {
    let newest = console.admin.query_audit(actor, &Filter { limit: Some(1), ..Filter::default() }).await?;
    let (pruned, _) = console.admin.export_audit(actor).await?;
    Ok(newest.first().map_or(0, |row| row.seq - pruned.pruned_seq))
}

/// The last outcome, or a new one where that costs little.
pub(in super::super) async fn lately(console: &Console, actor: &Actor) -> Result<Option<Checked>, Error> {
    match last(console) {
        Some(checked) if clock::now() - checked.at < FRESH_US => Ok(Some(checked)),
        old if rows(console, actor).await? > SHORT_CHAIN => Ok(old),
        _ => Ok(Some(follow(console, actor).await?)),
    }
}

fn last(console: &Console) -> Option<Checked> {
    console.checked.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn follow(console: &Console, actor: &Actor) -> Result<Checked, Error> {
    let verified = console.admin.verify_audit(actor).await?;
    let head = console.admin.audit_heads(actor).await?.heads.pop();
    let checked = Checked { verified, at: clock::now(), head };
    *console.checked.lock().unwrap_or_else(PoisonError::into_inner) = Some(checked.clone());
    Ok(checked)
}

pub(in super::super) fn verdict(checked: Option<&Checked>) -> Markup {
    let Some(Checked { verified, at, head }) = checked else {
        return html! { p .parts { (badge(Tone::Plain, "Not verified yet")) } };
    };
    html! {
        p .parts {
            @if verified.ok { (badge(Tone::Good, "Chain holds")) } @else { (badge(Tone::Bad, "Chain is broken")) }
            span { "verified " (when::at(*at)) }
        }
        @if let Some(problem) = &verified.problem { p .wrong { (flash::sentence(problem)) } }
        @if let Some(head) = head {
            p .parts { span { "Last sealed: row " (when::number(head.seq)) ", " (when::at(head.at)) ", " (short(&head.hash)) } }
        } @else {
            p .parts { span { "No head has been sealed yet." } }
        }
    }
}
