//! `cynodectl settings`.

use api::{PutSetting, Setting};
use serde_json::{Value, json};

use super::{ApiRequest, Gateway, cells, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::Settings,
    error::{Error, Exit},
};

pub(crate) async fn run(gateway: &Gateway, command: Settings, json: bool) -> Result<Exit, Error> {
    match command {
        Settings::List => {
            let settings: Vec<Setting> = gateway.ask(ApiRequest::get(&["settings"])).await?;
            let head = ["KEY", "VALUE", "TYPE", "VERSION", "UPDATED", "BY"];
            Ok(print_list(&settings, json, "no settings", &head, |setting| {
                cells!(setting, key, value, value_type, version, updated_at, updated_by)
            }))
        }
        Settings::Get { key } => {
            let setting: Setting = gateway.ask(ApiRequest::get(&["settings", &key])).await?;
            Ok(show(&setting, json))
        }
        Settings::Set { key, value, version } => {
            let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let new = PutSetting { value, version };
            let setting: Setting = gateway.ask(ApiRequest::put(&["settings", &key]).body(&new)).await?;
            Ok(show(&setting, json))
        }
        Settings::Delete { key, version } => {
            let path = ["settings", &key];
            gateway.ask::<()>(ApiRequest::delete(&path).query(&json!({ "version": version }))).await?;
            Ok(print_outcome(json, &json!({ "key": key, "deleted": true }), &format!("{key} deleted")))
        }
    }
}

fn show(setting: &Setting, json: bool) -> Exit {
    if json {
        print_json(setting);
    } else {
        print_fields!(setting, key, value, value_type, version, description, updated_at, updated_by);
    }
    Exit::Done
}
