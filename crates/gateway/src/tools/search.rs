use sea_orm::{
    ColumnTrait, Condition, ExprTrait,
    sea_query::{Expr, Func, LikeExpr},
};

use super::{ToolError, check};

const LONGEST: usize = 200;

/// Rows that have the text in one of their columns, in upper or lower case. A blank text is no wish.
///
/// Databases differ in what they take for the lower case of a letter beyond ASCII, so the text as given is looked for too.
pub(super) fn containing<C: ColumnTrait>(
    text: Option<&str>,
    columns: &[C],
) -> Result<Option<Condition>, ToolError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    check::text("text", text, LONGEST)?;
    let (given, lower) = (pattern(text), pattern(&text.to_lowercase()));
    let condition = columns.iter().fold(Condition::any(), |condition, column| {
        let as_given = column.like(given.clone());
        let in_lower = Expr::expr(Func::lower(Expr::col(column.as_column_ref()))).like(lower.clone());
        condition.add(as_given).add(in_lower)
    });
    Ok(Some(condition))
}

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
