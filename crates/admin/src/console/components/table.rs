//! Tables: rows on wide screens, cards on narrow ones.

use maud::{Markup, html};

/// Renders a table. Roles are explicit because browsers drop table semantics when CSS shows the rows as
/// cards.
pub(in super::super) fn table(caption: &str, headings: &[&str], rows: &[Markup]) -> Markup {
    table_with(caption, headings, "", rows)
}

/// Like [`table`], with an id for the body, by which the script finds it.
pub(in super::super) fn table_with(caption: &str, headings: &[&str], id: &str, rows: &[Markup]) -> Markup {
    html! {
        table .cards role="table" {
            caption { (caption) }
            thead role="rowgroup" {
                tr role="row" {
                    @for heading in headings {
                        th scope="col" role="columnheader" {
                            @if heading.is_empty() { span .unseen { "Actions" } } @else { (heading) }
                        }
                    }
                }
            }
            tbody role="rowgroup" id=[(!id.is_empty()).then_some(id)] { @for row in rows { (row) } }
        }
    }
}

/// Renders the cells of a row; the first one is the row header.
pub(in super::super) fn cells(headings: &[&str], cells: &[Markup]) -> Markup {
    html! {
        @for (at, (heading, cell)) in headings.iter().zip(cells).enumerate() {
            @if at == 0 {
                th scope="row" role="rowheader" { (cell) }
            } @else if heading.is_empty() {
                td .does role="cell" { (cell) }
            } @else {
                td role="cell" data-label=(heading) { (cell) }
            }
        }
    }
}
