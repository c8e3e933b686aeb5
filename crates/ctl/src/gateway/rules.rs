//! `cynodectl rules`.

use reqwest::Method;
use serde_json::json;

use super::{
    client::{ApiRequest, Gateway},
    field, print_list,
};
use crate::{
    cli::Rules,
    error::{Error, Exit},
    print,
};

pub(super) async fn run(gateway: &Gateway, command: Rules, json: bool) -> Result<Exit, Error> {
    match command {
        Rules::List => {
            let rules = gateway.list(&["rules"]).await?;
            let head = ["#", "EFFECT", "TOOL", "AGENT", "USER", "ARGUMENT", "MATCHES", "NOTE", "ID"];
            let members =
                ["position", "effect", "tool", "agent", "user_id", "argument", "matches", "note", "id"];
            Ok(print_list(&rules, json, "no rules", &head, |rule| {
                members.map(|member| field(rule, member)).into()
            }))
        }
        Rules::Add { effect, tool, agent, user, argument, matches, note, position } => {
            let new = json!({
                "effect": effect,
                "tool": tool,
                "agent": agent,
                "user_id": user,
                "argument": argument,
                "matches": matches,
                "note": note,
                "position": position,
            });
            let rule = gateway.change(Method::POST, ApiRequest::path(&["rules"]), Some(&new)).await?;
            if json {
                print::json(&rule);
            } else {
                print::line(&format!(
                    "rule {} added at position {}",
                    field(&rule, "id"),
                    field(&rule, "position")
                ));
            }
            Ok(Exit::Done)
        }
        Rules::Remove { id } => {
            gateway.change(Method::DELETE, ApiRequest::path(&["rules", &id]), None).await?;
            if json {
                print::json(&json!({ "id": id, "removed": true }));
            } else {
                print::line(&print::sanitize(&format!("rule {id} removed")));
            }
            Ok(Exit::Done)
        }
    }
}
