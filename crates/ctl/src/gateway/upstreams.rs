//! `cynodectl upstreams`.

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    client::{ApiRequest, Gateway},
    field, print_fields, print_list,
};
use crate::{
    cli::{NewUpstream, Upstreams},
    error::{Error, Exit},
    print,
};

pub(super) async fn run(gateway: &Gateway, command: Upstreams, json: bool) -> Result<Exit, Error> {
    match command {
        Upstreams::Add(new) => add(gateway, *new, json).await,
        Upstreams::List => {
            let servers = gateway.list(&["upstreams"]).await?;
            let head = ["UPSTREAM", "OWNER", "ON", "STATE", "SCOPE", "TOOLS", "WAITING", "ADDRESS"];
            Ok(print_list(&servers, json, "no upstreams", &head, |server| {
                let on = if server["enabled"] == true { "on" } else { "off" };
                vec![
                    field(server, "namespace"),
                    field(server, "owner"),
                    on.to_owned(),
                    field(&server["health"], "state"),
                    field(server, "scope"),
                    field(&server["tools"], "approved"),
                    field(&server["tools"], "quarantined"),
                    address(&server["transport"]),
                ]
            }))
        }
        Upstreams::Show { namespace } => {
            let server: Value = gateway.get(ApiRequest::path(&["upstreams", &namespace])).await?;
            show(&server, json);
            Ok(Exit::Done)
        }
        Upstreams::Remove { namespace, yes } => {
            if !yes && !print::confirm(&format!("remove {} with its tools?", print::sanitize(&namespace))) {
                return Err(Error::NotConfirmed);
            }
            gateway.change(Method::DELETE, ApiRequest::path(&["upstreams", &namespace]), None).await?;
            if json {
                print::json(&json!({ "namespace": namespace, "removed": true }));
            } else {
                print::line(&print::sanitize(&format!("{namespace} and its tools removed")));
            }
            Ok(Exit::Done)
        }
        Upstreams::Refresh { namespace } => {
            let path = ["upstreams", &namespace, "refresh"];
            let refreshed = gateway.change(Method::POST, ApiRequest::path(&path), None).await?;
            if json {
                print::json(&refreshed);
            } else {
                print::line(&refresh_summary(&refreshed));
                approve_hint(&refreshed);
            }
            Ok(Exit::Done)
        }
        Upstreams::Enable { namespace } => switch(gateway, &namespace, "enable", json).await,
        Upstreams::Disable { namespace } => switch(gateway, &namespace, "disable", json).await,
    }
}

async fn add(gateway: &Gateway, new: NewUpstream, json: bool) -> Result<Exit, Error> {
    let transport = match &new.url {
        Some(url) => json!({ "http": { "url": url, "token_file": new.token_file } }),
        None => json!({ "stdio": {
            "argv": new.program,
            "env": pairs(&new.env)?,
            "secret_env": pairs(&new.secret_env)?,
            "folder": new.folder,
        } }),
    };
    let namespace = new.namespace;
    let new = json!({
        "namespace": namespace,
        "transport": transport,
        "prefix": !new.no_prefix,
        "scope": new.scope,
        "call_timeout": new.call_timeout,
        "concurrency": new.concurrency,
        "owner": new.owner,
        "trust_first": new.trust_first,
    });
    let added = gateway.change(Method::POST, ApiRequest::path(&["upstreams"]), Some(&new)).await?;
    if json {
        print::json(&added);
        return Ok(Exit::Done);
    }
    show(&added["upstream"], false);
    match &added["problem"] {
        Value::Null => {
            print::line(&refresh_summary(&added["refreshed"]));
            if added["approved"] == 0 {
                approve_hint(&added["refreshed"]);
            } else {
                print::line(&format!("{} approved without review", field(&added, "approved")));
            }
        }
        _ => {
            print::note(&format!("its tools could not be listed yet: {}", field(&added, "problem")));
            print::note(&format!("`cynodectl upstreams refresh {namespace}` tries again"));
        }
    }
    Ok(Exit::Done)
}

/// Enables or disables an upstream.
async fn switch(gateway: &Gateway, namespace: &str, verb: &str, json: bool) -> Result<Exit, Error> {
    let path = ["upstreams", namespace, verb];
    let server = gateway.change(Method::POST, ApiRequest::path(&path), None).await?;
    show(&server, json);
    Ok(Exit::Done)
}

fn show(server: &Value, json: bool) {
    if json {
        print::json(server);
        return;
    }
    print_fields(server, &["namespace", "owner"]);
    print::line(&format!("{:14}{}", "address", address(&server["transport"])));
    print_fields(server, &["enabled", "prefix", "scope", "call_timeout", "concurrency"]);
    let tools = &server["tools"];
    print::line(&format!(
        "{:14}{} approved, {} waiting, {} gone",
        "tools",
        field(tools, "approved"),
        field(tools, "quarantined"),
        field(tools, "gone")
    ));
    print_fields(&server["health"], &["state", "protocol", "last_error", "restarts", "in_flight"]);
    print_fields(server, &["created_at", "created_by"]);
}

fn refresh_summary(refreshed: &Value) -> String {
    let count = |member| field(refreshed, member);
    format!(
        "{} new, {} changed, {} unchanged, {} gone",
        count("new"),
        count("changed"),
        count("unchanged"),
        count("gone")
    )
}

fn approve_hint(refreshed: &Value) {
    if refreshed["new"] != 0 || refreshed["changed"] != 0 {
        print::note("`cynodectl tools quarantine` lists the tools that need approval");
    }
}

/// Returns the URL, or the command line, of an upstream.
fn address(transport: &Value) -> String {
    if let Some(http) = transport.get("http") {
        return field(http, "url");
    }
    let argv = transport["stdio"]["argv"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = argv.iter().filter_map(Value::as_str).collect();
    print::sanitize(&words.join(" "))
}

fn pairs(texts: &[String]) -> Result<Map<String, Value>, Error> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), Value::from(value)))
    };
    let invalid = |text: &String| Error::Other(format!("`{text}` is not NAME=VALUE"));
    texts.iter().map(|text| pair(text).ok_or_else(|| invalid(text))).collect()
}
