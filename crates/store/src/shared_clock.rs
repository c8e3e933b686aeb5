//! The time that all gateways on a store agree on, whatever their own clocks say.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr, Statement};

use crate::clock;

/// The time of the database server, carried on by the monotonic clock of this process. It is empty with
/// SQLite, which one gateway uses.
#[derive(Debug, Default)]
pub(crate) struct SharedClock(Mutex<Option<(i64, Instant)>>);

impl SharedClock {
    pub(crate) fn now(&self) -> i64 {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((read, at)) => {
                read.saturating_add(i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX))
            }
            None => clock::now(),
        }
    }

    /// Reads the clock of the database server.
    pub(crate) async fn read(&self, connection: &DatabaseConnection) -> Result<(), DbErr> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let now = Statement::from_string(connection.get_database_backend(), now);
        let row = connection.query_one_raw(now).await?;
        let row = row.ok_or_else(|| DbErr::RecordNotFound("the time of the database server".to_owned()))?;
        let read = row.try_get_by_index(0)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((read, Instant::now()));
        Ok(())
    }
}
