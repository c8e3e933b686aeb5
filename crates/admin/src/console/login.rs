//! Sign-in and sign-out.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    extract::{ConnectInfo, State},
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, StatusCode, header::SET_COOKIE};
use maud::html;
use serde_json::json;
use tracing::warn;

use super::{
    Console, Failure, HOME,
    components::logo,
    form::{Fields, PostedForm, UnverifiedForm},
    page::public_page,
    session::Session,
};
use access::tokens;
use store::clock;

use crate::{Actor, Error};

/// Delay after a failed sign-in, to slow down guessing.
const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(400);
const MAX_NEXT_BYTES: usize = 2000;

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    fields: Fields,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let next = next(&fields);
    if Session::find(&console, &headers).await?.is_some() {
        return Ok(Redirect::to(next).into_response());
    }
    let message =
        fields.is_on("ended").then_some(("status", "Your session has expired. Sign in again to continue."));
    Ok(login_page(&console, next, message))
}

pub(super) async fn sign_in(
    State(console): State<Arc<Console>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    UnverifiedForm(fields): UnverifiedForm,
) -> Result<Response, Failure> {
    let next = next(&fields);
    if console.admin.unauthenticated.admit_login(peer.ip(), fields.text("token")).await.is_err() {
        let message = ("alert", "Too many attempts. Wait a few seconds and try again.");
        return Ok((StatusCode::TOO_MANY_REQUESTS, login_page(&console, next, Some(message))).into_response());
    }
    let presented = tokens::look_up(&console.admin.store, fields.text("token")).await.map_err(Error::from)?;
    let Some(actor) = Actor::of(&presented, clock::now()) else {
        warn!(%peer, "Console sign-in failed: invalid token.");
        tokio::time::sleep(FAILED_LOGIN_DELAY).await;
        let message = ("alert", "Invalid token. It may be mistyped, expired or revoked.");
        return Ok((StatusCode::FORBIDDEN, login_page(&console, next, Some(message))).into_response());
    };
    console.admin.record_outcome(&actor, "admin.console.sign_in", &json!({}), None).await?;
    let cookie = Session::open(&console, &actor).await?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to(next)).into_response())
}

pub(super) async fn leave(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    console.admin.record_outcome(&posted.session.actor, "admin.console.sign_out", &json!({}), None).await?;
    let cookie = posted.session.close(&console).await?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to("/console/login")).into_response())
}

/// Returns the page to show after sign-in: only pages of the console, never another site.
fn next(fields: &Fields) -> &str {
    let is_page = |next: &&str| {
        let rest = next.strip_prefix(HOME);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
            && !["/login", "/logout", "/audit/live", "/chat/live"]
                .iter()
                .any(|it| next[HOME.len()..].starts_with(it))
            && next.len() <= MAX_NEXT_BYTES
            && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    fields.given("next").filter(is_page).unwrap_or(HOME)
}

fn login_page(console: &Console, next: &str, message: Option<(&str, &str)>) -> Response {
    let file = console.admin.settings.token_file.display();
    public_page(
        "Sign in",
        &html! {
            (logo())
            h1 { "Sign in" }
            p .lead { "The console of the Cynode MCP gateway." }
            @if let Some((role, text)) = message { p .flash .bad[role == "alert"] role=(role) { (text) } }
            form method="post" action="/console/login" {
                input type="hidden" name="next" value=(next);
                div .field {
                    label for="token" { "Token" }
                    input #token name="token" type="password" autocomplete="off" required autofocus
                        aria-describedby="token-hint";
                    p .hint #token-hint {
                        "An admin or user token. The admin token is in the file "
                        code { (file) } " on the gateway's machine."
                    }
                }
                button .button .wide type="submit" { "Sign in" }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_continues_only_to_console_pages() {
        for (wanted, expected) in [
            ("", HOME),
            ("/console", "/console"),
            ("/console/tools?text=a%20b", "/console/tools?text=a%20b"),
            ("/console?x=1", "/console?x=1"),
            ("/consolation", HOME),
            ("//evil.example/console", HOME),
            ("https://evil.example", HOME),
            ("/console/\\evil", HOME),
            ("/console/a\r\nSet-Cookie: b", HOME),
            ("/console/logout", HOME),
            ("/console/login?next=/console", HOME),
            ("/console/audit/live?after=1", HOME),
        ] {
            let fields = Fields::default().with("next", wanted);
            assert_eq!(next(&fields), expected, "{wanted}");
        }
    }
}
