//! Changes and their audit rows: a change to the store commits together with its intent row, so that no
//! change is unrecorded.

use std::time::Duration;

use sea_orm::EntityTrait;
use serde_json::Value;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::{Actor, Admin, Error};
use audit::{Announcement, BeginError, Decision, Record, Status, Unrecorded, in_flight_row};
use registry::canonical;
use store::{WriteTransaction, clock, entity::in_flight};

/// After this time, another instance treats an intent without an audit row as abandoned.
const INTENT_TIMEOUT: Duration = Duration::from_secs(60);

/// An open change: a write transaction and the record of it. Dropping it rolls the change back.
///
/// Record nothing else while one is open: it holds the store's writer, which the audit would wait for.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) write: WriteTransaction,
    record: Record,
}

impl Admin {
    /// Opens a change. `about` holds the request; the audit row keeps only its digest.
    ///
    /// Fails with [`Error::Unavailable`] if the audit accepts no rows or the store does not respond.
    pub(super) async fn begin(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
    ) -> Result<Change, Error> {
        let record = record(actor, what, about);
        self.ledger.ensure_accepting()?;
        Ok(Change { write: self.store.write().await?, record })
    }

    /// Commits the change and its intent in one transaction, then writes the audit row before it returns.
    ///
    /// Fails with [`Error::Unrecorded`] if the outcome of the commit is unknown.
    pub(super) async fn commit(&self, change: Change) -> Result<(), Error> {
        let Change { write, mut record } = change;
        let timeout = i64::try_from(INTENT_TIMEOUT.as_micros()).unwrap_or(i64::MAX);
        let until = clock::now().saturating_add(timeout);
        let row = in_flight_row(record.clone(), until)?;
        in_flight::Entity::insert(row).exec_without_returning(&*write).await?;
        if let Err(error) = write.commit().await {
            error!(%error, what = record.tool, "Commit failed; the change may have been made.");
            return Err(Error::Unrecorded);
        }
        info!(what = record.tool, by = record.subject, user = record.user_id, "Admin operation completed.");
        record.end(Decision::Allow, Status::Success, None, clock::now());
        Ok(self.ledger.end(record, Announcement::Made).await?)
    }

    /// Records a denied operation and returns the error for the client.
    pub(super) async fn refuse(&self, actor: &Actor, what: &'static str, why: &str) -> Error {
        let mut record = record(actor, what, &Value::Null);
        warn!(what, by = record.subject, user = record.user_id, why, "Admin operation refused.");
        record.end(Decision::Deny, Status::Denied, Some("forbidden"), clock::now());
        match self.ledger.end(record, Announcement::None).await {
            Ok(()) => Error::Forbidden(why.to_owned()),
            Err(Unrecorded) => Error::Unavailable,
        }
    }

    /// Refuses the operation, with an audit row, unless the actor is an administrator.
    pub(super) async fn require_admin(&self, actor: &Actor, what: &'static str) -> Result<(), Error> {
        if actor.is_admin() {
            return Ok(());
        }
        Err(self.refuse(actor, what, "only an administrator may do this").await)
    }

    /// Runs an operation outside the store, such as in NATS. An intent is written before and the audit row
    /// after it: if the gateway stops in between, the row is written at the next start. Without the store
    /// nothing is run.
    pub(super) async fn run_external<T>(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
        act: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut record = record(actor, what, about);
        if let Err(why) = self.ledger.begin(record.clone(), INTENT_TIMEOUT, None).await {
            if why == BeginError::Unconfirmed {
                record.end(Decision::Deny, Status::Failure, Some("audit_unavailable"), clock::now());
                // The intent may be in the store; its row is written now or when the store is back.
                if self.ledger.end(record, Announcement::Made).await.is_err() {
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
        self.ledger.end(record, Announcement::Made).await?;
        done
    }

    /// Records an operation that has already run, and whether it failed.
    pub(super) async fn record_outcome(
        &self,
        actor: &Actor,
        what: &'static str,
        about: &Value,
        failed: Option<&Error>,
    ) -> Result<(), Error> {
        let mut record = record(actor, what, about);
        let status = if failed.is_some() { Status::Failure } else { Status::Success };
        record.end(Decision::Allow, status, failed.map(Error::code), clock::now());
        Ok(self.ledger.end(record, Announcement::None).await?)
    }
}

fn record(actor: &Actor, what: &str, about: &Value) -> Record {
    let id = Uuid::now_v7().to_string();
    let mut record =
        Record::of_administrator(id, clock::now(), actor.kind(), &actor.token_id, actor.user(), what);
    record.arguments_digest = about.as_object().map(canonical::digest);
    record
}
