//! The page of access rules.

use std::sync::Arc;

use api::{AccessRule, NewRule};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{
        FormState, Tone, agent, author, badge, button, cells, confirm, empty, form, input, options, table,
        visible,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page},
    session::Session,
};
use policy::Effect;

use crate::Error;

const HEADINGS: [&str; 6] = ["Order", "Effect", "Who", "Tool", "Reason", ""];
const EFFECTS: [(&str, &str); 2] = [("deny", "Deny"), ("allow", "Allow")];
const AGENTS: [(&str, &str); 4] = [
    ("", "All agents"),
    ("project_manager", "Project managers"),
    ("project_analyst", "Project analysts"),
    ("sandbox", "Sandboxes"),
];

pub(super) async fn list(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let rules = console.admin.list_rules(&session.actor).await?;
    Ok(rules_page(&session, &rules, &Fields::default(), None))
}

pub(super) async fn add(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let added = match parse_form(&fields) {
        Ok(new) => console.admin.add_rule(&session.actor, new).await,
        Err(error) => Err(error),
    };
    if let Err(error @ (Error::Invalid { .. } | Error::Conflict(_))) = &added {
        let rules = console.admin.list_rules(&session.actor).await?;
        return Ok((error.status(), rules_page(&session, &rules, &fields, Some(error))).into_response());
    }
    flash::redirect_after(&console, Section::Rules.address(), added, |rule| {
        format!(
            "Rule for {} added at position {}. It applies from the next call on.",
            rule.tool, rule.position
        )
    })
}

pub(super) async fn shift(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let rules = console.admin.list_rules(&session.actor).await?;
    let mut ids: Vec<String> = rules.into_iter().map(|rule| rule.id).collect();
    let at = ids.iter().position(|id| id == fields.text("id"));
    let to = at.and_then(|at| if fields.text("way") == "up" { at.checked_sub(1) } else { Some(at + 1) });
    let moved = match (at, to) {
        (Some(at), Some(to)) if to < ids.len() => {
            ids.swap(at, to);
            console.admin.reorder_rules(&session.actor, ids).await.map(|_| to + 1)
        }
        // It is already first or last.
        (Some(at), _) => Ok(at + 1),
        (None, _) => Err(Error::NotFound { what: "rule", id: fields.text("id").to_owned() }),
    };
    flash::redirect_after(&console, Section::Rules.address(), moved, |position| {
        format!("Rule moved to position {position}.")
    })
}

pub(super) async fn remove(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let removed = console.admin.remove_rule(&posted.session.actor, posted.fields.text("id")).await;
    flash::redirect_after(&console, Section::Rules.address(), removed, |()| "Rule removed.".to_owned())
}

fn parse_form(fields: &Fields) -> Result<NewRule, Error> {
    let position = fields.given("position").map(str::parse).transpose();
    Ok(NewRule {
        effect: if fields.text("effect") == "allow" { Effect::Allow } else { Effect::Deny },
        agent: fields.given("agent").and_then(|agent| agent.parse().ok()),
        user_id: fields.owned("user_id"),
        tool: fields.text("tool").to_owned(),
        argument: fields.owned("argument"),
        matches: fields.owned("matches"),
        note: fields.text("note").to_owned(),
        position: position
            .map_err(|_| Error::Invalid { field: "position", message: "is not a number".to_owned() })?,
    })
}

fn rules_page(session: &Session, rules: &[AccessRule], fields: &Fields, error: Option<&Error>) -> Response {
    let last = rules.len();
    let rows: Vec<Markup> =
        rules.iter().enumerate().map(|(at, rule)| row(session, rule, at == 0, at + 1 == last)).collect();
    let filled = FormState { fields, error };
    let body = html! {
        p .lead {
            "The first rule that applies to a call decides. A rule never permits what the settings of a \
             tool or the allowlist of a role deny. If no rule applies, the call is not restricted further."
        }
        @if rows.is_empty() {
            (empty(
                "No rules.",
                &html! {
                    "Agents may call the tools on their role's allowlist. Add a rule below to restrict that."
                },
            ))
        } @else {
            (table("Access rules, in the order of evaluation", &HEADINGS, &rows))
        }
        section {
            h2 #add { "Add a rule" }
            div .card {
                (filled.alert())
                (form(session, Section::Rules.address(), &[], &html! {
                    div .grid {
                        (options(filled, "effect", "Effect", "", &EFFECTS))
                        (options(filled, "agent", "Agents", "", &AGENTS))
                        (input(
                            filled,
                            ("user_id", "user_id"),
                            "text",
                            "User",
                            "Only agents that act for this user. Optional.",
                        ))
                        (input(filled, ("tool", "tool"), "text", "Tool", "A name, or a prefix such as db.*"))
                        (input(
                            filled,
                            ("argument", "argument"),
                            "text",
                            "Argument",
                            "A JSON pointer such as /url. Optional.",
                        ))
                        (input(
                            filled,
                            ("matches", "matches"),
                            "text",
                            "Pattern",
                            "For example https://*.example.com/*; * matches any characters.",
                        ))
                        (input(
                            filled,
                            ("note", "note"),
                            "text",
                            "Reason",
                            "For other administrators. Optional.",
                        ))
                        (input(
                            filled,
                            ("position", "position"),
                            "number",
                            "Position",
                            "1 is evaluated first. Default: at the end.",
                        ))
                    }
                    button .button type="submit" { "Add the rule" }
                }))
            }
        }
    };
    page(session, Some(Section::Rules), "Rules", &body)
}

fn row(session: &Session, rule: &AccessRule, is_first: bool, is_last: bool) -> Markup {
    let effect = match rule.effect.as_str() {
        "allow" => badge(Tone::Good, "Allow"),
        "deny" => badge(Tone::Bad, "Deny"),
        _ => badge(Tone::Bad, "Deny (unreadable)"),
    };
    let id = ("id", rule.id.as_str());
    let move_to = |way: &'static str, sign: &str, label: &str| {
        form(
            session,
            "/console/rules/move",
            &[id, ("way", way)],
            &html! {
                button .button .quiet .small type="submit" title=(label)
                    aria-label={ (label) " (rule " (rule.position) ")" } {
                    (sign)
                }
            },
        )
    };
    let cells_of = [
        html! { (rule.position) },
        effect,
        html! {
            span .nowrap { (rule.agent.as_deref().map_or_else(|| "All agents".to_owned(), agent)) }
            @if let Some(user) = &rule.user_id { span .sub { "for " bdi { (visible(user)) } } }
        },
        html! {
            code { (visible(&rule.tool)) }
            @if let (Some(argument), Some(matches)) = (&rule.argument, &rule.matches) {
                span .sub { "where " code { (visible(argument)) } " matches " code { (visible(matches)) } }
            }
        },
        html! {
            bdi { (rule.note) }
            span .sub { "by " (author(&rule.created_by)) ", " (format::timestamp(&rule.created_at)) }
        },
        html! {
            div .actions {
                @if !is_first { (move_to("up", "↑", "Move up")) }
                @if !is_last { (move_to("down", "↓", "Move down")) }
                (confirm(
                    "Remove",
                    &html! { "It no longer applies from the next call on." },
                    &button(session, "/console/rules/remove", &[id], "danger small", "Remove this rule"),
                ))
            }
        },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}
