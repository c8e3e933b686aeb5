//! `cynodectl settings`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::{ApiRequest, Gateway},
    field, print_fields, print_list,
};
use crate::{
    cli::Settings,
    error::{Error, Exit},
    print,
};

pub(super) async fn run(gateway: &Gateway, command: Settings, json: bool) -> Result<Exit, Error> {
    match command {
        Settings::List => {
            let settings = gateway.list(&["settings"]).await?;
            let head = ["KEY", "VALUE", "TYPE", "VERSION", "UPDATED", "BY"];
            let members = ["key", "value", "value_type", "version", "updated_at", "updated_by"];
            Ok(print_list(&settings, json, "no settings", &head, |setting| {
                members.map(|member| field(setting, member)).into()
            }))
        }
        Settings::Get { key } => {
            show(&gateway.get(ApiRequest::path(&["settings", &key])).await?, json);
            Ok(Exit::Done)
        }
        Settings::Set { key, value, version } => {
            let value: Value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            let new = json!({ "value": value, "version": version });
            show(
                &gateway.change(Method::PUT, ApiRequest::path(&["settings", &key]), Some(&new)).await?,
                json,
            );
            Ok(Exit::Done)
        }
        Settings::Delete { key, version } => {
            let query = version.into_iter().map(|version| ("version", version.to_string())).collect();
            gateway.change(Method::DELETE, ApiRequest { path: &["settings", &key], query }, None).await?;
            if json {
                print::json(&json!({ "key": key, "deleted": true }));
            } else {
                print::line(&print::sanitize(&format!("{key} deleted")));
            }
            Ok(Exit::Done)
        }
    }
}

fn show(setting: &Value, json: bool) {
    if json {
        print::json(setting);
    } else {
        let members = ["key", "value", "value_type", "version", "description", "updated_at", "updated_by"];
        print_fields(setting, &members);
    }
}
