//! Ends jobs that waited too long for a node.

use contract::sandbox::JobStatus;
use sea_orm::{DatabaseExecutor, EntityTrait};
use store::{
    SendIf,
    entity::{job, node},
};
use subjects::job::End;

use super::{Sandboxes, cancel, place, view};
use crate::{ToolError, known_node::away_before};

const SECOND_US: i64 = 1_000_000;

/// Ends a job for which there was no node for longer than `seconds`: one that no node took, and one whose
/// node is away and that no other node took. Adds its result to the transaction, under the condition that
/// no node has taken the job meanwhile: it then never runs. The row follows when the result is in the job's
/// chain.
pub(crate) async fn end_if_overdue(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: &job::Model,
    seconds: u32,
    now: i64,
) -> Result<(), ToolError> {
    let is_overdue = |since: i64| now.saturating_sub(since) >= i64::from(seconds).saturating_mul(SECOND_US);
    match view::status_of(row)? {
        // Counted anew when a node hands it back.
        JobStatus::Queued if is_overdue(row.updated_at) => {
            let why = place::why_waiting(db, row, now).await?;
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let end = End::EngineFailed { why: format!("no node took it within {seconds} s{why}") };
            cancel::end(db, sandboxes, row, end, SendIf::Unclaimed).await
        }
        JobStatus::Running => {
            let id = row.node_id.as_deref().unwrap_or_default();
            let node = node::Entity::find_by_id(id).one(db).await?;
            // What the node last wrote about the job is a sign of life, too.
            let seen_at = node.map_or(row.updated_at, |node| node.seen_at.max(row.updated_at));
            let is_silent = seen_at < away_before(now) && is_overdue(seen_at);
            if !sandboxes.silent.confirms(&row.id, is_silent) {
                return Ok(());
            }
            let why = format!("node {id} has not reported for {seconds} s, and no other node took the job");
            cancel::end(db, sandboxes, row, End::NodeLost { why: Some(why) }, SendIf::Unended).await
        }
        JobStatus::Queued | JobStatus::Completed | JobStatus::Failed | JobStatus::Canceled => Ok(()),
    }
}
