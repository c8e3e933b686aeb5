//! What a search finds in a profile.

use api::FoundMemory;
use maud::{Markup, html};

use super::{profile_page, text_page};
use crate::console::{
    components::{empty, name, visible, visible_lines},
    format,
};

/// Renders the pieces that were found, best first.
pub(super) fn found(profile: &str, memories: &[FoundMemory]) -> Markup {
    if memories.is_empty() {
        return empty(
            "Nothing was found.",
            &html! { a href=(profile_page(profile)) { "Show all texts of this profile" } },
        );
    }
    html! {
        p .count { (format::count(memories.len(), "piece", "pieces")) ", best first" }
        @for memory in memories { (piece(profile, memory)) }
    }
}

fn piece(profile: &str, memory: &FoundMemory) -> Markup {
    html! {
        section .card {
            p .parts {
                a href=(text_page(profile, &memory.path)) { (name(&memory.path)) }
                span { "lines " (memory.first_line) " to " (memory.last_line) }
                span { "score " (format!("{:.3}", memory.score)) }
                span { "from " bdi { (visible(&memory.source)) } }
            }
            pre tabindex="0" aria-label="Text" { code { (visible_lines(&memory.text)) } }
        }
    }
}
