//! The rules for people: who may have which schedules, and how they are changed. Tools and administrators
//! change schedules through [`ScheduleBook`] alone.

use contract::schedule::{
    Change, Concurrency, DEFAULT_CATCH_UP, DEFAULT_TIMEOUT_SECONDS, Deleted, MAX_CATCH_UP, MAX_NAME_BYTES,
    MAX_SCHEDULES_PER_USER, MAX_TIMEOUT_SECONDS, NewSchedule, Run, RunState, ScheduleDetails, Timing,
    Trigger,
};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, PaginatorTrait,
    QueryFilter, QuerySelect, QueryTrait,
};
use store::entity::{project, schedule, schedule_run};
use subjects::ScopeId;
use uuid::Uuid;

use super::{
    check_payload,
    fire::prune,
    give_up::{GiveUp, open_runs},
    rows::{concurrency_of, describe, describe_run},
    start::{Start, start},
};
use crate::{
    LeaseIssuer, Sandboxes, ToolError,
    arguments::{characters::is_hidden, check},
};

/// Reads and changes schedules within a transaction.
#[derive(Debug)]
pub struct ScheduleBook<'w> {
    pub(super) db: &'w DatabaseExecutor<'w>,
    /// Microseconds since 1970.
    now: i64,
    author: String,
    /// The user whose schedules the author may see and change; `None` for those of all users.
    pub(super) owner: Option<String>,
}

impl<'w> ScheduleBook<'w> {
    pub fn new(db: &'w DatabaseExecutor<'w>, now: i64, author: String, owner: Option<String>) -> Self {
        Self { db, now, author, owner }
    }

