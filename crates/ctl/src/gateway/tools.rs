//! `cynodectl tools`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::{ApiRequest, Gateway},
    field, print_fields, print_list,
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
            Ok(print_list(&tools, json, "no tools", &head, |tool| {
                let from =
                    if tool["namespace"].is_null() { "gateway".to_owned() } else { field(tool, "namespace") };
                let on = if tool["enabled"] == true { "on" } else { "off" };
                vec![
                    field(tool, "name"),
                    from,
                    field(tool, "owner"),
                    on.to_owned(),
                    field(tool, "scope"),
                    field(tool, "does"),
                    field(tool, "state"),
                    field(tool, "title"),
                ]
            }))
        }
        Tools::Show { name } => {
            let tool: Value = gateway.get(ApiRequest::path(&["tools", &name])).await?;
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
            print_fields(&tool, &members);
            print::line(&print::sanitize(&format!("{:#}", tool["input_schema"])));
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
            let head = ["TOOL", "UPSTREAM", "WHY", "SINCE", "REASON", "HASH"];
            Ok(print_list(&waiting, json, "no tool waits for approval", &head, |tool| {
                let hash: String = field(tool, "offered_hash").chars().take(12).collect();
                let mut row: Vec<String> = ["name", "namespace", "why", "seen_at", "reason"]
                    .map(|member| field(tool, member))
                    .into();
                row.push(hash);
                row
            }))
        }
        Tools::Diff { name } => {
            let found = read_diff(gateway, &name).await?;
            if json {
                print::json(&found);
            } else {
                show(&found);
            }
            Ok(Exit::Done)
        }
        Tools::Approve { name, hash, yes } => approve(gateway, &name, hash, yes, json).await,
        Tools::Reject { name } => {
            let (namespace, remote) = find_quarantined(gateway, &name).await?;
            let path = ["quarantine", &namespace, &remote, "reject"];
            gateway.change(Method::POST, ApiRequest::path(&path), None).await?;
            done(json, &namespace, &remote, "rejected");
            Ok(Exit::Done)
        }
    }
}

async fn set(gateway: &Gateway, name: &str, change: Value, json: bool) -> Result<Exit, Error> {
    let tool = gateway.change(Method::PATCH, ApiRequest::path(&["tools", name]), Some(&change)).await?;
    if json {
        print::json(&tool);
    } else {
        let on = if tool["enabled"] == true { "on" } else { "off" };
        print::line(&format!("{} is {on}, for {}", field(&tool, "name"), field(&tool, "scope")));
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
    let found = read_diff(gateway, name).await?;
    let hash = match hash {
        Some(hash) => hash,
        None => {
            if !yes {
                show(&found);
                if !print::confirm("approve this definition?") {
                    return Err(Error::NotApproved);
                }
            }
            found["offered_hash"].as_str().unwrap_or_default().to_owned()
        }
    };
    let (namespace, remote) = (member(&found, "namespace"), member(&found, "remote"));
    let path = ["quarantine", &namespace, &remote, "approve"];
    gateway.change(Method::POST, ApiRequest::path(&path), Some(&json!({ "hash": hash }))).await?;
    done(json, &namespace, &remote, "approved");
    Ok(Exit::Done)
}

fn done(json: bool, namespace: &str, remote: &str, what: &str) {
    if json {
        print::json(&json!({ "namespace": namespace, "remote": remote, "decided": what }));
    } else {
        print::line(&print::sanitize(&format!("{namespace}/{remote} is {what}")));
    }
}

fn show(found: &Value) {
    print_fields(found, &["name", "namespace", "remote", "owner", "why", "reason", "offered_hash"]);
    for line in found["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(&print::sanitize(line));
    }
}

async fn read_diff(gateway: &Gateway, name: &str) -> Result<Value, Error> {
    let (namespace, remote) = find_quarantined(gateway, name).await?;
    gateway.get(ApiRequest::path(&["quarantine", &namespace, &remote])).await
}

/// Returns the upstream and the remote name of a tool in quarantine.
async fn find_quarantined(gateway: &Gateway, name: &str) -> Result<(String, String), Error> {
    if let Some((namespace, remote)) = name.split_once('/') {
        return Ok((namespace.to_owned(), remote.to_owned()));
    }
    let waiting = gateway.list(&["quarantine"]).await?;
    let mut found = waiting.iter().filter(|tool| tool["name"] == name);
    match (found.next(), found.next()) {
        (Some(tool), None) => Ok((member(tool, "namespace"), member(tool, "remote"))),
        (Some(_), Some(_)) => Err(Error::Ambiguous(name.to_owned())),
        (None, _) => Err(Error::NotQuarantined(name.to_owned())),
    }
}

fn member(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
