//! Pages of memories: profiles, search, the texts of a profile, one text, delete.

mod found;
mod text;

use std::sync::Arc;

use api::{MemoryFilter, MemoryProfileSize, MemorySearch, MemorySource};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

pub(super) use self::text::{delete, show};
use super::{
    Console, Failure,
    components::{FormState, address, cells, empty, input, name, table, visible},
    form::Fields,
    format,
    page::{Section, page},
    session::Session,
};

const PAGE_SIZE: usize = 50;
const FOUND: u64 = 20;
const PROFILE_HEADINGS: [&str; 3] = ["Profile", "Pieces", "Size"];
const SOURCE_HEADINGS: [&str; 4] = ["Path", "From", "Size", "Changed"];

/// Shows the profiles, or one of them: what a search finds in it, else its texts.
pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let Some(profile) = fields.given("profile") else {
        let profiles = console.admin.list_memory_profiles(&session.actor).await?;
        return Ok(page(&session, Some(Section::Memory), "Memory", &profiles_body(&profiles)));
    };
    let filled = FormState { fields: &fields, error: None };
    let inner = match fields.given("query") {
        Some(query) => {
            let (query, prefix) = (query.to_owned(), fields.owned("prefix"));
            let wanted = MemorySearch { query, prefix, limit: Some(FOUND) };
            let found = console.admin.search_memories(&session.actor, profile, &wanted).await?;
            found::found(profile, &found)
        }
        None => sources(&console, &session, profile, &fields).await?,
    };
    let body = html! {
        p .crumbs { a href=(Section::Memory.address()) { "Memory" } " / " (name(profile)) }
        form .filter method="get" action=(Section::Memory.address()) role="search" {
            input type="hidden" name="profile" value=(profile);
            (input(filled, ("query", "query"), "search", "Search", ""))
            (input(filled, ("prefix", "prefix"), "search", "Path begins with", ""))
            button .button type="submit" { "Search" }
        }
        (inner)
    };
    Ok(page(&session, Some(Section::Memory), "Memory", &body))
}

fn profile_page(profile: &str) -> String {
    address(Section::Memory.address(), &[("profile", profile)])
}

fn text_page(profile: &str, path: &str) -> String {
    address("/console/memory/text", &[("profile", profile), ("path", path)])
}

fn profiles_body(profiles: &[MemoryProfileSize]) -> Markup {
    let row = |it: &MemoryProfileSize| {
        let cells_of = [
            html! { a href=(profile_page(&it.profile)) { (name(&it.profile)) } },
            html! { (format::number(it.chunks)) },
            html! { span .nowrap { (format::number(it.bytes)) " bytes" } },
        ];
        html! { tr role="row" { (cells(&PROFILE_HEADINGS, &cells_of)) } }
    };
    let rows: Vec<Markup> = profiles.iter().map(row).collect();
    html! {
        p .lead {
            "Agents store texts here and search them. A search covers one profile only."
        }
        @if profiles.is_empty() {
            (empty("No memories yet.", &html! {
                "Agents keep some with " code { "memory.put" } ". Fill a profile from a folder: "
                code { "cynodectl memory ingest DIR --profile NAME" }
            }))
        } @else {
            (table("Memory profiles, by name", &PROFILE_HEADINGS, &rows))
        }
    }
}

async fn sources(
    console: &Console,
    session: &Session,
    profile: &str,
    fields: &Fields,
) -> Result<Markup, Failure> {
    let filter = MemoryFilter {
        prefix: fields.owned("prefix"),
        after: fields.owned("after"),
        // One more than the page has, to tell whether it is the last.
        limit: Some(PAGE_SIZE + 1),
    };
    let mut found = console.admin.list_memories(&session.actor, profile, &filter).await?;
    let has_more = found.len() > PAGE_SIZE;
    found.truncate(PAGE_SIZE);
    let rows: Vec<Markup> = found.iter().map(source_row).collect();
    let next = found.last().filter(|_| has_more).map(|last| {
        let kept = [("profile", profile), ("prefix", fields.text("prefix")), ("after", last.path.as_str())];
        address(Section::Memory.address(), &kept)
    });
    Ok(html! {
        @if rows.is_empty() {
            (empty("No matching texts.", &html! {
                a href=(profile_page(profile)) { "Show all texts of this profile" }
            }))
        } @else {
            (table("Texts, by path", &SOURCE_HEADINGS, &rows))
        }
        nav .pages aria-label="Pages" {
            @if fields.given("after").is_some() {
                a .button .quiet href=(profile_page(profile)) { "First page" }
            }
            @if let Some(next) = next { a .button .quiet href=(next) { "Next" } }
        }
    })
}

fn source_row(source: &MemorySource) -> Markup {
    let cells_of = [
        html! {
            a href=(text_page(&source.profile, &source.path)) { (name(&source.path)) }
            @if !source.tags.is_empty() { span .sub { bdi { (visible(&source.tags.join(", "))) } } }
        },
        html! { bdi { (visible(&source.source)) } },
        html! {
            span .nowrap { (format::number(source.bytes)) " bytes" }
            span .sub { (format::number(source.chunks)) " pieces" }
        },
        html! {
            (format::timestamp(&source.updated_at))
            @if let Some(expires) = &source.expires_at { span .sub { "until " (format::timestamp(expires)) } }
        },
    ];
    html! { tr role="row" { (cells(&SOURCE_HEADINGS, &cells_of)) } }
}
