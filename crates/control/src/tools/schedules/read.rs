//! Reads schedules and their runs, and computes when a timing is due.

use contract::schedule::{MAX_FIRINGS, Preview, Previewed, Run, Schedule, ScheduleDetails};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use store::{
    clock,
    entity::{job, schedule, schedule_run},
};
use subjects::Timestamp;

use super::{
    book::ScheduleBook,
    rows::{describe, describe_run, summarize},
};
use crate::{ToolError, arguments::check, queries::lookup::MAX_REFERENCE_BYTES};

const DEFAULT_FIRINGS: u64 = 10;

/// Computes when a timing is due, after `now` unless the request names another instant.
pub fn preview_schedule(preview: &Preview, now: i64) -> Result<Previewed, ToolError> {
    let invalid = |error: timing::Error| ToolError::Invalid(error.to_string());
    let count = preview.count.unwrap_or(DEFAULT_FIRINGS);
    if !(1..=MAX_FIRINGS).contains(&count) {
        return Err(ToolError::Invalid(format!("`count` must be 1 to {MAX_FIRINGS}")));
    }
    let after = match &preview.after {
        Some(text) => {
            let parsed: Result<Timestamp, _> = text.parse();
            clock::micros(parsed.map_err(|error| ToolError::Invalid(error.to_string()))?.at())
        }
        None => now,
    };
    let timing = timing::Timing::parse(&preview.timing, now).map_err(invalid)?;
    let firings = timing.firings(after, usize::try_from(count).unwrap_or(usize::MAX));
    if firings.is_empty() {
        let after = preview.after.as_ref().filter(|_| timing.next_after(now).is_some());
        let why = after.map_or(timing::Error::NeverDue, |after| timing::Error::NoneAfter(after.clone()));
        return Err(invalid(why));
    }
    Ok(Previewed { description: timing.describe(), firings })
}

impl ScheduleBook<'_> {
    /// Returns a schedule with its payload.
    pub async fn get(&self, reference: &str) -> Result<ScheduleDetails, ToolError> {
        describe(self.find(reference).await?)
    }

    /// Lists schedules by name, those of the owner if there is one.
    pub async fn list(&self, offset: u64, limit: u64) -> Result<Vec<Schedule>, ToolError> {
        let mut query = schedule::Entity::find();
        if let Some(owner) = &self.owner {
            query = query.filter(schedule::Column::UserId.eq(owner));
        }
        let query = query.order_by_asc(schedule::Column::Name).order_by_asc(schedule::Column::Id);
        let rows = query.offset(offset).limit(limit).all(self.db).await?;
        rows.into_iter().map(summarize).collect()
    }

    /// Lists the runs of a schedule, the latest first.
    pub async fn runs(&self, reference: &str, offset: u64, limit: u64) -> Result<Vec<Run>, ToolError> {
        let schedule = self.find(reference).await?;
        let rows = schedule_run::Entity::find()
            .filter(schedule_run::Column::ScheduleId.eq(&schedule.id))
            .order_by_desc(schedule_run::Column::Slot)
            .order_by_desc(schedule_run::Column::Id)
            .offset(offset)
            .limit(limit)
            .all(self.db)
            .await?;
        let jobs: Vec<&String> = rows.iter().filter_map(|row| row.job_id.as_ref()).collect();
        let jobs = match jobs.is_empty() {
            true => Vec::new(),
            false => job::Entity::find().filter(job::Column::Id.is_in(jobs)).all(self.db).await?,
        };
        let of_run = |row: schedule_run::Model| {
            let job = jobs.iter().find(|job| Some(&job.id) == row.job_id.as_ref());
            describe_run(row, job)
        };
        rows.into_iter().map(of_run).collect()
    }

    /// Finds a schedule by id or, among those of the owner, by name. One of another user is not found.
    /// Without an owner, a name that several users have is a conflict.
    pub(super) async fn find(&self, reference: &str) -> Result<schedule::Model, ToolError> {
        check::non_blank("schedule", reference, MAX_REFERENCE_BYTES)?;
        let found = schedule::Entity::find_by_id(reference).one(self.db).await?;
        let found = match (&self.owner, found) {
            (None, Some(found)) => Some(found),
            (None, None) => self.find_among_all_users(reference).await?,
            (Some(owner), Some(found)) if found.user_id == *owner => Some(found),
            (Some(owner), _) => {
                let named = schedule::Entity::find()
                    .filter(schedule::Column::UserId.eq(owner))
                    .filter(schedule::Column::Name.eq(reference));
                named.one(self.db).await?
            }
        };
        found.ok_or_else(|| ToolError::not_found("schedule", reference))
    }

    /// Finds the one schedule with a name among those of all users.
    async fn find_among_all_users(&self, name: &str) -> Result<Option<schedule::Model>, ToolError> {
        let named = schedule::Entity::find().filter(schedule::Column::Name.eq(name)).limit(2);
        let mut found = named.all(self.db).await?;
        if found.len() > 1 {
            let why = format!(
                "several users have a schedule {name}; use its id, which the list of a user's schedules has, \
                 or name the user as well"
            );
            return Err(ToolError::Conflict(why));
        }
        Ok(found.pop())
    }
}
