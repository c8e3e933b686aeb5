use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::{Ask, Gateway},
    lines, list, word,
};
use crate::{
    cli::Tools,
    error::{Error, Exit},
    print,
};

pub(super) async fn run(gateway: &Gateway, command: Tools, json: bool) -> Result<Exit, Error> {
    match command {
        Tools::List => {
            let tools = gateway.list(&["tools"]).await?;
            let head = ["TOOL", "FROM", "OWNER", "ON", "SCOPE", "DOES", "STATE", "TITLE"];
            Ok(list(&tools, json, "no tools", &head, |tool| {
                let from =
                    if tool["namespace"].is_null() { "gateway".to_owned() } else { word(tool, "namespace") };
                let on = if tool["enabled"] == true { "on" } else { "off" };
                vec![
                    word(tool, "name"),
                    from,
                    word(tool, "owner"),
                    on.to_owned(),
                    word(tool, "scope"),
                    word(tool, "does"),
                    word(tool, "state"),
                    word(tool, "title"),
                ]
            }))
        }
        Tools::Show { name } => {
            let tool: Value = gateway.get(Ask::path(&["tools", &name])).await?;
            if json {
                print::json(&tool);
                return Ok(Exit::Done);
            }
            let members = [
                "name",
                "title",
                "namespace",
                "remote",
                "owner",
                "enabled",
                "scope",
                "does",
                "does_by",
                "safe_to_repeat",
                "state",
                "gate",
                "needs",
                "description",
            ];
            lines(&tool, &members);
            print::line(&print::safe(&format!("{:#}", tool["input_schema"])));
            Ok(Exit::Done)
        }
        Tools::Enable { name } => set(gateway, &name, json!({ "enabled": true }), json).await,
        Tools::Disable { name } => set(gateway, &name, json!({ "enabled": false }), json).await,
        Tools::Scope { name, scope } => set(gateway, &name, json!({ "scope": scope }), json).await,
        Tools::SafeToRepeat { name, safe } => {
            set(gateway, &name, json!({ "safe_to_repeat": safe }), json).await
        }
        Tools::Does { name, does } => {
            set(gateway, &name, json!({ "does": does.replace('-', "_") }), json).await
        }
        Tools::Quarantine => {
            let waiting = gateway.list(&["quarantine"]).await?;
            let head = ["TOOL", "SERVER", "WHY", "SINCE", "REASON", "HASH"];
            Ok(list(&waiting, json, "no tool waits for approval", &head, |tool| {
                let hash: String = word(tool, "offered_hash").chars().take(12).collect();
                let mut row: Vec<String> =
                    ["name", "namespace", "why", "seen_at", "reason"].map(|member| word(tool, member)).into();
                row.push(hash);
                row
            }))
        }
        Tools::Diff { name } => {
            let found = difference(gateway, &name).await?;
            if json {
                print::json(&found);
            } else {
                show(&found);
            }
            Ok(Exit::Done)
        }
        Tools::Approve { name, hash, yes } => approve(gateway, &name, hash, yes, json).await,
        Tools::Reject { name } => {
            let (namespace, remote) = waiting(gateway, &name).await?;
            let path = ["quarantine", &namespace, &remote, "reject"];
            gateway.change(Method::POST, Ask::path(&path), None).await?;
            done(json, &namespace, &remote, "rejected");
            Ok(Exit::Done)
        }
    }
}

async fn set(gateway: &Gateway, name: &str, change: Value, json: bool) -> Result<Exit, Error> {
    let tool = gateway.change(Method::PATCH, Ask::path(&["tools", name]), Some(&change)).await?;
    if json {
        print::json(&tool);
    } else {
        let on = if tool["enabled"] == true { "on" } else { "off" };
        print::line(&format!("{} is {on}, for {}", word(&tool, "name"), word(&tool, "scope")));
    }
    Ok(Exit::Done)
}

async fn approve(
    gateway: &Gateway,
    name: &str,
    hash: Option<String>,
    yes: bool,
    json: bool,
) -> Result<Exit, Error> {
    let found = difference(gateway, name).await?;
    let hash = match hash {
        Some(hash) => hash,
        None => {
            if !yes {
                show(&found);
                if !print::asked("serve this?") {
                    return Err(Error::NotApproved);
                }
            }
            found["offered_hash"].as_str().unwrap_or_default().to_owned()
        }
    };
    let (namespace, remote) = (member(&found, "namespace"), member(&found, "remote"));
    let path = ["quarantine", &namespace, &remote, "approve"];
    gateway.change(Method::POST, Ask::path(&path), Some(&json!({ "hash": hash }))).await?;
    done(json, &namespace, &remote, "approved");
    Ok(Exit::Done)
}

fn done(json: bool, namespace: &str, remote: &str, what: &str) {
    if json {
        print::json(&json!({ "namespace": namespace, "remote": remote, "decided": what }));
    } else {
        print::line(&print::safe(&format!("{namespace}/{remote} is {what}")));
    }
}

fn show(found: &Value) {
    lines(found, &["name", "namespace", "remote", "owner", "why", "reason", "offered_hash"]);
    for line in found["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(&print::safe(line));
    }
}

async fn difference(gateway: &Gateway, name: &str) -> Result<Value, Error> {
    let (namespace, remote) = waiting(gateway, name).await?;
    gateway.get(Ask::path(&["quarantine", &namespace, &remote])).await
}

/// The server and the tool that go by a name.
async fn waiting(gateway: &Gateway, name: &str) -> Result<(String, String), Error> {
    if let Some((namespace, remote)) = name.split_once('/') {
        return Ok((namespace.to_owned(), remote.to_owned()));
    }
    let waiting = gateway.list(&["quarantine"]).await?;
    let mut found = waiting.iter().filter(|tool| tool["name"] == name);
    match (found.next(), found.next()) {
        (Some(tool), None) => Ok((member(tool, "namespace"), member(tool, "remote"))),
        (Some(_), Some(_)) => Err(Error::Ambiguous(name.to_owned())),
        (None, _) => Err(Error::NotWaiting(name.to_owned())),
    }
}

fn member(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
