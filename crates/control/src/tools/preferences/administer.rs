//! Changes that administrators make to preferences. Only they may change governing keys.

use sea_orm::{DatabaseExecutor, QuerySelect};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use super::{
    ScopeRef, select,
    write::{Change, NewVersion, Writer, create, write_version},
};
use store::entity::preference;

use crate::{
    ToolError,
    arguments::{check, value::StoredValue},
    profiles,
};

/// A key in a scope.
#[derive(Debug)]
pub struct PreferenceTarget {
    scope: ScopeRef,
    key: String,
}

impl PreferenceTarget {
    pub fn new(scope: PreferenceScope, id: Option<ScopeId>, key: &str) -> Result<Self, ToolError> {
        check::key(key)?;
        Ok(Self { scope: ScopeRef::new(scope, id)?, key: key.to_owned() })
    }
}

/// Changes preferences for an administrator, within the administrator's transaction.
#[derive(Debug)]
pub struct AdminPreferenceWriter<'a> {
    pub db: DatabaseExecutor<'a>,
    /// Microseconds since 1970.
    pub now: i64,
    pub author: String,
    /// The version that the preference must have now; 0 if it must not be set, `None` for any.
    pub expected: Option<i64>,
}

impl AdminPreferenceWriter<'_> {
    /// Creates or updates a preference. Fails with a conflict unless it has the expected version.
    pub async fn set(self, target: PreferenceTarget, value: &Value) -> Result<preference::Model, ToolError> {
        profiles::check_preference(target.scope.scope_type(), &target.key, value)?;
        let stored = StoredValue::new(value, None)?;
        let before = self.lock(&target).await?;
        check::version("the preference", self.expected, before.as_ref().map_or(0, |row| row.version))?;
        match before {
            Some(before) => {
                let new = NewVersion { value: Some(stored), change: Change::Updated, reason: None };
                write_version(&self.writer(), before, new).await
            }
            None => create(&self.writer(), &target.scope, target.key, stored, None).await,
        }
    }

    /// Deletes a preference. Fails if it is not set or does not have the expected version.
    pub async fn delete(self, target: PreferenceTarget) -> Result<(), ToolError> {
        let before = self.lock(&target).await?;
        let before = before.ok_or_else(|| ToolError::not_found("preference", target.key))?;
        check::version("the preference", self.expected, before.version)?;
        let new = NewVersion { value: None, change: Change::Deleted, reason: None };
        write_version(&self.writer(), before, new).await?;
        Ok(())
    }

    /// Locks the present version until the transaction ends; `None` if the preference is not set.
    async fn lock(&self, target: &PreferenceTarget) -> Result<Option<preference::Model>, ToolError> {
        let row = select(&target.scope, &target.key).lock_exclusive().one(&self.db).await?;
        Ok(row.filter(|row| !row.deleted))
    }

    fn writer(&self) -> Writer<'_> {
        Writer { db: &self.db, now: self.now, author: self.author.clone() }
    }
}