    /// Creates a schedule of a user.
    pub async fn create(&self, user: &ScopeId, new: NewSchedule) -> Result<ScheduleDetails, ToolError> {
        check_name(&new.name)?;
        let payload = check_payload::to_json(&new.payload)?;
        let (timing, next) = self.check_timing(&new.timing, self.now)?;
        self.check_project(user, new.project_id.as_ref()).await?;
        let own = schedule::Entity::find().filter(schedule::Column::UserId.eq(user.as_str()));
        if own.count(self.db).await? >= MAX_SCHEDULES_PER_USER {
            let why =
                format!("{user} has {MAX_SCHEDULES_PER_USER} schedules, which is the limit; delete one");
            return Err(ToolError::Conflict(why));
        }
        let row = schedule::Model {
            id: Uuid::now_v7().to_string(),
            user_id: user.to_string(),
            project_id: new.project_id.map(String::from),
            name: new.name,
            timing,
            payload,
            enabled: new.enabled.unwrap_or(true),
            missed: new.missed.unwrap_or_default().as_str().to_owned(),
            missed_limit: check_limit(new.missed_limit.unwrap_or(DEFAULT_CATCH_UP))?,
            concurrency: new.concurrency.unwrap_or_default().as_str().to_owned(),
            timeout_seconds: check_timeout(new.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS))?,
            next_at: Some(next),
            last_slot: None,
            version: 1,
            created_at: self.now,
            updated_at: self.now,
            updated_by: self.author.clone(),
        };
        let insert = schedule::Entity::insert(schedule::ActiveModel::from(row.clone()))
            .on_conflict_do_nothing_on([schedule::Column::UserId, schedule::Column::Name]);
        if !check::was_inserted(&insert.exec_without_returning(self.db).await?) {
            return Err(exists(&row.name));
        }
        describe(row)
    }

    /// Changes what is given. A schedule that is resumed decides about the slots that were due meanwhile; a
    /// new timing drops them.
    pub async fn update(&self, reference: &str, change: Change) -> Result<ScheduleDetails, ToolError> {
        let row = self.lock(reference, change.expected_version).await?;
        let asked = Change { expected_version: None, ..change };
        if asked == Change::default() {
            return Err(ToolError::Invalid("nothing to change is given".to_owned()));
        }
        let (last_slot, version) = (row.last_slot, row.version + 1);
        let mut changed = schedule::ActiveModel::from(row.clone());
        if let Some(name) = asked.name.filter(|name| *name != row.name) {
            check_name(&name)?;
            let same = schedule::Entity::find()
                .filter(schedule::Column::UserId.eq(&row.user_id))
                .filter(schedule::Column::Name.eq(&name));
            if same.one(self.db).await?.is_some() {
                return Err(exists(&name));
            }
            changed.name = Set(name);
        }
        if let Some(timing) = &asked.timing {
            // Not before the last slot, in case the clock was set back: no slot fires twice.
            let (timing, next) = self.check_timing(timing, last_slot.unwrap_or(self.now).max(self.now))?;
            changed.timing = Set(timing);
            changed.next_at = Set(Some(next));
        }
        if let Some(payload) = &asked.payload {
            changed.payload = Set(check_payload::to_json(payload)?);
        }
        if let Some(enabled) = asked.enabled {
            changed.enabled = Set(enabled);
        }
        if let Some(missed) = asked.missed {
            changed.missed = Set(missed.as_str().to_owned());
        }
        if let Some(limit) = asked.missed_limit {
            changed.missed_limit = Set(check_limit(limit)?);
        }
        if let Some(concurrency) = asked.concurrency {
            changed.concurrency = Set(concurrency.as_str().to_owned());
        }
        if let Some(seconds) = asked.timeout_seconds {
            changed.timeout_seconds = Set(check_timeout(seconds)?);
        }
        changed.version = Set(version);
        changed.updated_at = Set(self.now);
        changed.updated_by = Set(self.author.clone());
        describe(changed.update(self.db).await?)
    }

    /// Deletes a schedule and its runs. The work of open runs goes on.
    pub async fn delete(&self, reference: &str, expected: Option<i64>) -> Result<Deleted, ToolError> {
        let row = self.lock(reference, expected).await?;
        let open = open_runs(self.db, &row.id).await?;
        let handoffs = open.iter().filter(|run| run.job_id.is_none());
        let open_runs = handoffs.map(super::rows::run_id_of).collect::<Result<Vec<_>, _>>()?;
        schedule::Entity::delete_by_id(&row.id).exec(self.db).await?;
        // Runs that are not published or cancelled yet stay until that is done. They are deleted with the
        // user's next schedule.
        let schedules = schedule::Entity::find().select_only().column(schedule::Column::Id).into_query();
        schedule_run::Entity::delete_many()
            .filter(schedule_run::Column::UserId.eq(&row.user_id))
            .filter(schedule_run::Column::ScheduleId.not_in_subquery(schedules))
            .filter(schedule_run::Column::State.ne(RunState::Pending.as_str()))
            .filter(schedule_run::Column::CancelDueAt.is_null())
            .exec(self.db)
            .await?;
        Ok(Deleted { schedule_id: row.id, name: row.name, open_runs })
    }

    /// Starts a run now, also of a suspended schedule, and deletes old ones. Revokes the leases of runs that
    /// are replaced. Fails with a conflict if a run is open and the schedule has one at a time.
    pub async fn run_now(
        &self,
        reference: &str,
        leases: &LeaseIssuer,
        sandboxes: &Sandboxes,
    ) -> Result<Run, ToolError> {
        let row = self.lock(reference, None).await?;
        let open = open_runs(self.db, &row.id).await?;
        match concurrency_of(&row)? {
            Concurrency::Allow => {}
            Concurrency::Forbid if open.is_empty() => {}
            Concurrency::Forbid => {
                let why = format!("a run of {} is open, and its concurrency is forbid", row.name);
                return Err(ToolError::Conflict(why));
            }
            Concurrency::Replace => {
                let give_up = GiveUp { db: self.db, leases, sandboxes, now: self.now, by: &self.author };
                for run in &open {
                    give_up.run(run, RunState::Replaced).await?;
                }
            }
        }
        let manual = Start { slot: self.now, trigger: Trigger::Manual, now: self.now, is_claimed: false };
        let started = start(self.db, &row, manual).await?;
        let started =
            started.ok_or_else(|| ToolError::Conflict(format!("{} was started just now", row.name)))?;
        prune(self.db, &row.id).await?;
        describe_run(started, None)
    }

    /// Finds a schedule and locks it until the transaction ends.
    async fn lock(&self, reference: &str, expected: Option<i64>) -> Result<schedule::Model, ToolError> {
        let found = self.find(reference).await?;
        let locked = schedule::Entity::find_by_id(&found.id).lock_exclusive().one(self.db).await?;
        let row = locked.ok_or_else(|| ToolError::not_found("schedule", reference))?;
        check::version("the schedule", expected, row.version)?;
        Ok(row)
    }

    /// Checks a timing. Returns the JSON that is stored and the first slot after an instant.
    fn check_timing(&self, given: &Timing, after: i64) -> Result<(String, i64), ToolError> {
        let invalid = |error: timing::Error| ToolError::Invalid(error.to_string());
        let timing = timing::Timing::parse(given, self.now).map_err(invalid)?;
        let next = timing.next_after(after).ok_or_else(|| invalid(timing::Error::NeverDue))?;
        Ok((subjects::encode_json_text(&timing.to_contract()), next))
    }

    /// Fails unless a project exists and is the user's or has no owner.
    async fn check_project(&self, user: &ScopeId, project: Option<&ScopeId>) -> Result<(), ToolError> {
        let Some(id) = project else { return Ok(()) };
        let found = project::Entity::find_by_id(id.as_str()).one(self.db).await?;
        let is_own = |row: &project::Model| row.user_id.as_ref().is_none_or(|owner| owner == user.as_str());
        found.filter(is_own).ok_or_else(|| ToolError::not_found("project", id.as_str()))?;
        Ok(())
    }
}

fn exists(name: &str) -> ToolError {
    ToolError::Conflict(format!("there is a schedule {name} already"))
}

fn check_name(name: &str) -> Result<(), ToolError> {
    check::non_blank("name", name, MAX_NAME_BYTES)?;
    if name.trim() != name || name.chars().any(|c| c.is_control() || is_hidden(c)) {
        let why = "a name is one line without hidden characters, and without spaces around it";
        return Err(ToolError::Invalid(why.to_owned()));
    }
    check_payload::refuse_secret("name", name)
}

fn check_limit(limit: u32) -> Result<i64, ToolError> {
    if (1..=MAX_CATCH_UP).contains(&limit) {
        return Ok(limit.into());
    }
    Err(ToolError::Invalid(format!("`missed_limit` must be 1 to {MAX_CATCH_UP}")))
}

fn check_timeout(seconds: u64) -> Result<i64, ToolError> {
    match i64::try_from(seconds) {
        Ok(fits) if (1..=MAX_TIMEOUT_SECONDS).contains(&seconds) => Ok(fits),
        _ => Err(ToolError::Invalid(format!("`timeout_seconds` must be 1 to {MAX_TIMEOUT_SECONDS}"))),
    }
}
