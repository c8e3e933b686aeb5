//! `db.preference.*`: preferences in scopes, their versions and their resolution.

mod administer;
mod effective;
mod read;
mod scope;
mod write;

use contract::preference::{Effective, List, Preference};
use policy::{ADMINISTRATOR, GOVERNING};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, Select};
use serde_json::Value;

pub use self::administer::{AdminPreferenceWriter, PreferenceTarget};
use self::scope::ScopeRef;
pub(crate) use self::{effective::parse_entry, scope::ScopeSet};
use crate::{Entry, ToolError, arguments::check};
use store::{clock, entity::preference};

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<read::Get>(),
        Entry::of::<List>(),
        Entry::of::<Effective>(),
        Entry::of::<write::Create>(),
        Entry::of::<write::Update>(),
        Entry::of::<write::Delete>(),
    ]
}

fn into_preference(row: preference::Model) -> Result<Preference, ToolError> {
    Ok(Preference {
        scope: check::parse_stored("scope of a preference", &row.scope_type)?,
        // A stored value that is not JSON is shown as a string.
        value: serde_json::from_str(&row.value).unwrap_or_else(|_| Value::from(row.value.as_str())),
        key: row.key,
        value_type: row.value_type,
        scope_id: Some(row.scope_id).filter(|id| !id.is_empty()),
        version: row.version,
        updated_at: clock::text(row.updated_at),
        updated_by: row.updated_by,
    })
}

/// Selects the row of a key in a scope, deleted or not.
fn select(scope: &ScopeRef, key: &str) -> Select<preference::Entity> {
    preference::Entity::find()
        .filter(preference::Column::ScopeType.eq(scope.scope_type()))
        .filter(preference::Column::ScopeId.eq(scope.id()))
        .filter(preference::Column::Key.eq(key))
}

/// Returns a condition for what has effect: see [`policy::has_effect`].
fn with_effect() -> Result<Condition, ToolError> {
    let mut governing = Condition::any();
    for key in GOVERNING {
        let below = check::key_prefix(Some(&format!("{key}.")))?;
        governing = governing.add(preference::Column::Key.eq(key));
        governing = governing.add_option(below.map(|below| preference::Column::Key.like(below)));
    }
    let by_administrator = preference::Column::UpdatedBy.starts_with(ADMINISTRATOR);
    Ok(Condition::any().add(governing.not()).add(by_administrator))
}
