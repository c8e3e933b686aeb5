//! Pages of tools: list with filter, one tool with its settings, schemas and recent calls.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    Tool, ToolChange, ToolDetails, ToolEffect, ToolEffectChange, ToolEffectSource, ToolOrigin, ToolState,
};
use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Console, Failure, audit,
    components::{FormState, Tone, address, badge, cells, empty, form, input, name, options, table},
    flash,
    form::{Fields, PostedForm},
    page::{Section, page},
    session::Session,
};
use policy::Scope;

use ::audit::Filter;

use crate::Error;

const HEADINGS: [&str; 4] = ["Tool", "From", "For", "Agents may call it"];
const STATES: [(&str, &str); 5] =
    [("", "Any state"), ("on", "On"), ("off", "Off"), ("quarantined", "Quarantined"), ("gone", "Gone")];
pub(super) const SCOPES: [(&str, &str); 3] =
    [("both", "All agents"), ("pm", "Project managers and analysts"), ("sandbox", "Sandboxes")];
const DOES: [(&str, &str); 3] =
    [("as_offered", "By the upstream's hint"), ("read", "Read-only"), ("write", "Has effects")];
const RECENT_CALLS: u64 = 10;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let tools = console.admin.list_tools(&session.actor).await?;
    let families: BTreeSet<&str> = tools.iter().map(|tool| family(&tool.name)).collect();
    let shown: Vec<&Tool> = tools.iter().filter(|tool| matches_filter(tool, &fields)).collect();
    let rows: Vec<Markup> = shown.iter().map(|tool| row(&session, tool, &fields)).collect();
    let mut choices = vec![("", "Any family")];
    choices.extend(families.into_iter().map(|family| (family, family)));
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        form .filter method="get" action=(Section::Tools.address()) role="search" {
            (input(filled, ("text", "text"), "search", "Name or description", ""))
            (options(filled, "family", "Family", "", &choices))
            (options(filled, "state", "State", "", &STATES))
            button .button type="submit" { "Filter" }
        }
        @if tools.is_empty() {
            (empty("No tools yet.", &html! {
                a href="/console/servers/new" { "Add a server" } "; its tools appear here and need approval."
            }))
        } @else if rows.is_empty() {
            (empty("No matching tools.", &html! { a href=(Section::Tools.address()) { "Show all tools" } }))
        } @else {
            p .count { (shown.len()) " of " (tools.len()) " tools" }
            (table("Tools, and whether agents may call them", &HEADINGS, &rows))
        }
    };
    Ok(page(&session, Some(Section::Tools), "Tools", &body))
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let ToolDetails { tool, input_schema, output_schema } =
        console.admin.get_tool(&session.actor, fields.text("name")).await?;
    let recent = if session.actor.is_admin() {
        let filter = Filter { tool: Some(tool.name.clone()), limit: Some(RECENT_CALLS), ..Filter::default() };
        Some(console.admin.query_audit(&session.actor, &filter).await?)
    } else {
        None
    };
    let body = html! {
        p .crumbs { a href=(Section::Tools.address()) { "Tools" } " / " (name(&tool.name)) }
        @if let Some(title) = &tool.title { p .lead { (title) } }
        div .card { p .described { (tool.description) } (facts(&tool)) }
        section { h2 { "Who may call it" } (controls(&session, &tool)) }
        section {
            h2 { "Schemas" }
            (schema("Arguments", &input_schema))
            @if let Some(output) = &output_schema { (schema("Result", output)) }
        }
        @if let Some(recent) = &recent {
            section {
                h2 { "Recent calls" }
                @if recent.is_empty() {
                    (empty("No calls yet.", &html! { "Calls appear here as soon as they are decided." }))
                } @else {
                    @let rows: Vec<Markup> = recent.iter().map(audit::row).collect();
                    (table("Latest calls of this tool", &audit::HEADINGS, &rows))
                    p {
                        a href=(address(Section::Audit.address(), &[("tool", &tool.name)])) {
                            "All calls in the audit"
                        }
                    }
                }
            }
        }
    };
    Ok(page(&session, Some(Section::Tools), &super::components::visible(&tool.name), &body))
}

pub(super) async fn set(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let named = fields.text("name");
    let flag = |field: &str| fields.given(field).map(|text| text == "true");
    let change = ToolChange {
        enabled: flag("enabled"),
        scope: fields.given("scope").and_then(|scope| scope.parse::<Scope>().ok()),
        safe_to_repeat: flag("safe_to_repeat"),
        does: fields.given("does").map(parse_effect).transpose()?,
    };
    let (page, list) = (address("/console/tools/tool", &[("name", named)]), list_address(&fields));
    let to = if fields.is_on("list") { &list } else { &page };
    let switched = change.enabled.is_some();
    let changed = console.admin.set_tool(&session.actor, named, change).await;
    flash::redirect_after(&console, to, changed, |tool| match (switched, tool.enabled) {
        (true, true) => format!("{} enabled. It applies from the next call on.", tool.name),
        (true, false) => format!("{} disabled. It applies from the next call on.", tool.name),
        (false, _) => format!("{} changed. It applies from the next call on.", tool.name),
    })
}

