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
    form::{Fields, Posted, Unproven},
    page::bare,
    parts::mark,
    session::Session,
};
use crate::{
    admin::{Actor, Error},
    clock, tokens,
};

/// Whoever guesses waits.
const SLOWED: Duration = Duration::from_millis(400);
const LONGEST_NEXT: usize = 2000;

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    fields: Fields,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let next = next(&fields);
    if Session::find(&console, &headers).await?.is_some() {
        return Ok(Redirect::to(next).into_response());
    }
    let said =
        fields.is_on("ended").then_some(("status", "Your session has expired. Sign in again to continue."));
    Ok(form(&console, next, said))
}

pub(super) async fn enter(
    State(console): State<Arc<Console>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Unproven(fields): Unproven,
) -> Result<Response, Failure> {
    let next = next(&fields);
    if console.admin.strangers.admit_login(peer.ip(), fields.text("token")).await.is_err() {
        let said = ("alert", "Too many attempts. Wait a few seconds and try again.");
        return Ok((StatusCode::TOO_MANY_REQUESTS, form(&console, next, Some(said))).into_response());
    }
    let presented = tokens::present(&console.admin.store, fields.text("token")).await.map_err(Error::from)?;
    let Some(actor) = Actor::of(&presented, clock::now()) else {
        warn!(%peer, "Console sign-in failed: invalid token.");
        tokio::time::sleep(SLOWED).await;
        let said = ("alert", "Invalid token. It may be mistyped, expired or revoked.");
        return Ok((StatusCode::FORBIDDEN, form(&console, next, Some(said))).into_response());
    };
    console.admin.note(&actor, "admin.console.sign_in", &json!({}), None).await?;
    let cookie = Session::open(&console, &actor).await?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to(next)).into_response())
}

pub(super) async fn leave(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    console.admin.note(&posted.session.actor, "admin.console.sign_out", &json!({}), None).await?;
    let cookie = posted.session.close(&console).await?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to("/console/login")).into_response())
}

/// Where to go on; never to another site, and to nothing that is not a page.
fn next(fields: &Fields) -> &str {
    let is_page = |next: &&str| {
        let rest = next.strip_prefix(HOME);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
            && !["/login", "/logout", "/audit/live"].iter().any(|it| next[HOME.len()..].starts_with(it))
            && next.len() <= LONGEST_NEXT
            && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    fields.given("next").filter(is_page).unwrap_or(HOME)
}

fn form(console: &Console, next: &str, said: Option<(&str, &str)>) -> Response {
    let file = console.admin.settings.token_file.display();
    bare(
        "Sign in",
        &html! {
            (mark())
            h1 { "Sign in" }
            p .lead { "The console of the Cynode MCP gateway." }
            @if let Some((role, text)) = said { p .flash .bad[role == "alert"] role=(role) { (text) } }
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
    fn one_goes_on_to_pages_of_ours_alone() {
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
