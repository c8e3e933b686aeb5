//! Filters rows by a text that one of their columns contains.

use sea_orm::{
    ColumnTrait, Condition, ExprTrait,
    sea_query::{Expr, Func, LikeExpr},
};

use crate::{ToolError, arguments::check};

const MAX_TEXT_BYTES: usize = 200;

/// Returns a condition for rows that contain the text in one of the columns, ignoring case; `None` for a
/// blank text.
///
/// The databases lowercase letters beyond ASCII differently, so the text is also searched as given.
pub(crate) fn containing<C: ColumnTrait>(
    text: Option<&str>,
    columns: &[C],
) -> Result<Option<Condition>, ToolError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    check::text("text", text, MAX_TEXT_BYTES)?;
    let (given, lower) = (pattern(text), pattern(&text.to_lowercase()));
    let condition = columns.iter().fold(Condition::any(), |condition, column| {
        let as_given = column.like(given.clone());
        let in_lower = Expr::expr(Func::lower(Expr::col(column.as_column_ref()))).like(lower.clone());
        condition.add(as_given).add(in_lower)
    });
    Ok(Some(condition))
}

/// Returns a LIKE pattern for texts that contain `text`.
fn pattern(text: &str) -> LikeExpr {
    const ESCAPE: char = '!';
    let mut out = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | ESCAPE) {
            out.push(ESCAPE);
        }
        out.push(c);
    }
    out.push('%');
    LikeExpr::new(out).escape(ESCAPE)
}
