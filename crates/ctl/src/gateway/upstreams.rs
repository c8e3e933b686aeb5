use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    client::{Ask, Gateway},
    lines, list, word,
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
            let head = ["SERVER", "OWNER", "ON", "STATE", "SCOPE", "TOOLS", "WAITING", "REACHED"];
            Ok(list(&servers, json, "no servers are installed", &head, |server| {
                let on = if server["enabled"] == true { "on" } else { "off" };
                vec![
                    word(server, "namespace"),
                    word(server, "owner"),
                    on.to_owned(),
                    word(&server["health"], "state"),
                    word(server, "scope"),
                    word(&server["tools"], "approved"),
                    word(&server["tools"], "quarantined"),
                    reached(&server["transport"]),
                ]
            }))
        }
        Upstreams::Show { namespace } => {
            let server: Value = gateway.get(Ask::path(&["upstreams", &namespace])).await?;
            show(&server, json);
            Ok(Exit::Done)
        }
        Upstreams::Remove { namespace, yes } => {
            if !yes && !print::asked(&format!("remove {} with its tools?", print::safe(&namespace))) {
                return Err(Error::NotConfirmed);
            }
            gateway.change(Method::DELETE, Ask::path(&["upstreams", &namespace]), None).await?;
            if json {
                print::json(&json!({ "namespace": namespace, "removed": true }));
            } else {
                print::line(&print::safe(&format!("{namespace} and its tools are gone")));
            }
            Ok(Exit::Done)
        }
        Upstreams::Refresh { namespace } => {
            let path = ["upstreams", &namespace, "refresh"];
            let refreshed = gateway.change(Method::POST, Ask::path(&path), None).await?;
            if json {
                print::json(&refreshed);
            } else {
                print::line(&offered(&refreshed));
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
    let added = gateway.change(Method::POST, Ask::path(&["upstreams"]), Some(&new)).await?;
    if json {
        print::json(&added);
        return Ok(Exit::Done);
    }
    show(&added["upstream"], false);
    match &added["problem"] {
        Value::Null => {
            print::line(&offered(&added["refreshed"]));
            if added["approved"] == 0 {
                approve_hint(&added["refreshed"]);
            } else {
                print::line(&format!("{} approved unseen", word(&added, "approved")));
            }
        }
        _ => {
            print::note(&format!("it could not be asked yet: {}", word(&added, "problem")));
            print::note(&format!("`cynodectl upstreams refresh {namespace}` asks again"));
        }
    }
    Ok(Exit::Done)
}

async fn switch(gateway: &Gateway, namespace: &str, verb: &str, json: bool) -> Result<Exit, Error> {
    let path = ["upstreams", namespace, verb];
    let server = gateway.change(Method::POST, Ask::path(&path), None).await?;
    show(&server, json);
    Ok(Exit::Done)
}

fn show(server: &Value, json: bool) {
    if json {
        print::json(server);
        return;
    }
    lines(server, &["namespace", "owner"]);
    print::line(&format!("{:14}{}", "reached", reached(&server["transport"])));
    lines(server, &["enabled", "prefix", "scope", "call_timeout", "concurrency"]);
    let tools = &server["tools"];
    print::line(&format!(
        "{:14}{} approved, {} waiting, {} gone",
        "tools",
        word(tools, "approved"),
        word(tools, "quarantined"),
        word(tools, "gone")
    ));
    lines(&server["health"], &["state", "protocol", "last_error", "restarts", "in_flight"]);
    lines(server, &["created_at", "created_by"]);
}

fn offered(refreshed: &Value) -> String {
    let count = |member| word(refreshed, member);
    format!(
        "{} new, {} changed, {} as before, {} gone",
        count("new"),
        count("changed"),
        count("unchanged"),
        count("gone")
    )
}

fn approve_hint(refreshed: &Value) {
    if refreshed["new"] != 0 || refreshed["changed"] != 0 {
        print::note("`cynodectl tools quarantine` lists what waits for approval");
    }
}

fn reached(transport: &Value) -> String {
    if let Some(http) = transport.get("http") {
        return word(http, "url");
    }
    let argv = transport["stdio"]["argv"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = argv.iter().filter_map(Value::as_str).collect();
    print::safe(&words.join(" "))
}

fn pairs(texts: &[String]) -> Result<Map<String, Value>, Error> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), Value::from(value)))
    };
    let wrong = |text: &String| Error::Wrong(format!("`{text}` is no NAME=VALUE"));
    texts.iter().map(|text| pair(text).ok_or_else(|| wrong(text))).collect()
}
