//! The form for a new server.

use std::{collections::BTreeMap, sync::Arc};

use api::{AddedUpstream, Http, NewUpstream, Stdio, Transport};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::html;

use super::server_address;
use crate::{
    Error,
    console::{
        Console, Failure,
        components::{FormState, address, area, checkbox, form, input, options},
        flash::{self, Flash},
        form::{Fields, PostedForm},
        format,
        page::{Section, page},
        session::Session,
        tools::SCOPES,
    },
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
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let added = match parse_form(&session, &fields) {
        Ok(new) => console.admin.add_upstream(&session.actor, new).await,
        Err(error) => Err(error),
    };
    match added {
        Ok(added) => {
            let flash = Flash { good: added.problem.is_none(), text: added_message(&added) };
            Ok(flash::redirect(&console, &server_address(&added.upstream.namespace), &flash))
        }
        Err(error @ (Error::Unavailable | Error::Unrecorded)) => Err(error.into()),
        Err(error) => {
            Ok((error.status(), form_page(&console, &session, &fields, Some(&error))).into_response())
        }
    }
}

fn added_message(added: &AddedUpstream) -> String {
    let namespace = &added.upstream.namespace;
    match (&added.problem, added.refreshed) {
        (Some(problem), _) => {
            format!("{namespace} added, but it did not respond: {problem}. The gateway keeps retrying.")
        }
        (None, refreshed) => {
            let waiting = refreshed.map_or(0, |refreshed| refreshed.new).saturating_sub(added.approved);
            let (approved, waiting) =
                (format::count(added.approved, "tool", "tools"), format::count(waiting, "needs", "need"));
            format!("{namespace} added. {approved} approved, {waiting} approval.")
        }
    }
}

fn parse_form(session: &Session, fields: &Fields) -> Result<NewUpstream, Error> {
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
            .map_err(|_| Error::Invalid { field: "concurrency", message: "is not a number".to_owned() })?,
        owner: fields.owned("owner"),
        trust_first: fields.is_on("trust_first"),
    })
}

fn variables(field: &'static str, fields: &Fields) -> Result<BTreeMap<String, String>, Error> {
    let pairs = fields.lines(field).map(|line| match line.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(Error::Invalid { field, message: "expected one NAME=value per line".to_owned() }),
    });
    pairs.collect()
}

fn form_page(console: &Console, session: &Session, fields: &Fields, error: Option<&Error>) -> Response {
    let is_admin = session.actor.is_admin();
    let kind = if is_admin && fields.text("kind") == "stdio" { "stdio" } else { "http" };
    let filled = FormState { fields, error };
    let body = html! {
        p .crumbs { a href=(Section::Servers.address()) { "Servers" } " / Add" }
        @if is_admin {
            nav .tabs aria-label="Transport" {
                ul {
                    @for (it, title) in [("http", "Over HTTP"), ("stdio", "As a program")] {
                        li {
                            a href=(address("/console/servers/new", &[("kind", it)]))
                                aria-current=[(it == kind).then_some("true")] {
                                (title)
                            }
                        }
                    }
                }
            }
        }
        div .card .narrow {
            (filled.alert())
            @if kind == "stdio" && !console.admin.allow_stdio {
                p .flash .bad {
                    "This gateway does not start programs. Set upstreams.stdio = true to allow it."
                }
            }
            (form(session, "/console/servers", &[("kind", kind)], &html! {
                (input(filled, ("namespace", "namespace"), "text", "Name",
                    "Lowercase letters, digits and hyphens. Tools are named name.tool."))
                @if kind == "stdio" {
                    (area(
                        filled,
                        ("argv", "transport"),
                        "Program and arguments",
                        "One per line, the program first. No shell is involved.",
                    ))
                    (area(filled, ("env", "env"), "Variables", "One NAME=value per line."))
                    (area(filled, ("secret_env", "secret_env"), "Variables from files",
                        "One NAME=/path per line; the program gets the content of the file."))
                    (input(filled, ("folder", "folder"), "text", "Folder", "Working directory. Optional."))
                } @else {
                    (input(
                        filled,
                        ("url", "transport"),
                        "url",
                        "Address",
                        "For example https://tools.example.com/mcp",
                    ))
                    @if is_admin {
                        (input(filled, ("token_file", "token_file"), "text", "Token file",
                            "A file on the gateway's machine with the server's bearer token. Optional."))
                    }
                }
                (options(filled, "scope", "Which agents may call its tools", "", &SCOPES))
                details .more {
                    summary { "More" }
                    (input(
                        filled,
                        ("call_timeout", "call_timeout"),
                        "text",
                        "Call timeout",
                        "For example 30s (the default); at most 10m.",
                    ))
                    (input(
                        filled,
                        ("concurrency", "concurrency"),
                        "number",
                        "Concurrent calls",
                        "Default 8.",
                    ))
                    @if is_admin {
                        (input(
                            filled,
                            ("owner", "owner"),
                            "text",
                            "User",
                            "User who owns the server. Shared by all users if empty.",
                        ))
                        (checkbox(filled, "prefix", "Prefix tool names with the server name",
                            "Without the prefix, tools keep their upstream names."))
                        (checkbox(filled, "trust_first", "Approve its tools without review",
                            "Only for a server that you trust. Later changes still need approval."))
                    }
                }
                button .button type="submit" { "Add the server" }
            }))
        }
    };
    page(session, Some(Section::Servers), "Add a server", &body)
}
