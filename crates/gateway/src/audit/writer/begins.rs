use sea_orm::EntityTrait;

use crate::{
    audit::{
        keys::{Begun, claim},
        not_written::NotWritten,
        notes::Begin,
        recovery::intent,
    },
    store::{Store, entity::in_flight},
};

/// Announces calls and takes their keys; returns what each found, in their order. Written again, nothing changes.
pub(super) async fn commit_begins(store: &Store, group: &[Begin]) -> Result<Vec<Begun>, NotWritten> {
    let mut found = Vec::with_capacity(group.len());
    if group.iter().all(|begin| begin.claim.is_none()) {
        let turn = store.turn().await;
        let announced = group.iter().map(|begin| intent(begin.record.clone(), begin.until));
        let announced = announced.collect::<Result<Vec<_>, _>>()?;
        in_flight::Entity::insert_many(announced)
            .on_conflict_do_nothing_on([in_flight::Column::CallId])
            .exec_without_returning(&*turn)
            .await?;
        found.resize(group.len(), Begun::Fresh);
        return Ok(found);
    }
    let write = store.write().await?;
    let mut announced = Vec::new();
    for begin in group {
        let result = match &begin.claim {
            Some(wish) => claim(&*write, wish, &begin.record.call_id).await?,
            None => Begun::Fresh,
        };
        if matches!(result, Begun::Fresh) {
            announced.push(intent(begin.record.clone(), begin.until)?);
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
