//! Schedules: users manage their own, administrators those of all, under the same rules as for tools.

use api::{
    DeletedSchedule, NewSchedule, PreviewedSchedule, Schedule, ScheduleChange, ScheduleDetails,
    ScheduleFilter, SchedulePreview, ScheduleRun, ScheduleRunFilter, ScheduleTiming,
};
use control::{ScheduleBook, ToolError, check_schedule_payload, preview_schedule};
use sea_orm::DatabaseExecutor;
use serde_json::json;
use store::clock;

use super::convert_tool_error;
use crate::{Actor, Admin, Error, check};

const DEFAULT_LIMIT: u64 = 100;
const DEFAULT_RUNS: u64 = 50;
const MAX_LIMIT: u64 = 200;

fn convert(error: ToolError) -> Error {
    convert_tool_error("schedule", error)
}

impl Admin {
    /// Lists schedules by name. Users see only their own.
    pub(crate) async fn list_schedules(
        &self,
        actor: &Actor,
        filter: &ScheduleFilter,
    ) -> Result<Vec<Schedule>, Error> {
        let wanted = check::scope_id("user_id", filter.user_id.as_deref())?.map(String::from);
        let owner = match (actor.user(), wanted) {
            (None, wanted) => wanted,
            (Some(user), Some(wanted)) if wanted != user => return Ok(Vec::new()),
            (Some(user), _) => Some(user.to_owned()),
        };
        let db = DatabaseExecutor::from(self.store.read());
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let book = ScheduleBook::new(&db, clock::now(), actor.author(), owner);
        book.list(u64::from(filter.offset.unwrap_or_default()), limit).await.map_err(convert)
    }

    /// Returns a schedule with its payload.
    pub(crate) async fn get_schedule(&self, actor: &Actor, id: &str) -> Result<ScheduleDetails, Error> {
        let db = DatabaseExecutor::from(self.store.read());
        book(&db, actor).get(id).await.map_err(convert)
    }

    /// Lists the runs of a schedule, the latest first.
    pub(crate) async fn list_schedule_runs(
        &self,
        actor: &Actor,
        id: &str,
        filter: &ScheduleRunFilter,
    ) -> Result<Vec<ScheduleRun>, Error> {
        let db = DatabaseExecutor::from(self.store.read());
        let limit = filter.limit.unwrap_or(DEFAULT_RUNS).clamp(1, MAX_LIMIT);
        let offset = u64::from(filter.offset.unwrap_or_default());
        book(&db, actor).runs(id, offset, limit).await.map_err(convert)
    }

    /// Computes when a timing is due, without storing anything.
    pub(crate) fn preview_schedule(
        &self,
        _actor: &Actor,
        preview: &SchedulePreview,
    ) -> Result<PreviewedSchedule, Error> {
        preview_schedule(preview, clock::now()).map_err(|error| convert_tool_error("timing", error))
    }

    /// Creates a schedule. An administrator names the user whose it is.
    pub(crate) async fn create_schedule(
        &self,
        actor: &Actor,
        user: Option<&str>,
        new: NewSchedule,
    ) -> Result<ScheduleDetails, Error> {
        const WHAT: &str = "admin.schedule.create";
        let wanted = check::scope_id("user_id", user)?;
        let own = check::scope_id("user_id", actor.user())?;
        let user = match (own, wanted) {
            (Some(own), Some(wanted)) if own != wanted => {
                return Err(self.refuse(actor, WHAT, "users may have schedules only for themselves").await);
            }
            (Some(own), _) => own,
            (None, Some(wanted)) => wanted,
            (None, None) => {
                return Err(Error::invalid(
                    "user_id",
                    "name the user whose schedule it is; with cynodectl by --user",
                ));
            }
        };
        check_timing(&new.timing)?;
        check_schedule_payload(&new.payload).map_err(|error| convert_tool_error("payload", error))?;
        let open = self.begin(actor, WHAT, &json!({ "user_id": user, "new": new })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let created = book(&db, actor).create(&user, new).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(created)
    }

    /// Changes what is given; `enabled` suspends and resumes. Fails with [`Error::Conflict`] if the schedule
    /// has another version than the expected one.
    pub(crate) async fn change_schedule(
        &self,
        actor: &Actor,
        id: &str,
        change: ScheduleChange,
    ) -> Result<ScheduleDetails, Error> {
        if let Some(timing) = &change.timing {
            check_timing(timing)?;
        }
        if let Some(payload) = &change.payload {
            check_schedule_payload(payload).map_err(|error| convert_tool_error("payload", error))?;
        }
        let about = json!({ "id": id, "change": change });
        let open = self.begin(actor, "admin.schedule.update", &about).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let changed = book(&db, actor).update(id, change).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(changed)
    }

    /// Deletes a schedule and its runs. The work of open runs goes on.
    pub(crate) async fn delete_schedule(
        &self,
        actor: &Actor,
        id: &str,
        version: Option<i64>,
    ) -> Result<DeletedSchedule, Error> {
        let about = json!({ "id": id, "version": version });
        let open = self.begin(actor, "admin.schedule.delete", &about).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let deleted = book(&db, actor).delete(id, version).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(deleted)
    }

    /// Starts a run now. An orchestrator publishes it.
    pub(crate) async fn run_schedule(&self, actor: &Actor, id: &str) -> Result<ScheduleRun, Error> {
        let open = self.begin(actor, "admin.schedule.run", &json!({ "id": id })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let run = book(&db, actor).run_now(id, &self.leases, &self.sandboxes).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(run)
    }
}

/// Returns the book of the schedules that the actor may manage.
fn book<'w>(db: &'w DatabaseExecutor<'w>, actor: &Actor) -> ScheduleBook<'w> {
    ScheduleBook::new(db, clock::now(), actor.author(), actor.user().map(str::to_owned))
}

fn check_timing(timing: &ScheduleTiming) -> Result<(), Error> {
    let preview = SchedulePreview { timing: timing.clone(), count: Some(1), after: None };
    let checked = preview_schedule(&preview, clock::now());
    checked.map(drop).map_err(|error| convert_tool_error("timing", error))
}
