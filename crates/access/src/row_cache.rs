//! Keeps rows that were read until the store changes.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use sea_orm::DbErr;
use store::Store;

/// The cache is cleared when it has more entries than this.
const MAX_ENTRIES: usize = 4096;

/// Rows by their key. With PostgreSQL, which other instances can change, nothing is kept.
#[derive(Debug)]
pub(crate) struct RowCache<V>(Mutex<(u64, HashMap<String, V>)>);

impl<V> Default for RowCache<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> RowCache<V> {
    /// Returns the row under a key, or reads it. What is not in the store is not kept.
    pub(crate) async fn get_or_read(
        &self,
        store: &Store,
        key: &str,
        read: impl AsyncFnOnce() -> Result<Option<V>, DbErr>,
    ) -> Result<Option<V>, DbErr> {
        let Some(changes) = store.change_count() else { return read().await };
        {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.0 != changes || known.1.len() > MAX_ENTRIES {
                *known = (changes, HashMap::new());
            }
            if let Some(row) = known.1.get(key) {
                return Ok(Some(row.clone()));
            }
        }
        let found = read().await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A row that was read while the store changed may be outdated.
        if let Some(found) = &found
            && store.change_count() == Some(changes)
            && known.0 == changes
        {
            known.1.insert(key.to_owned(), found.clone());
        }
        Ok(found)
    }
}
