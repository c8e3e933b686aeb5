use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::html;

use super::at;
use crate::admin::{
    Error,
    console::{
        Console, Failure,
        flash::{self, Flash},
        form::{Fields, Posted},
        page::{Section, page},
        parts::{Filled, address, area, checkbox, form, input, options},
        session::Session,
        tools::SCOPES,
        when,
    },
    operations::{Added, Http, NewUpstream, Stdio, Transport},
};

pub(in super::super) async fn new(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Response {
    let fields = if session.actor.is_admin() { fields.with("prefix", "on") } else { fields };
    form_page(&console, &session, &fields, None)
}

pub(in super::super) async fn add(
    State(console): State<Arc<Console>>,
    posted: Posted,
) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let added = match read(&session, &fields) {
        Ok(new) => console.admin.add_upstream(&session.actor, new).await,
        Err(error) => Err(error),
    };
    match added {
        Ok(added) => {
            let flash = Flash { good: added.problem.is_none(), text: told(&added) };
            Ok(flash::redirect(&console, &at(&added.upstream.namespace), &flash))
        }
        Err(error @ (Error::Unavailable | Error::Unrecorded)) => Err(error.into()),
        Err(error) => {
            Ok((error.status(), form_page(&console, &session, &fields, Some(&error))).into_response())
        }
    }
}

fn told(added: &Added) -> String {
    let namespace = &added.upstream.namespace;
    match (&added.problem, added.refreshed) {
        (Some(problem), _) => {
            format!("{namespace} is added, but it did not answer: {problem}. It is asked again now and then.")
        }
        (None, refreshed) => {
            let waiting = refreshed.map_or(0, |refreshed| refreshed.new).saturating_sub(added.approved);
            let (approved, waiting) =
                (when::count(added.approved, "tool is", "tools are"), when::count(waiting, "waits", "wait"));
            format!("{namespace} is added. {approved} approved, {waiting} for your approval.")
        }
    }
}

fn read(session: &Session, fields: &Fields) -> Result<NewUpstream, Error> {
    let transport = match fields.text("kind") {
        "stdio" => Transport::Stdio(Stdio {
            argv: fields.lines("argv").map(str::to_owned).collect(),
            env: variables("env", fields)?,
            secret_env: variables("secret_env", fields)?,
            folder: fields.owned("folder"),
        }),
        _ => Transport::Http(Http {
            url: fields.text("url").to_owned(),
            token_file: fields.owned("token_file"),
            reach: None,
        }),
    };
    let concurrency = fields.given("concurrency").map(str::parse).transpose();
    Ok(NewUpstream {
        namespace: fields.text("namespace").to_owned(),
        transport,
        prefix: !session.actor.is_admin() || fields.is_on("prefix"),
        scope: fields.text("scope").parse().unwrap_or_default(),
        call_timeout: fields.owned("call_timeout"),
        concurrency: concurrency
            .map_err(|_| Error::Invalid { field: "concurrency", message: "is no number".to_owned() })?,
        owner: fields.owned("owner"),
        trust_first: fields.is_on("trust_first"),
    })
}

fn variables(field: &'static str, fields: &Fields) -> Result<BTreeMap<String, String>, Error> {
    let pairs = fields.lines(field).map(|line| match line.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(Error::Invalid { field, message: "write one NAME=value on each line".to_owned() }),
    });
    pairs.collect()
}

fn form_page(console: &Console, session: &Session, fields: &Fields, error: Option<&Error>) -> Response {
    let is_admin = session.actor.is_admin();
    let kind = if is_admin && fields.text("kind") == "stdio" { "stdio" } else { "http" };
    let filled = Filled { fields, error };
    let body = html! {
        p .crumbs { a href=(Section::Servers.address()) { "Servers" } " / Add" }
        @if is_admin {
            nav .tabs aria-label="How the server is reached" {
                ul {
                    @for (it, title) in [("http", "Over HTTP"), ("stdio", "As a program")] {
                        li { a href=(address("/console/servers/new", &[("kind", it)])) aria-current=[(it == kind).then_some("true")] { (title) } }
                    }
                }
            }
        }
        div .card .narrow {
            (filled.alert())
            @if kind == "stdio" && !console.admin.stdio {
                p .flash .bad { "This gateway starts no programs. The setting upstreams.stdio = true permits it." }
            }
            (form(session, "/console/servers", &[("kind", kind)], &html! {
                (input(filled, ("namespace", "namespace"), "text", "Name",
                    "Small letters, digits and hyphens. Its tools are called name.tool."))
                @if kind == "stdio" {
                    (area(filled, ("argv", "transport"), "Program and arguments", "One on each line, the program first. No shell reads them."))
                    (area(filled, ("env", "env"), "Variables", "One NAME=value on each line."))
                    (area(filled, ("secret_env", "secret_env"), "Variables from files",
                        "One NAME=/path on each line; the program gets what the file holds."))
                    (input(filled, ("folder", "folder"), "text", "Folder", "Where it runs. Optional."))
                } @else {
                    (input(filled, ("url", "transport"), "url", "Address", "As https://tools.example.com/mcp"))
                    @if is_admin {
                        (input(filled, ("token_file", "token_file"), "text", "Token file",
                            "A file on the gateway's machine with the server's bearer token. Optional."))
                    }
                }
                (options(filled, "scope", "Which agents may call its tools", "", &SCOPES))
                details .more {
                    summary { "More" }
                    (input(filled, ("call_timeout", "call_timeout"), "text", "A call may take", "As 30s, which it is when left empty; at most 10m."))
                    (input(filled, ("concurrency", "concurrency"), "number", "Calls at a time", "8 when left empty."))
                    @if is_admin {
                        (input(filled, ("owner", "owner"), "text", "User", "Whose server it is. Everybody's when left empty."))
                        (checkbox(filled, "prefix", "Put the name in front of its tools",
                            "Without it, tools are called as they are over there."))
                        (checkbox(filled, "trust_first", "Approve its tools unseen",
                            "Only for a server that you trust. What it changes later waits all the same."))
                    }
                }
                button .button type="submit" { "Add the server" }
            }))
        }
    };
    page(session, Some(Section::Servers), "Add a server", &body)
}
