//! Commits announcements and claims of keys.

use sea_orm::EntityTrait;

use store::{Store, entity::in_flight};

use crate::{
    keys::{ClaimOutcome, claim_key},
    messages::Begin,
    recovery::in_flight_row,
    write_error::WriteError,
};

/// Announces calls and claims their keys in one transaction; returns the outcomes in the order of the calls.
/// May be repeated for the same calls.
pub(super) async fn commit_begins(store: &Store, group: &[Begin]) -> Result<Vec<ClaimOutcome>, WriteError> {
    let mut found = Vec::with_capacity(group.len());
    if group.iter().all(|begin| begin.claim.is_none()) {
        let writer = store.acquire_writer().await;
        let announced = group.iter().map(|begin| in_flight_row(begin.record.clone(), begin.until));
        let announced = announced.collect::<Result<Vec<_>, _>>()?;
        in_flight::Entity::insert_many(announced)
            .on_conflict_do_nothing_on([in_flight::Column::CallId])
            .exec_without_returning(&*writer)
            .await?;
        found.resize(group.len(), ClaimOutcome::Fresh);
        return Ok(found);
    }
    let write = store.write().await?;
    let mut announced = Vec::new();
    for begin in group {
        let result = match &begin.claim {
            Some(claim) => claim_key(&*write, claim, &begin.record.call_id).await?,
            None => ClaimOutcome::Fresh,
        };
        if matches!(result, ClaimOutcome::Fresh) {
            announced.push(in_flight_row(begin.record.clone(), begin.until)?);
        }
        found.push(result);
    }
    if !announced.is_empty() {
        in_flight::Entity::insert_many(announced)
            .on_conflict_do_nothing_on([in_flight::Column::CallId])
            .exec_without_returning(&*write)
            .await?;
    }
    write.commit().await?;
    Ok(found)
}
