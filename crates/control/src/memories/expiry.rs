//! Deletes expired memories.

use policy::MemoryProfile;
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QuerySelect};
use store::{Store, entity::memory_source as source};

use super::MemoryBook;
use crate::ToolError;

/// Texts of one transaction.
const AT_ONCE: u64 = 100;

/// Deletes the texts that have expired. Searches leave them out before. Returns how many were found.
pub async fn delete_expired_memories(store: &Store, now: i64) -> Result<usize, ToolError> {
    let mut deleted = 0;
    loop {
        let write = store.write().await?;
        let db = DatabaseExecutor::Transaction(&write);
        let expired = source::Entity::find().filter(source::Column::ExpiresAt.lte(now)).limit(AT_ONCE);
        let expired = expired.all(&db).await?;
        for row in &expired {
            let profile: MemoryProfile = row
                .profile
                .parse()
                .map_err(|error| ToolError::Store(sea_orm::DbErr::Type(format!("{error}"))))?;
            MemoryBook::new(&db, &profile, now).delete_expired(&row.path).await?;
        }
        write.commit().await?;
        deleted += expired.len();
        if expired.len() < usize::try_from(AT_ONCE).unwrap_or(usize::MAX) {
            return Ok(deleted);
        }
    }
}
