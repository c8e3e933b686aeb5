//! `cynodectl preferences`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::{ApiRequest, Gateway},
    field, print_fields, print_list,
};
use crate::{
    cli::{PreferenceAt, Preferences},
    error::{Error, Exit},
    print,
};

const PATH: [&str; 1] = ["preferences"];

pub(super) async fn run(gateway: &Gateway, command: Preferences, json: bool) -> Result<Exit, Error> {
    match command {
        Preferences::List { scope, scope_id } => {
            let query = [("scope", scope), ("scope_id", scope_id)];
            let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let found: Vec<Value> = gateway.get(ApiRequest { path: &PATH, query }).await?;
            let head = ["KEY", "SCOPE", "ID", "VALUE", "VERSION", "UPDATED", "BY"];
            let members = ["key", "scope", "scope_id", "value", "version", "updated_at", "updated_by"];
            Ok(print_list(&found, json, "no preferences", &head, |preference| {
                members.map(|member| field(preference, member)).into()
            }))
        }
        Preferences::Set { key, value, at } => {
            let value: Value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let PreferenceAt { scope, scope_id, version } = at;
            let new = json!({
                "scope": scope,
                "scope_id": scope_id,
                "key": key,
                "value": value,
                "version": version,
            });
            let set = gateway.change(Method::PUT, ApiRequest::path(&PATH), Some(&new)).await?;
            if json {
                print::json(&set);
            } else {
                print_fields(
                    &set,
                    &["key", "scope", "scope_id", "value", "version", "updated_at", "updated_by"],
                );
            }
            Ok(Exit::Done)
        }
        Preferences::Delete { key, at } => {
            let PreferenceAt { scope, scope_id, version } = at;
            let query = [
                ("scope", Some(scope)),
                ("scope_id", scope_id),
                ("key", Some(key.clone())),
                ("version", version.map(|version| version.to_string())),
            ];
            let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            gateway.change(Method::DELETE, ApiRequest { path: &PATH, query }, None).await?;
            if json {
                print::json(&json!({ "key": key, "deleted": true }));
            } else {
                print::line(&print::sanitize(&format!("{key} deleted")));
            }
            Ok(Exit::Done)
        }
    }
}
