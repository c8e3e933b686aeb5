use std::time::Duration;

use sea_orm::EntityTrait;
use serde_json::Value;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::{Actor, Admin, Error};
use crate::{
    audit::{Decision, NotAnnounced, Record, Status, Unrecorded, WasBegun, intent},
    canonical, clock,
    store::{Write, entity::in_flight},
};

/// How long a change may be without its row before another instance takes us for lost.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// A change that is being made. Dropped, nothing of it happened.
///
/// Nothing else may be recorded while one is open: the audit waits for the writer that it holds.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) write: Write,
    record: Record,
}

impl Admin {
    /// `about` is what was asked for; the audit keeps its digest.
    pub(super) async fn begin(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
    ) -> Result<Change, Error> {
        let record = record(actor, what, about);
        self.calls.ledger.accepts()?;
        Ok(Change { write: self.store.write().await?, record })
    }

    /// The change and the word that it happened are one transaction; the row is there before anybody is answered.
    pub(super) async fn commit(&self, change: Change) -> Result<(), Error> {
        let Change { write, mut record } = change;
        let until = clock::micros(time::OffsetDateTime::now_utc() + LOST_AFTER);
        let row = intent(record.clone(), until)?;
        in_flight::Entity::insert(row).exec_without_returning(&*write).await?;
        if let Err(error) = write.commit().await {
            error!(%error, what = record.tool, "Commit failed; the change may have been made.");
            return Err(Error::Unrecorded);
        }
        info!(what = record.tool, by = record.subject, user = record.user_id, "Admin operation completed.");
        record.end(Decision::Allow, Status::Success, None, clock::now());
        Ok(self.calls.ledger.end(record, WasBegun::Yes).await?)
    }

    /// Writes down that somebody tried what they may not do, and says so.
    pub(super) async fn refuse(&self, actor: &Actor, what: &'static str, why: &str) -> Error {
        let mut record = record(actor, what, &Value::Null);
        warn!(what, by = record.subject, user = record.user_id, why, "Admin operation refused.");
        record.end(Decision::Deny, Status::Denied, Some("forbidden"), clock::now());
        match self.calls.ledger.end(record, WasBegun::Not).await {
            Ok(()) => Error::Forbidden(why.to_owned()),
            Err(Unrecorded) => Error::Unavailable,
        }
    }

    /// For what only administrators may do.
    pub(super) async fn admin_only(&self, actor: &Actor, what: &'static str) -> Result<(), Error> {
        if actor.is_admin() {
            return Ok(());
        }
        Err(self.refuse(actor, what, "only an administrator may do this").await)
    }

    /// Does something outside the store. It is announced before and told after: should we end in between, it gets its row
    /// at the next start, and without the store nothing is done.
    pub(super) async fn outside<T>(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
        act: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut record = record(actor, what, about);
        if let Err(why) = self.calls.ledger.begin(record.clone(), LOST_AFTER, None).await {
            if why == NotAnnounced::Unconfirmed {
                record.end(Decision::Deny, Status::Failure, Some("audit_unavailable"), clock::now());
                // Written now or when the store is back.
                if self.calls.ledger.end(record, WasBegun::Yes).await.is_err() {
                    warn!(what, "Store not available; admin operation not started.");
                }
            }
            return Err(Error::Unavailable);
        }
        let done = act.await;
        let (status, why) = match &done {
            Ok(_) => (Status::Success, None),
            Err(error) => (Status::Failure, Some(error.code())),
        };
        info!(what, by = record.subject, user = record.user_id, why, "Admin operation completed.");
        record.end(Decision::Allow, status, why, clock::now());
        self.calls.ledger.end(record, WasBegun::Yes).await?;
        done
    }

    /// Writes down something that was done elsewhere, and how it went.
    pub(super) async fn note(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
        failed: Option<&Error>,
    ) -> Result<(), Error> {
        let mut record = record(actor, what, about);
        let status = if failed.is_some() { Status::Failure } else { Status::Success };
        record.end(Decision::Allow, status, failed.map(Error::code), clock::now());
        Ok(self.calls.ledger.end(record, WasBegun::Not).await?)
    }
}

fn record(actor: &Actor, what: &str, about: &Value) -> Record {
    let id = Uuid::now_v7().to_string();
    let mut record =
        Record::of_administrator(id, clock::now(), actor.kind(), &actor.token_id, actor.user(), what);
    record.arguments_digest = about.as_object().map(canonical::digest);
    record
}
