//! The time that all gateways on a store agree on, whatever their own clocks say.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use sea_orm::{ConnectionTrait, DbErr, Statement};

use crate::{Store, clock};

/// The time of the database server, carried on by the monotonic clock of this process. It is empty with
/// SQLite, which one gateway uses.
#[derive(Debug, Default)]
pub(crate) struct SharedClock(Mutex<Option<(i64, Instant)>>);

impl SharedClock {
    fn now(&self) -> i64 {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((read, at)) => {
                read.saturating_add(i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX))
            }
            None => clock::now(),
        }
    }

    fn set(&self, read: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((read, Instant::now()));
    }
}

impl Store {
    /// Returns the time by which gateways tell whether a call of another one is lost, in microseconds since
    /// 1970: with PostgreSQL that of its server, with SQLite that of this process.
    pub fn shared_now(&self) -> i64 {
        self.shared_clock.now()
    }

    /// Reads the clock of the database server. Call it now and then, since clocks drift and servers change.
    pub async fn read_shared_clock(&self) -> Result<(), DbErr> {
        if !self.is_postgres() {
            return Ok(());
        }
        let connection = self.read();
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let now = Statement::from_string(connection.get_database_backend(), now);
        let row = connection.query_one_raw(now).await?;
        let row = row.ok_or_else(|| DbErr::RecordNotFound("the time of the database server".to_owned()))?;
        self.shared_clock.set(row.try_get_by_index(0)?);
        Ok(())
    }
}
