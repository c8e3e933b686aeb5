//! `cynodectl preferences`.

use api::{Preference, PreferenceAddress, PreferenceFilter, PutPreference};
use serde_json::{Value, json};

use super::{ApiRequest, Gateway, cells, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::{PreferenceAt, Preferences},
    error::{Error, Exit},
};

const PATH: [&str; 1] = ["preferences"];

pub(crate) async fn run(gateway: &Gateway, command: Preferences, json: bool) -> Result<Exit, Error> {
    match command {
        Preferences::List { scope, scope_id } => {
            let filter = PreferenceFilter { scope, scope_id, key: None };
            let found: Vec<Preference> = gateway.ask(ApiRequest::get(&PATH).query(&filter)).await?;
            let head = ["KEY", "SCOPE", "ID", "VALUE", "VERSION", "UPDATED", "BY"];
            Ok(print_list(&found, json, "no preferences", &head, |preference| {
                cells!(preference, key, scope, scope_id, value, version, updated_at, updated_by)
            }))
        }
        Preferences::Set { key, value, at } => {
            let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let PreferenceAt { scope, scope_id, version } = at;
            let new = PutPreference { scope, scope_id, key, value, version };
            let set: Preference = gateway.ask(ApiRequest::put(&PATH).body(&new)).await?;
            if json {
                print_json(&set);
            } else {
                print_fields!(set, key, scope, scope_id, value, version, updated_at, updated_by);
            }
            Ok(Exit::Done)
        }
        Preferences::Delete { key, at } => {
            let PreferenceAt { scope, scope_id, version } = at;
            let address = PreferenceAddress { scope, scope_id, key: key.clone(), version };
            gateway.ask::<()>(ApiRequest::delete(&PATH).query(&address)).await?;
            Ok(print_outcome(json, &json!({ "key": key, "deleted": true }), &format!("{key} deleted")))
        }
    }
}
