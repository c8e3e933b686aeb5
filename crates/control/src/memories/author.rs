//! Who changes memories, and which texts may be changed by whom.

use contract::memory::INGESTED;
use sea_orm::{
    ColumnTrait, Condition, ExprTrait,
    sea_query::{Expr, Func, SimpleExpr},
};
use store::entity::memory_source as source;

use crate::ToolError;

/// Who changes memories. Each statement that replaces or deletes a text has the condition for it.
#[derive(Clone, Copy, Debug)]
pub enum MemoryAuthor<'a> {
    /// An agent: changes nothing that was ingested, so that no text of a user can replace it.
    Agent,
    Administrator,
    /// An ingest of a folder whose texts have these sources: changes nothing that was ingested from another,
    /// and deletes only what it ingested.
    Folder(&'a [String]),
    /// Deletes what has expired by a time.
    Expiry(i64),
}

impl MemoryAuthor<'_> {
    /// Returns the condition for texts that may be replaced.
    pub(super) fn may_replace(self) -> Condition {
        match self {
            Self::Agent => is_ingested().not(),
            Self::Administrator => Condition::all(),
            Self::Folder(sources) => Condition::any().add(is_ingested().not()).add(is_of(sources)),
            Self::Expiry(now) => Condition::all().add(source::Column::ExpiresAt.lte(now)),
        }
    }

    /// Returns the condition for texts that may be deleted.
    pub(super) fn may_delete(self) -> Condition {
        match self {
            Self::Folder(sources) => Condition::all().add(is_of(sources)),
            other => other.may_replace(),
        }
    }

    /// Fails if a text may not be replaced by this author.
    pub(super) fn check(self, before: &source::Model) -> Result<(), ToolError> {
        let is_ingested = before.source.starts_with(INGESTED);
        match self {
            Self::Agent if is_ingested => {
                Err(ToolError::ReadOnly(format!("{} was ingested by an administrator and", before.path)))
            }
            Self::Folder(sources) if is_ingested && !sources.contains(&before.source) => {
                Err(of_another(&before.path))
            }
            _ => Ok(()),
        }
    }
}

/// Texts that were ingested. `LIKE` would not be the same in both databases.
pub(super) fn is_ingested() -> Condition {
    Condition::all().add(begins_with(source::Column::Source, INGESTED))
}

pub(super) fn begins_with(column: source::Column, prefix: &str) -> SimpleExpr {
    let length = i32::try_from(prefix.chars().count()).unwrap_or(i32::MAX);
    let first = Func::cust("substr").arg(Expr::col(column)).arg(1).arg(length);
    Expr::expr(first).eq(prefix)
}

pub(super) fn is_of(sources: &[String]) -> SimpleExpr {
    source::Column::Source.is_in(sources.iter().map(String::as_str))
}

pub(super) fn of_another(path: &str) -> ToolError {
    ToolError::Conflict(format!("{path} was ingested from another folder"))
}
