//! `cynodectl upstreams`.

use std::collections::BTreeMap;

use api::{AddedUpstream, Http, NewUpstream, Refreshed, Stdio, Transport, Upstream};
use serde_json::json;

use super::{ApiRequest, Gateway, cell, on_off, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::{self, Upstreams},
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Upstreams, json: bool) -> Result<Exit, Error> {
    match command {
        Upstreams::Add(new) => add(gateway, *new, json).await,
        Upstreams::List => {
            let servers: Vec<Upstream> = gateway.ask(ApiRequest::get(&["upstreams"])).await?;
            let head = ["UPSTREAM", "OWNER", "ON", "STATE", "SCOPE", "TOOLS", "WAITING", "ADDRESS"];
            Ok(print_list(&servers, json, "no upstreams", &head, |server| {
                vec![
                    cell(&server.namespace),
                    cell(&server.owner),
                    on_off(server.enabled).to_owned(),
                    cell(&server.health.as_ref().map(|health| &health.state)),
                    cell(&server.scope),
                    cell(&server.tools.approved),
                    cell(&server.tools.quarantined),
                    address(server),
                ]
            }))
        }
        Upstreams::Show { namespace } => {
            show_response(gateway, ApiRequest::get(&["upstreams", &namespace]), json).await
        }
        Upstreams::Remove { namespace, yes } => {
            if !yes && !print::confirm(&format!("remove {} with its tools?", print::sanitize(&namespace))) {
                return Err(Error::NotConfirmed);
            }
            gateway.ask::<()>(ApiRequest::delete(&["upstreams", &namespace])).await?;
            let body = json!({ "namespace": namespace, "removed": true });
            Ok(print_outcome(json, &body, &format!("{namespace} and its tools removed")))
        }
        Upstreams::Refresh { namespace } => {
            let path = ["upstreams", &namespace, "refresh"];
            let refreshed: Refreshed = gateway.ask(ApiRequest::post(&path)).await?;
            print_outcome(json, &refreshed, &refresh_summary(refreshed));
            if !json {
                approve_hint(refreshed);
            }
            Ok(Exit::Done)
        }
        Upstreams::Enable { namespace } => {
            show_response(gateway, ApiRequest::post(&["upstreams", &namespace, "enable"]), json).await
        }
        Upstreams::Disable { namespace } => {
            show_response(gateway, ApiRequest::post(&["upstreams", &namespace, "disable"]), json).await
        }
    }
}

async fn add(gateway: &Gateway, new: cli::NewUpstream, json: bool) -> Result<Exit, Error> {
    let transport = match new.url {
        Some(url) => Transport::Http(Http { url, token_file: new.token_file, reach: None }),
        None => Transport::Stdio(Stdio {
            argv: new.program,
            env: pairs(&new.env)?,
            secret_env: pairs(&new.secret_env)?,
            folder: new.folder,
        }),
    };
    let new = NewUpstream {
        namespace: new.namespace,
        transport,
        prefix: !new.no_prefix,
        scope: new.scope,
        call_timeout: new.call_timeout,
        concurrency: new.concurrency,
        owner: new.owner,
        trust_first: new.trust_first,
    };
    let added: AddedUpstream = gateway.ask(ApiRequest::post(&["upstreams"]).body(&new)).await?;
    if json {
        print_json(&added);
        return Ok(Exit::Done);
    }
    show(&added.upstream);
    match &added.problem {
        None => {
            let refreshed = added.refreshed.unwrap_or_default();
            print::line(&refresh_summary(refreshed));
            if added.approved == 0 {
                approve_hint(refreshed);
            } else {
                print::line(&format!("{} approved without review", added.approved));
            }
        }
        Some(problem) => {
            print::note(&format!("its tools could not be listed yet: {}", print::sanitize(problem)));
            print::note(&format!("`cynodectl upstreams refresh {}` tries again", new.namespace));
        }
    }
    Ok(Exit::Done)
}

/// Sends a request whose response is an upstream, and prints it.
async fn show_response(gateway: &Gateway, request: ApiRequest<'_>, json: bool) -> Result<Exit, Error> {
    let server: Upstream = gateway.ask(request).await?;
    if json {
        print_json(&server);
    } else {
        show(&server);
    }
    Ok(Exit::Done)
}

fn show(server: &Upstream) {
    print_fields!(server, namespace, owner);
    print::line(&format!("{:14}{}", "address", address(server)));
    print_fields!(server, enabled, prefix, scope, call_timeout, concurrency);
    let tools = server.tools;
    print::line(&format!(
        "{:14}{} approved, {} waiting, {} gone",
        "tools", tools.approved, tools.quarantined, tools.gone
    ));
    if let Some(health) = &server.health {
        print_fields!(health, state, protocol, last_error, restarts, in_flight);
    }
    print_fields!(server, created_at, created_by);
}

fn refresh_summary(refreshed: Refreshed) -> String {
    let Refreshed { new, changed, unchanged, gone } = refreshed;
    format!("{new} new, {changed} changed, {unchanged} unchanged, {gone} gone")
}

fn approve_hint(refreshed: Refreshed) {
    if refreshed.new != 0 || refreshed.changed != 0 {
        print::note("`cynodectl tools quarantine` lists the tools that need approval");
    }
}

/// Returns the URL, or the command line, of an upstream.
fn address(server: &Upstream) -> String {
    match &server.transport {
        Some(Transport::Http(http)) => print::sanitize(&http.url),
        Some(Transport::Stdio(stdio)) => print::sanitize(&stdio.argv.join(" ")),
        None => String::new(),
    }
}

fn pairs(texts: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let invalid = |text: &String| Error::Other(format!("`{text}` is not NAME=VALUE"));
    texts.iter().map(|text| pair(text).ok_or_else(|| invalid(text))).collect()
}
