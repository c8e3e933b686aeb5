//! Why tools were offered to the model.

use maud::{Markup, html};

use crate::{
    console::components::{cells, name, table, visible},
    operations::OfferedTool,
};

const HEADINGS: [&str; 3] = ["Tool", "Offered for", "Called"];

/// Renders the tools that were offered, best match first; nothing if there were none.
pub(super) fn offered(tools: &[OfferedTool]) -> Markup {
    if tools.is_empty() {
        return html! {};
    }
    let rows: Vec<Markup> = tools.iter().map(row).collect();
    html! {
        section {
            h2 { "Tools offered" }
            p .hint {
                "The model is offered the tools that match the request best. "
                "All others that the policy allows are in " code { "help.list" } "."
            }
            (table("Tools that were offered to the model, best match first", &HEADINGS, &rows))
        }
    }
}

fn row(tool: &OfferedTool) -> Markup {
    let words: Vec<String> = tool.words.iter().map(|word| format!("“{}”", visible(word))).collect();
    let why = html! {
        @if words.is_empty() { "similar to the request, or a default" } @else { bdi { (words.join(", ")) } }
    };
    let calls = html! {
        @match tool.calls { 0 => { "no" } 1 => { "once" } several => { (several) " times" } }
    };
    html! { tr role="row" { (cells(&HEADINGS, &[name(&tool.name), why, calls])) } }
}
