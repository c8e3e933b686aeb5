use std::collections::BTreeSet;

use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QuerySelect};

use crate::{
    store::entity::task,
    tools::{Context, ToolError, check},
};

const LONGEST: usize = 64;
/// Each time somebody else was faster, so many may begin at once with the same name.
const TRIES: usize = 200;

/// A name as people would say it: `deploy-docs`.
pub(super) fn slug(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase).filter(|c| !is_accent(*c)) {
        let c = if c.is_alphanumeric() { c } else { '-' };
        let doubled = c == '-' && (name.is_empty() || name.ends_with('-'));
        if !doubled && name.len() + c.len_utf8() <= LONGEST {
            name.push(c);
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "task".to_owned() } else { name.to_owned() }
}

/// Where a name has to be unique.
pub(super) fn scope(project: Option<&str>, user: Option<&str>) -> String {
    match (project, user) {
        (Some(project), _) => format!("project:{project}"),
        (None, Some(user)) => format!("user:{user}"),
        (None, None) => "system".to_owned(),
    }
}

/// Inserts the task under its name, or under that name with the next free number.
///
/// The unique index decides who has a name. Whoever loses looks again: a statement that fails would end the whole
/// transaction on PostgreSQL, so the insert gives way instead of failing.
pub(super) async fn insert(context: &Context<'_>, mut row: task::Model) -> Result<task::Model, ToolError> {
    let wanted = if check::is_name(&row.name, LONGEST) { row.name } else { slug(&row.name) };
    for _ in 0..TRIES {
        row.name = free(&wanted, &taken(context, &row.scope_key, &wanted).await?);
        let insert = task::Entity::insert(task::ActiveModel::from(row.clone()))
            .on_conflict_do_nothing_on([task::Column::ScopeKey, task::Column::Name]);
        if check::is_in(&insert.exec_without_returning(&context.db).await?) {
            return Ok(row);
        }
    }
    Err(ToolError::Conflict(format!("too many tasks are being called {wanted} at once; try again")))
}

async fn taken(context: &Context<'_>, scope: &str, wanted: &str) -> Result<BTreeSet<String>, ToolError> {
    // Nothing in a name means anything to LIKE.
    let alike = Condition::any()
        .add(task::Column::Name.eq(wanted))
        .add(task::Column::Name.starts_with(format!("{wanted}-")));
    let names = task::Entity::find()
        .select_only()
        .column(task::Column::Name)
        .filter(task::Column::ScopeKey.eq(scope))
        .filter(alike)
        .into_tuple::<String>();
    Ok(names.all(&context.db).await?.into_iter().collect())
}

fn free(wanted: &str, taken: &BTreeSet<String>) -> String {
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    // One of the first `taken + 1` numbers is free.
    let mut numbered = (2..).map(|number: u64| format!("{wanted}-{number}"));
    numbered.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// An accent that stands by itself: with or without it, it is the same word.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_people_would_say() {
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
            assert!(check::is_name(&slug(title), LONGEST));
        }
        assert_eq!(slug(&"word ".repeat(100)).len(), 64);
        assert!(slug(&"é".repeat(100)).len() <= LONGEST);
    }

    #[test]
    fn the_next_free_number_is_taken() {
        let taken = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(free("a", &taken(&[])), "a");
        assert_eq!(free("a", &taken(&["a-2"])), "a");
        assert_eq!(free("a", &taken(&["a", "a-2", "a-4", "a-b"])), "a-3");
    }
}
