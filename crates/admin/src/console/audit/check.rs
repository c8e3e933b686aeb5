//! Verification of the audit's hash chain, with its last result cached.

use std::sync::{Arc, PoisonError};

use api::AuditVerification;
use axum::{extract::State, response::Response};
use maud::{Markup, html};
use subjects::audit::Head;

use audit::Filter;
use store::clock;

use crate::{
    Actor, Error,
    console::{
        Console, Failure,
        components::{Tone, badge, short},
        flash::{self, Flash},
        form::PostedForm,
        format,
        page::Section,
    },
};

/// How long a result is shown before the chain is verified again.
const CACHE_TTL_US: i64 = 10_000_000;
/// A longer chain is verified only on request, not with every page.
const MAX_AUTO_CHECK_ROWS: i64 = 20_000;

/// The result of a verification, its time, and the last sealed head.
#[derive(Clone, Debug)]
pub(in super::super) struct ChainCheck {
    pub(in super::super) verified: AuditVerification,
    at: i64,
    head: Option<Head>,
}

pub(in super::super) async fn verify(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let check = run_check(&console, &posted.session.actor).await?;
    let AuditVerification { ok, rows, heads, problem, .. } = check.verified;
    let text = match problem {
        None => format!("The chain is intact: {} rows, {heads} signed heads match.", format::number(rows)),
        Some(problem) => format!("The chain is broken: {problem}."),
    };
    Ok(flash::redirect(&console, Section::Audit.address(), &Flash { good: ok, text }))
}

/// Returns the number of rows in the chain.
pub(in super::super) async fn count_rows(console: &Console, actor: &Actor) -> Result<i64, Error> {
    let newest = console.admin.query_audit(actor, &Filter { limit: Some(1), ..Filter::default() }).await?;
    let (pruned, _) = console.admin.export_audit(actor).await?;
    Ok(newest.first().map_or(0, |row| row.seq - pruned.pruned_seq))
}

/// Returns the last result, or a new one if the chain is short enough to verify now.
pub(in super::super) async fn recent_check(
    console: &Console,
    actor: &Actor,
) -> Result<Option<ChainCheck>, Error> {
    match last_check(console) {
        Some(check) if clock::now() - check.at < CACHE_TTL_US => Ok(Some(check)),
        old if count_rows(console, actor).await? > MAX_AUTO_CHECK_ROWS => Ok(old),
        _ => Ok(Some(run_check(console, actor).await?)),
    }
}

fn last_check(console: &Console) -> Option<ChainCheck> {
    console.last_check.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn run_check(console: &Console, actor: &Actor) -> Result<ChainCheck, Error> {
    let verified = console.admin.verify_audit(actor).await?;
    let head = console.admin.audit_heads(actor).await?.heads.pop();
    let check = ChainCheck { verified, at: clock::now(), head };
    *console.last_check.lock().unwrap_or_else(PoisonError::into_inner) = Some(check.clone());
    Ok(check)
}

/// Renders the result of a verification.
pub(in super::super) fn render_check(check: Option<&ChainCheck>) -> Markup {
    let Some(ChainCheck { verified, at, head }) = check else {
        return html! { p .parts { (badge(Tone::Plain, "Not verified yet")) } };
    };
    html! {
        p .parts {
            @if verified.ok {
                (badge(Tone::Good, "Chain intact"))
            } @else {
                (badge(Tone::Bad, "Chain broken"))
            }
            span { "verified " (format::time(*at)) }
        }
        @if let Some(problem) = &verified.problem { p .wrong { (flash::sentence(problem)) } }
        @if let Some(head) = head {
            p .parts {
                span {
                    "Last sealed: row " (format::number(head.seq)) ", " (format::time(head.at)) ", "
                    (short(&head.hash))
                }
            }
        } @else {
            p .parts { span { "No head has been sealed yet." } }
        }
    }
}
