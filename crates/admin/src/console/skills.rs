//! Pages of skills: list with filter, one skill, add, change, delete.

use std::sync::Arc;

use api::{PutSkill, Skill, SkillDetails, SkillFilter, SkillScope};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, area, author, badge, button, cells, confirm, document, empty, form, input,
        name, options, table, visible, visible_lines,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page, with_actions},
    session::Session,
    tokens::require_admin,
};
use crate::Error;

const HEADINGS: [&str; 4] = ["Skill", "For", "Size", "Changed"];
const NEW: &str = "/console/skills/new";
const PAGE_SIZE: u32 = 50;
/// Value, scope and title.
const SCOPES: [(&str, SkillScope, &str); 3] = [
    ("system", SkillScope::System, "For all"),
    ("user", SkillScope::User, "For a user"),
    ("project", SkillScope::Project, "For a project"),
];

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let scope = SCOPES.into_iter().find(|(word, ..)| *word == fields.text("scope"));
    let offset: u32 = fields.text("offset").parse().unwrap_or_default();
    let filter = SkillFilter {
        scope: scope.map(|(_, scope, _)| scope),
        scope_id: fields.owned("scope_id"),
        name: None,
        // One more than the page has, to tell whether it is the last.
        limit: Some(u64::from(PAGE_SIZE) + 1),
        offset: Some(offset),
    };
    let found = console.admin.list_skills(&session.actor, &filter).await?;
    let has_more = found.len() > PAGE_SIZE as usize;
    let rows: Vec<Markup> = found.iter().take(PAGE_SIZE as usize).map(row).collect();
    let mut scopes = vec![("", "Any scope")];
    scopes.extend(SCOPES.map(|(word, _, title)| (word, title)));
    let filled = FormState { fields: &fields, error: None };
    let page_at = |offset: u32| {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        let kept = [("scope", fields.text("scope")), ("scope_id", fields.text("scope_id"))];
        address(Section::Skills.address(), &[kept[0], kept[1], ("offset", &offset)])
    };
    let body = html! {
        p .lead {
            "A skill is a text that agents load when they need it. Of skills with the same name, that of the \
             project counts, else that of the user, else the one for all."
        }
        form .filter method="get" action=(Section::Skills.address()) role="search" {
            (options(filled, "scope", "Scope", "", &scopes))
            (input(filled, ("scope_id", "scope_id"), "search", "User or project", ""))
            button .button type="submit" { "Filter" }
        }
        @if rows.is_empty() {
            (empty("No matching skills.", &html! {
                a href=(Section::Skills.address()) { "Show all skills" }
                " or " a href=(NEW) { "add one" } ", so that agents find it with " code { "skills.list" } "."
            }))
        } @else {
            p .count { (format::count(rows.len(), "skill", "skills")) ", by name" }
            (table("Skills, by name", &HEADINGS, &rows))
        }
        nav .pages aria-label="Pages" {
            @if offset > 0 {
                a .button .quiet href=(page_at(offset.saturating_sub(PAGE_SIZE))) { "Previous" }
            }
            @if has_more { a .button .quiet href=(page_at(offset.saturating_add(PAGE_SIZE))) { "Next" } }
        }
    };
    let actions = html! { a .button href=(NEW) { "Add a skill" } };
    Ok(with_actions(&session, Some(Section::Skills), "Skills", &actions, &body))
}

pub(super) async fn new(session: Session, fields: Fields) -> Result<Response, Failure> {
    require_admin(&session)?;
    Ok(new_page(&session, &fields, None))
}

pub(super) async fn add(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    // It must not replace a skill of the same name, which the author may not know.
    let added = console.admin.put_skill(&session.actor, read_form(&fields, Some(0))).await;
    if let Err(error @ (Error::Invalid { .. } | Error::Conflict(_))) = &added {
        return Ok((error.status(), new_page(&session, &fields, Some(error))).into_response());
    }
    flash::redirect_after(&console, Section::Skills.address(), added, |skill| {
        format!("{} added. Agents find it from the next call on.", skill.name)
    })
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let details = console.admin.get_skill(&session.actor, fields.text("id")).await?;
    let present = Fields::default()
        .with("description", details.skill.description.as_str())
        .with("content", details.content.as_str());
    Ok(show_page(&session, &details, &present, None))
}

pub(super) async fn update(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let version = fields.given("version").and_then(|version| version.parse().ok());
    let changed = console.admin.put_skill(&session.actor, read_form(&fields, version)).await;
    if let Err(error @ (Error::Invalid { .. } | Error::Conflict(_))) = &changed {
        let details = console.admin.get_skill(&session.actor, fields.text("id")).await?;
        return Ok((error.status(), show_page(&session, &details, &fields, Some(error))).into_response());
    }
    flash::redirect_after(&console, &page_of(fields.text("id")), changed, |skill| {
        format!("{} changed; it has version {} now.", skill.name, skill.version)
    })
}

pub(super) async fn delete(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let version = fields.given("version").and_then(|version| version.parse().ok());
    let deleted = console.admin.delete_skill(&session.actor, fields.text("id"), version).await;
    flash::redirect_after(&console, Section::Skills.address(), deleted, |skill| {
        format!("{} deleted. Agents no longer find it.", skill.name)
    })
}

