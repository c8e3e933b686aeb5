//! Names of tasks: readable, made from a title, and unique in their scope.

use std::collections::BTreeSet;

use sea_orm::{ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QuerySelect};

use store::entity::task;

use crate::{ToolError, arguments::check};

const MAX_NAME_BYTES: usize = 64;
/// An attempt fails only when a concurrent call takes the name first, so this many calls may compete for one
/// name.
const MAX_ATTEMPTS: usize = 200;

/// Makes a name from a title, such as `deploy-docs`. Returns `task` if nothing of the title can be used.
pub(crate) fn slug(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase).filter(|c| !is_accent(*c)) {
        let c = if c.is_alphanumeric() { c } else { '-' };
        let doubled = c == '-' && (name.is_empty() || name.ends_with('-'));
        if !doubled && name.len() + c.len_utf8() <= MAX_NAME_BYTES {
            name.push(c);
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "task".to_owned() } else { name.to_owned() }
}

/// Returns the key of the scope in which the name of a task is unique.
pub(crate) fn scope_key(project: Option<&str>, user: Option<&str>) -> String {
    match (project, user) {
        (Some(project), _) => format!("project:{project}"),
        (None, Some(user)) => format!("user:{user}"),
        (None, None) => "system".to_owned(),
    }
}

/// Inserts the task under its name, or under that name with the next free number.
///
/// The unique index decides which of several concurrent calls gets a name; the others try the next number.
/// The insert does nothing on a conflict, since a failed statement would abort the whole transaction on
/// PostgreSQL.
pub(crate) async fn insert(
    db: &DatabaseExecutor<'_>,
    mut row: task::Model,
) -> Result<task::Model, ToolError> {
    let wanted = if check::is_name(&row.name, MAX_NAME_BYTES) { row.name } else { slug(&row.name) };
    for _ in 0..MAX_ATTEMPTS {
        row.name = first_free(&wanted, &taken_names(db, &row.scope_key, &wanted).await?);
        let insert = task::Entity::insert(task::ActiveModel::from(row.clone()))
            .on_conflict_do_nothing_on([task::Column::ScopeKey, task::Column::Name]);
        if check::was_inserted(&insert.exec_without_returning(db).await?) {
            return Ok(row);
        }
    }
    Err(ToolError::Conflict(format!("too many tasks are being called {wanted} at once; try again")))
}

/// Returns the names in a scope that are equal to `wanted`, or begin with it and a hyphen.
async fn taken_names(
    db: &DatabaseExecutor<'_>,
    scope: &str,
    wanted: &str,
) -> Result<BTreeSet<String>, ToolError> {
    // Names contain no character that is special in LIKE.
    let similar = Condition::any()
        .add(task::Column::Name.eq(wanted))
        .add(task::Column::Name.starts_with(format!("{wanted}-")));
    let names = task::Entity::find()
        .select_only()
        .column(task::Column::Name)
        .filter(task::Column::ScopeKey.eq(scope))
        .filter(similar)
        .into_tuple::<String>();
    Ok(names.all(db).await?.into_iter().collect())
}

/// Returns the name, or the name with the lowest free number.
fn first_free(wanted: &str, taken: &BTreeSet<String>) -> String {
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    // One of the first `taken.len() + 1` numbers is free.
    let mut numbered = (2..).map(|number: u64| format!("{wanted}-{number}"));
    numbered.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Returns whether a character is a combining accent, which is left out of names.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_lowercase_words_joined_by_hyphens() {
        for (title, name) in [
            ("Deploy docs", "deploy-docs"),
            ("  Deploy -- the   Docs! ", "deploy-the-docs"),
            ("Écrire les notes", "écrire-les-notes"),
            ("e\u{301}crire", "ecrire"),
            ("v1.2 → v1.3", "v1-2-v1-3"),
            ("!!!", "task"),
            ("", "task"),
        ] {
            assert_eq!(slug(title), name, "{title:?}");
            assert!(check::is_name(&slug(title), MAX_NAME_BYTES));
        }
        assert_eq!(slug(&"word ".repeat(100)).len(), 64);
        assert!(slug(&"é".repeat(100)).len() <= MAX_NAME_BYTES);
    }

    #[test]
    fn a_taken_name_gets_the_lowest_free_number() {
        let taken = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(first_free("a", &taken(&[])), "a");
        assert_eq!(first_free("a", &taken(&["a-2"])), "a");
        assert_eq!(first_free("a", &taken(&["a", "a-2", "a-4", "a-b"])), "a-3");
    }
}
