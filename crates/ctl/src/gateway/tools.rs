//! `cynodectl tools`.

use api::{Approval, Difference, QuarantinedTool, Tool, ToolChange, ToolDetails, ToolEffectChange};
use serde_json::json;

use super::{ApiRequest, Gateway, cell, cells, on_off, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::Tools,
    error::{Error, Exit},
    print,
};

/// Characters of a hash that a table shows.
const HASH_CHARS: usize = 12;

pub(crate) async fn run(gateway: &Gateway, command: Tools, json: bool) -> Result<Exit, Error> {
    match command {
        Tools::List => {
            let tools: Vec<Tool> = gateway.ask(ApiRequest::get(&["tools"])).await?;
            let head = ["TOOL", "FROM", "OWNER", "ON", "SCOPE", "DOES", "STATE", "TITLE"];
            Ok(print_list(&tools, json, "no tools", &head, |tool| {
                let from = tool.namespace.as_deref().unwrap_or("gateway");
                let on = on_off(tool.enabled).to_owned();
                let mut row = vec![cell(&tool.name), cell(&from), cell(&tool.owner), on];
                row.extend(cells!(tool, scope, does, state, title));
                row
            }))
        }
        Tools::Show { name } => {
            let details: ToolDetails = gateway.ask(ApiRequest::get(&["tools", &name])).await?;
            if json {
                print_json(&details);
                return Ok(Exit::Done);
            }
            let tool = &details.tool;
            print_fields!(tool, name, title, namespace, remote, owner, enabled, scope, does, does_by);
            print_fields!(tool, safe_to_repeat, state, gate, reaches_network, needs, description);
            print::line(&print::sanitize(&format!("{:#}", details.input_schema)));
            Ok(Exit::Done)
        }
        Tools::Enable { name } => {
            set(gateway, &name, ToolChange { enabled: Some(true), ..ToolChange::default() }, json).await
        }
        Tools::Disable { name } => {
            set(gateway, &name, ToolChange { enabled: Some(false), ..ToolChange::default() }, json).await
        }
        Tools::Scope { name, scope } => {
            set(gateway, &name, ToolChange { scope: Some(scope), ..ToolChange::default() }, json).await
        }
        Tools::SafeToRepeat { name, safe } => {
            set(gateway, &name, ToolChange { safe_to_repeat: Some(safe), ..ToolChange::default() }, json)
                .await
        }
        Tools::Does { name, does } => {
            let does = match does.as_str() {
                "read" => ToolEffectChange::Read,
                "write" => ToolEffectChange::Write,
                _ => ToolEffectChange::AsOffered,
            };
            set(gateway, &name, ToolChange { does: Some(does), ..ToolChange::default() }, json).await
        }
        Tools::Quarantine => {
            let head = ["TOOL", "UPSTREAM", "WHY", "SINCE", "REASON", "HASH"];
            let waiting = quarantine(gateway).await?;
            Ok(print_list(&waiting, json, "no tool waits for approval", &head, |tool| {
                let mut row = cells!(tool, name, namespace, why, seen_at, reason);
                row.push(cell(&tool.offered_hash).chars().take(HASH_CHARS).collect());
                row
            }))
        }
        Tools::Diff { name } => {
            let found = read_diff(gateway, &name).await?;
            if json {
                print_json(&found);
            } else {
                show(&found);
            }
            Ok(Exit::Done)
        }
        Tools::Approve { name, hash, yes } => approve(gateway, &name, hash, yes, json).await,
        Tools::Reject { name } => {
            let (namespace, remote) = find_quarantined(gateway, &name).await?;
            let path = ["quarantine", &namespace, &remote, "reject"];
            gateway.ask::<()>(ApiRequest::post(&path)).await?;
            Ok(decided(json, &namespace, &remote, "rejected"))
        }
    }
}

async fn set(gateway: &Gateway, name: &str, change: ToolChange, json: bool) -> Result<Exit, Error> {
    let tool: Tool = gateway.ask(ApiRequest::patch(&["tools", name]).body(&change)).await?;
    let text = format!("{} is {}, for {}", tool.name, on_off(tool.enabled), tool.scope);
    Ok(print_outcome(json, &tool, &text))
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
            found.tool.offered_hash.unwrap_or_default()
        }
    };
    let QuarantinedTool { namespace, remote, .. } = found.tool;
    let path = ["quarantine", &namespace, &remote, "approve"];
    gateway.ask::<()>(ApiRequest::post(&path).body(&Approval { hash })).await?;
    Ok(decided(json, &namespace, &remote, "approved"))
}

fn decided(json: bool, namespace: &str, remote: &str, what: &str) -> Exit {
    let body = json!({ "namespace": namespace, "remote": remote, "decided": what });
    print_outcome(json, &body, &format!("{namespace}/{remote} is {what}"))
}

fn show(found: &Difference) {
    print_fields!(found.tool, name, namespace, remote, owner, why, reason, offered_hash);
    for line in &found.lines {
        print::line(&print::sanitize(line));
    }
}

async fn quarantine(gateway: &Gateway) -> Result<Vec<QuarantinedTool>, Error> {
    gateway.ask(ApiRequest::get(&["quarantine"])).await
}

async fn read_diff(gateway: &Gateway, name: &str) -> Result<Difference, Error> {
    let (namespace, remote) = find_quarantined(gateway, name).await?;
    gateway.ask(ApiRequest::get(&["quarantine", &namespace, &remote])).await
}

/// Returns the upstream and the remote name of a tool in quarantine.
async fn find_quarantined(gateway: &Gateway, name: &str) -> Result<(String, String), Error> {
    if let Some((namespace, remote)) = name.split_once('/') {
        return Ok((namespace.to_owned(), remote.to_owned()));
    }
    let mut found = quarantine(gateway).await?.into_iter().filter(|tool| tool.name == name);
    match (found.next(), found.next()) {
        (Some(tool), None) => Ok((tool.namespace, tool.remote)),
        (Some(_), Some(_)) => Err(Error::Ambiguous(name.to_owned())),
        (None, _) => Err(Error::NotQuarantined(name.to_owned())),
    }
}
