use maud::{Markup, html};

/// Rows on wide screens, cards on narrow ones. The roles are said because cards look like no table to a browser.
pub(in super::super) fn table(caption: &str, headings: &[&str], rows: &[Markup]) -> Markup {
    table_with(caption, headings, "", rows)
}

/// The same, with an id for its body so that a script can find it.
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

/// The cells of a row; the first names the row.
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
