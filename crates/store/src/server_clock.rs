//! Reads the clock of the database server.

use std::time::{Duration, Instant};

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr, Statement, TransactionTrait};
use tracing::warn;

use crate::clock;

/// An answer that took longer tells the time too roughly: nodes count as away after 15 s.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);
const TRIES: u32 = 3;

/// A time of the server, in microseconds since 1970, and when it was asked for and told.
#[derive(Clone, Copy, Debug)]
struct Reading {
    time: i64,
    asked: Instant,
    answered: Instant,
}

impl Reading {
    fn round_trip(&self) -> Duration {
        self.answered.saturating_duration_since(self.asked)
    }
}

/// Sets [`clock::now`] to the time of the server. If the server answers too slowly to tell it, the time stays
/// that of the last reading; the first one is taken as it is.
pub(crate) async fn follow(connection: &DatabaseConnection) -> Result<(), DbErr> {
    // On one open connection, so that a round trip is all that passes between question and answer.
    let open = connection.begin().await?;
    let mut best: Option<Reading> = None;
    for _ in 0..TRIES {
        let reading = read(&open).await?;
        if best.is_none_or(|best| reading.round_trip() < best.round_trip()) {
            best = Some(reading);
        }
        if reading.round_trip() <= MAX_ROUND_TRIP {
            break;
        }
    }
    open.rollback().await?;
    let Some(reading) = best else { return Ok(()) };
    if reading.round_trip() <= MAX_ROUND_TRIP || !clock::follows_server() {
        clock::follow(reading.time, reading.asked, reading.answered);
    } else {
        let round_trip = reading.round_trip();
        warn!(?round_trip, "Clock of the database server not read; retrying in a minute.");
    }
    Ok(())
}

async fn read(connection: &impl ConnectionTrait) -> Result<Reading, DbErr> {
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let now = Statement::from_string(connection.get_database_backend(), now);
    let asked = Instant::now();
    let row = connection.query_one_raw(now).await?;
    let answered = Instant::now();
    let row = row.ok_or_else(|| DbErr::RecordNotFound("the time of the database server".to_owned()))?;
    Ok(Reading { time: row.try_get_by_index(0)?, asked, answered })
}
