//! `cynodectl rules`.

use api::{AccessRule, NewRule};
use serde_json::json;

use super::{ApiRequest, Gateway, cells, print_list, print_outcome};
use crate::{
    cli::Rules,
    error::{Error, Exit},
};

pub(crate) async fn run(gateway: &Gateway, command: Rules, json: bool) -> Result<Exit, Error> {
    match command {
        Rules::List => {
            let rules: Vec<AccessRule> = gateway.ask(ApiRequest::get(&["rules"])).await?;
            let head = ["#", "EFFECT", "TOOL", "AGENT", "USER", "ARGUMENT", "MATCHES", "NOTE", "ID"];
            Ok(print_list(&rules, json, "no rules", &head, |rule| {
                cells!(rule, position, effect, tool, agent, user_id, argument, matches, note, id)
            }))
        }
        Rules::Add { effect, tool, agent, user, argument, matches, note, position } => {
            let new = NewRule { effect, agent, user_id: user, tool, argument, matches, note, position };
            let rule: AccessRule = gateway.ask(ApiRequest::post(&["rules"]).body(&new)).await?;
            let text = format!("rule {} added at position {}", rule.id, rule.position);
            Ok(print_outcome(json, &rule, &text))
        }
        Rules::Remove { id } => {
            gateway.ask::<()>(ApiRequest::delete(&["rules", &id])).await?;
            Ok(print_outcome(json, &json!({ "id": id, "removed": true }), &format!("rule {id} removed")))
        }
    }
}