fn parse_effect(text: &str) -> Result<ToolEffectChange, Error> {
    match text {
        "read" => Ok(ToolEffectChange::Read),
        "write" => Ok(ToolEffectChange::Write),
        "as_offered" => Ok(ToolEffectChange::AsOffered),
        _ => Err(Error::invalid("does", "must be read, write or as_offered")),
    }
}

/// Returns the address of the list with the filter that was set when a switch was used.
fn list_address(fields: &Fields) -> String {
    let kept = ["text", "family", "state"].map(|name| (name, fields.text(name)));
    address(Section::Tools.address(), &kept)
}

fn family(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn matches_filter(tool: &Tool, fields: &Fields) -> bool {
    let text = fields.text("text").to_lowercase();
    let contains = |place: &str| place.to_lowercase().contains(&text);
    let state = match fields.text("state") {
        "on" => tool.state == ToolState::Approved && tool.enabled,
        "off" => tool.state == ToolState::Approved && !tool.enabled,
        "quarantined" => tool.state == ToolState::Quarantined,
        "gone" => tool.state == ToolState::Gone,
        _ => true,
    };
    state
        && fields.given("family").is_none_or(|wanted| wanted == family(&tool.name))
        && (text.is_empty()
            || contains(&tool.name)
            || contains(&tool.description)
            || tool.title.as_deref().is_some_and(contains))
}

fn row(session: &Session, tool: &Tool, fields: &Fields) -> Markup {
    let page = address("/console/tools/tool", &[("name", &tool.name)]);
    let kept = ["text", "family", "state"].map(|name| (name, fields.text(name)));
    let cells_of = [
        html! {
            a href=(page) { (name(&tool.name)) }
            @if let Some(title) = &tool.title { span .sub { (title) } }
        },
        origin(tool),
        html! { (scope(tool.scope)) },
        html! { (switch(session, tool, &kept)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn origin(tool: &Tool) -> Markup {
    match (&tool.namespace, tool.origin) {
        (Some(namespace), _) => {
            html! {
                a href=(address("/console/servers/server", &[("namespace", namespace)])) { (name(namespace)) }
            }
        }
        (None, ToolOrigin::BuiltIn | ToolOrigin::Family | ToolOrigin::Installed) => html! { "the gateway" },
    }
}

pub(super) fn scope(scope: Scope) -> &'static str {
    SCOPES.iter().find(|(value, _)| *value == scope.as_str()).map_or("", |(_, text)| text)
}

pub(super) fn state(tool: &Tool) -> Markup {
    match (tool.state, tool.enabled) {
        (ToolState::Quarantined, _) => badge(Tone::Warn, "Quarantined"),
        (ToolState::Gone, _) => badge(Tone::Plain, "Gone"),
        (ToolState::Approved, false) => badge(Tone::Plain, "Off"),
        (ToolState::Approved, true) if tool.gate.as_ref().is_some_and(|gate| !gate.open) => {
            badge(Tone::Warn, "Setting required")
        }
        (ToolState::Approved, true) => badge(Tone::Good, "On"),
    }
}

/// Renders the switch of a tool. A tool that is quarantined or gone has none, since it would have no effect.
fn switch(session: &Session, tool: &Tool, kept: &[(&str, &str)]) -> Markup {
    match tool.state {
        ToolState::Quarantined => html! {
            div .actions {
                (state(tool))
                a .button .quiet .small href=(Section::Quarantine.address()) { "Decide" }
            }
        },
        ToolState::Gone => state(tool),
        ToolState::Approved => {
            let (wanted, label) = if tool.enabled { ("false", "On") } else { ("true", "Off") };
            let mut hidden = vec![("name", tool.name.as_str()), ("enabled", wanted)];
            hidden.extend(kept.iter().filter(|(_, value)| !value.is_empty()));
            if !kept.is_empty() {
                hidden.push(("list", "1"));
            }
            form(
                session,
                "/console/tools/tool",
                &hidden,
                &html! {
                    button .switch type="submit" role="switch" aria-checked=(tool.enabled)
                        aria-label={ "Agents may call " (tool.name) } { span { (label) } }
                },
            )
        }
    }
}

fn facts(tool: &Tool) -> Markup {
    let does = match (tool.does, tool.does_by) {
        (ToolEffect::Read, ToolEffectSource::Gateway) => "Read-only",
        (ToolEffect::Write, ToolEffectSource::Gateway) => "Has effects",
        (ToolEffect::Read, ToolEffectSource::Administrator) => "Read-only, set by an administrator",
        (ToolEffect::Write, ToolEffectSource::Administrator) => "Has effects, set by an administrator",
        (ToolEffect::Read, ToolEffectSource::Server | ToolEffectSource::Default) => {
            "Read-only, by the upstream's hint"
        }
        (ToolEffect::Write, ToolEffectSource::Server) => "Has effects, by the upstream's hint",
        (ToolEffect::Write, ToolEffectSource::Default) => {
            "Has effects: hints of user-installed servers are not trusted"
        }
    };
    html! {
        dl .facts {
            div { dt { "State" } dd { (state(tool)) } }
            div { dt { "From" } dd { (origin(tool)) } }
            @if let Some(remote) = &tool.remote { div { dt { "Upstream name" } dd { (name(remote)) } } }
            @if let Some(owner) = &tool.owner { div { dt { "Installed by" } dd { bdi { (owner) } } } }
            div { dt { "Effect" } dd { (does) } }
            @if !tool.needs.is_empty() {
                div { dt { "Required ids" } dd { code { (tool.needs.join(", ")) } } }
            }
            @if tool.reaches_network {
                div { dt { "Network" } dd { "Only for memory profiles that may reach the network" } }
            }
            @if let Some(gate) = &tool.gate {
                div {
                    dt { "Required setting" }
                    dd { code { (gate.setting) } (if gate.open { " (on)" } else { " (off)" }) }
                }
            }
        }
    }
}

fn controls(session: &Session, tool: &Tool) -> Markup {
    let hidden = [("name", tool.name.as_str())];
    let fields = Fields::default().with("scope", tool.scope.as_str());
    let filled = FormState { fields: &fields, error: None };
    let does = match (tool.does, tool.does_by) {
        (ToolEffect::Read, ToolEffectSource::Administrator) => "read",
        (ToolEffect::Write, ToolEffectSource::Administrator) => "write",
        _ => "as_offered",
    };
    let does = Fields::default().with("does", does);
    let chosen = FormState { fields: &does, error: None };
    let repeat = if tool.safe_to_repeat { "false" } else { "true" };
    let repeat = [hidden[0], ("safe_to_repeat", repeat)];
    html! {
        div .card .controls {
            div .control {
                div {
                    h3 { "Switch" }
                    p .hint {
                        @match tool.state {
                            ToolState::Approved => { "A disabled tool is not listed, and calls are denied." }
                            ToolState::Quarantined => { "It needs approval before it can be called." }
                            ToolState::Gone => { "Its upstream no longer offers it." }
                        }
                    }
                }
                (switch(session, tool, &[]))
            }
            div .control {
                div {
                    h3 { "Agents" }
                    p .hint { "An agent can only call tools on its role's allowlist, whatever is set here." }
                }
                (form(session, "/console/tools/tool", &hidden, &html! {
                    (options(filled, "scope", "Which agents may call it", "", &SCOPES))
                    button .button .quiet type="submit" { "Set" }
                }))
            }
            @if tool.origin != ToolOrigin::BuiltIn && session.actor.is_admin() {
                div .control {
                    div {
                        h3 { "Effects" }
                        p .hint {
                            "Agents may repeat read-only calls and do not journal them. "
                            "If in doubt, choose “Has effects”."
                        }
                    }
                    (form(session, "/console/tools/tool", &hidden, &html! {
                        (options(chosen, "does", "Effect", "", &DOES))
                        button .button .quiet type="submit" { "Set effects" }
                    }))
                }
                div .control {
                    div {
                        h3 { "Safe to repeat" }
                        p .hint {
                            @if tool.safe_to_repeat {
                                "A call with an unknown outcome is repeated."
                            } @else {
                                "A call with an unknown outcome fails as in doubt and is not repeated."
                            }
                        }
                    }
                    (form(session, "/console/tools/tool", &repeat, &html! {
                        button .switch type="submit" role="switch" aria-checked=(tool.safe_to_repeat)
                            aria-label="Safe to repeat" {
                                span { (if tool.safe_to_repeat { "Yes" } else { "No" }) }
                            }
                    }))
                }
            }
        }
    }
}

fn schema(title: &str, schema: &Value) -> Markup {
    html! {
        details .schema {
            summary { (title) }
            pre tabindex="0" aria-label=(title) {
                code { (super::components::visible(&format!("{schema:#}"))) }
            }
        }
    }
}