fn read_form(fields: &Fields, version: Option<i64>) -> PutSkill {
    // Browsers send every line break as CRLF.
    let lines = |text: &str| text.replace("\r\n", "\n");
    PutSkill {
        name: fields.text("name").to_owned(),
        user_id: fields.owned("user_id"),
        project_id: fields.owned("project_id"),
        description: Some(lines(fields.text("description"))),
        content: lines(fields.exact("content")),
        version,
    }
}

fn page_of(id: &str) -> String {
    address("/console/skills/skill", &[("id", id)])
}

fn row(skill: &Skill) -> Markup {
    let cells_of = [
        html! {
            a href=(page_of(&skill.id)) { (name(&skill.name)) }
            span .sub { bdi { (visible(&skill.description)) } }
        },
        audience(skill),
        html! { span .nowrap { (format::count(skill.size, "byte", "bytes")) } },
        html! {
            (format::timestamp(&skill.updated_at))
            span .sub { "by " (author(&skill.updated_by)) ", version " (skill.version) }
        },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

/// Renders for whom a skill is.
fn audience(skill: &Skill) -> Markup {
    match &skill.scope_id {
        Some(id) => html! { bdi { (visible(id)) } span .sub { (visible(&skill.scope)) } },
        None => html! { "All" },
    }
}

fn texts(filled: FormState<'_>) -> Markup {
    html! {
        (area(
            filled,
            ("description", "description"),
            "Description",
            "When to use it. Agents choose a skill by name and description.",
        ))
        (document(
            filled,
            ("content", "content"),
            "Text",
            "Markdown, 64 KiB at most. It is scanned and refused if it overrides instructions, hides text, \
             runs downloaded code or leaks credentials.",
        ))
    }
}

fn new_page(session: &Session, fields: &Fields, error: Option<&Error>) -> Response {
    let filled = FormState { fields, error };
    let body = html! {
        p .crumbs { a href=(Section::Skills.address()) { "Skills" } " / Add" }
        div .card {
            (filled.alert())
            (form(session, Section::Skills.address(), &[], &html! {
                (input(
                    filled,
                    ("name", "name"),
                    "text",
                    "Name",
                    "Lowercase letters, digits and hyphens, for example release-notes.",
                ))
                div .grid {
                    (input(filled, ("user_id", "user_id"), "text", "User", "Only for this user. Optional."))
                    (input(
                        filled,
                        ("project_id", "project_id"),
                        "text",
                        "Project",
                        "Only for this project. Without user and project the skill is for all.",
                    ))
                }
                (texts(filled))
                button .button type="submit" { "Add the skill" }
            }))
        }
    };
    page(session, Some(Section::Skills), "Add a skill", &body)
}

fn show_page(session: &Session, details: &SkillDetails, fields: &Fields, error: Option<&Error>) -> Response {
    let SkillDetails { skill, content } = details;
    let filled = FormState { fields, error };
    let version = skill.version.to_string();
    let id = skill.scope_id.as_deref().unwrap_or_default();
    let (user, project) = if skill.scope == SkillScope::User.as_str() { (id, "") } else { ("", id) };
    let named = [("id", skill.id.as_str()), ("version", version.as_str())];
    let target =
        [named[0], named[1], ("name", skill.name.as_str()), ("user_id", user), ("project_id", project)];
    let body = html! {
        p .crumbs { a href=(Section::Skills.address()) { "Skills" } " / " (name(&skill.name)) }
        (filled.alert())
        div .card {
            p .described { bdi { (visible(&skill.description)) } }
            dl .facts {
                div { dt { "For" } dd { (audience(skill)) } }
                div { dt { "Version" } dd { (skill.version) } }
                div { dt { "Size" } dd { (format::count(skill.size, "byte", "bytes")) } }
                div {
                    dt { "Changed" }
                    dd { (format::timestamp(&skill.updated_at)) " by " (author(&skill.updated_by)) }
                }
                div { dt { "Added" } dd { (format::timestamp(&skill.created_at)) } }
                @if skill.read_only {
                    div { dt { "State" } dd { (badge(Tone::Plain, "Read-only")) } }
                }
            }
        }
        section {
            h2 { "Text" }
            pre tabindex="0" aria-label="Text" { code { (visible_lines(content)) } }
        }
        @if skill.read_only {
            p .hint { "This skill comes with the gateway and cannot be changed." }
        } @else {
            section {
                h2 { "Change" }
                div .card {
                    (form(session, "/console/skills/skill", &target, &html! {
                        (texts(filled))
                        button .button type="submit" { "Save" }
                    }))
                }
            }
        }
    };
    let delete = confirm(
        "Delete",
        &html! { "Agents no longer find it, and its text is lost. This cannot be undone." },
        &button(session, "/console/skills/delete", &named, "danger small", "Delete this skill"),
    );
    let actions = if skill.read_only {
        html! {}
    } else {
        delete
    };
    with_actions(session, Some(Section::Skills), &skill.name, &actions, &body)
}
