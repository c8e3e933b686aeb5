//! The page of system settings.

use std::sync::Arc;

use api::{PutSetting, Setting};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Console, Failure,
    components::{FormState, area, author, button, cells, confirm, dash, form, input, name, table, visible},
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page},
    session::Session,
};
use crate::{Error, operations::is_permanent_setting};

const HEADINGS: [&str; 4] = ["Setting", "Value", "Changed", ""];

pub(super) async fn list(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let settings = console.admin.list_settings(&session.actor).await?;
    Ok(settings_page(&session, &settings, &Fields::default(), None))
}

pub(super) async fn set(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let version = fields.given("version").and_then(|version| version.parse().ok());
    let done = match serde_json::from_str::<Value>(fields.text("value")) {
        Ok(value) => {
            let new = PutSetting { value, version };
            console.admin.set_setting(&session.actor, fields.text("key"), new).await
        }
        Err(_) => {
            let message =
                "invalid JSON: write text in quotes, such as \"text\"; numbers, true and false without";
            Err(Error::Invalid { field: "value", message: message.to_owned() })
        }
    };
    if let Err(error @ Error::Invalid { .. }) = &done {
        let settings = console.admin.list_settings(&session.actor).await?;
        return Ok((error.status(), settings_page(&session, &settings, &fields, Some(error))).into_response());
    }
    flash::redirect_after(&console, Section::Settings.address(), done, |setting| {
        format!("{} set to {}. It applies from the next call on.", setting.key, setting.value)
    })
}

pub(super) async fn delete(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let version = fields.given("version").and_then(|version| version.parse().ok());
    let done = console.admin.delete_setting(&session.actor, fields.text("key"), version).await;
    let message = |()| format!("{} deleted.", fields.text("key"));
    flash::redirect_after(&console, Section::Settings.address(), done, message)
}

fn settings_page(
    session: &Session,
    settings: &[Setting],
    fields: &Fields,
    error: Option<&Error>,
) -> Response {
    let rows: Vec<Markup> = settings.iter().map(|setting| row(session, setting)).collect();
    let filled = FormState { fields, error };
    let body = html! {
        p .lead {
            "System settings. Agents can read them; those with a description change the behaviour of the \
             gateway. Tools of upstream servers reach the network: "
            code { "profile.NAME.network" }
            " says whether agents with the memory profile NAME may call them."
        }
        (table("System settings", &HEADINGS, &rows))
        section {
            h2 #set { "Set a value" }
            div .card .narrow {
                (filled.alert())
                (form(session, Section::Settings.address(), &[], &html! {
                    (input(
                        filled,
                        ("key", "key"),
                        "text",
                        "Key",
                        "For example team.language or profile.team-a.network. \
                         An existing key is overwritten.",
                    ))
                    (area(
                        filled,
                        ("value", "value"),
                        "Value",
                        "JSON: \"text\" in quotes, 42, true, [1, 2] or {\"a\": 1}.",
                    ))
                    button .button type="submit" { "Set" }
                }))
            }
        }
    };
    page(session, Some(Section::Settings), "Settings", &body)
}

fn row(session: &Session, setting: &Setting) -> Markup {
    let version = setting.version.to_string();
    let named = [("key", setting.key.as_str()), ("version", version.as_str())];
    let is_switch = setting.description.is_some() && setting.value.is_boolean();
    let value = match (&setting.value, is_switch) {
        (Value::Bool(on), true) => {
            let wanted = if *on { "false" } else { "true" };
            form(
                session,
                Section::Settings.address(),
                &[named[0], named[1], ("value", wanted)],
                &html! {
                    button .switch type="submit" role="switch" aria-checked=(on) aria-label=(setting.key) {
                        span { (if *on { "On" } else { "Off" }) }
                    }
                },
            )
        }
        (value, _) => html! { code .long { (visible(&value.to_string())) } },
    };
    let consequence =
        if is_switch { "The switch is off from then on." } else { "Agents can no longer read it." };
    let delete = confirm(
        "Delete",
        &html! { (consequence) },
        &button(session, "/console/settings/delete", &named, "danger small", "Delete this setting"),
    );
    let cells_of = [
        html! {
            (name(&setting.key))
            @if let Some(description) = &setting.description { span .sub { (description) } }
        },
        value,
        html! {
            @match (&setting.updated_at, &setting.updated_by) {
                (Some(at), Some(by)) => {
                    (format::timestamp(at)) span .sub { "by " (author(by)) ", version " (setting.version) }
                }
                _ => { (dash()) }
            }
        },
        if is_permanent_setting(&setting.key) {
            html! {}
        } else {
            delete
        },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}
