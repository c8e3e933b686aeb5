//! What administrators do with preferences. They alone write those that decide about agents.

use sea_orm::{DatabaseExecutor, QuerySelect};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use super::{
    Place, at,
    write::{Change, Next, Writer, create, put},
};
use crate::{
    store::entity::preference,
    tools::{ToolError, check, value::Kept},
};

/// One preference in one scope.
#[derive(Debug)]
pub(crate) struct Address {
    place: Place,
    key: String,
}

impl Address {
    pub(crate) fn new(scope: PreferenceScope, id: Option<ScopeId>, key: &str) -> Result<Self, ToolError> {
        check::key(key)?;
        Ok(Self { place: Place::new(scope, id)?, key: key.to_owned() })
    }
}

/// A change that an administrator makes, in a transaction of theirs.
#[derive(Debug)]
pub(crate) struct ByAdministrator<'a> {
    pub(crate) db: DatabaseExecutor<'a>,
    /// Microseconds since 1970.
    pub(crate) now: i64,
    pub(crate) author: String,
    /// The version that it must have now; 0 means that it is not set. `None` means any.
    pub(crate) expected: Option<i64>,
}

impl ByAdministrator<'_> {
    pub(crate) async fn set(self, address: Address, value: &Value) -> Result<preference::Model, ToolError> {
        let kept = Kept::new(value, None)?;
        let before = self.current(&address).await?;
        check::version("the preference", self.expected, before.as_ref().map_or(0, |row| row.version))?;
        match before {
            Some(before) => {
                let next = Next { kept: Some(kept), change: Change::Updated, reason: None };
                put(&self.writer(), before, next).await
            }
            None => create(&self.writer(), &address.place, address.key, kept, None).await,
        }
    }

    pub(crate) async fn delete(self, address: Address) -> Result<(), ToolError> {
        let before = self.current(&address).await?;
        let before = before.ok_or_else(|| ToolError::not_found("preference", address.key))?;
        check::version("the preference", self.expected, before.version)?;
        put(&self.writer(), before, Next { kept: None, change: Change::Deleted, reason: None }).await?;
        Ok(())
    }

    async fn current(&self, address: &Address) -> Result<Option<preference::Model>, ToolError> {
        let row = at(&address.place, &address.key).lock_exclusive().one(&self.db).await?;
        Ok(row.filter(|row| !row.deleted))
    }

    fn writer(&self) -> Writer<'_> {
        Writer { db: &self.db, now: self.now, author: self.author.clone() }
    }
}
