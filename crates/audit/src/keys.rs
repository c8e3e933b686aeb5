//! Idempotency keys in the store: a call with a key claims it before its effect and stores its answer under
//! it.

use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter,
    TryInsertResult, sea_query::Expr,
};

use store::{clock, entity::idempotency};

/// Attempts to claim a key that other calls keep claiming and releasing.
const MAX_ATTEMPTS: usize = 10;

/// A request to claim an idempotency key for a call.
#[derive(Clone, Debug)]
pub struct KeyClaim {
    /// The caller that the key belongs to; keys of different holders are independent.
    pub holder: String,
    pub key: String,
    pub tool: String,
    pub arguments_digest: String,
    pub expires_at: i64,
}

/// The result of a claim.
#[derive(Clone, Debug)]
pub enum ClaimOutcome {
    /// No earlier call holds the key, or the call has none: it may have its effect.
    Fresh,
    /// An earlier call holds the key.
    Existing(Box<idempotency::Model>),
}

/// The outcome of a call with a key.
#[derive(Clone, Debug)]
pub struct KeyOutcome {
    pub holder: String,
    pub key: String,
    /// The answer as JSON. `None`: the call had no effect, so the key is released.
    pub result: Option<String>,
}

/// Claims a key for a call, unless another call holds it.
pub async fn claim_key(
    db: &impl ConnectionTrait,
    claim: &KeyClaim,
    call_id: &str,
) -> Result<ClaimOutcome, DbErr> {
    for _ in 0..MAX_ATTEMPTS {
        if insert(db, claim, call_id).await? {
            return Ok(ClaimOutcome::Fresh);
        }
        let known =
            idempotency::Entity::find_by_id((claim.holder.clone(), claim.key.clone())).one(db).await?;
        match known {
            // An earlier attempt of this call was committed although it reported an error.
            Some(known) if known.call_id == call_id && known.state == idempotency::RUNNING => {
                return Ok(ClaimOutcome::Fresh);
            }
            Some(known) => return Ok(ClaimOutcome::Existing(Box::new(known))),
            // Released since the insert failed.
            None => {}
        }
    }
    Err(DbErr::RecordNotFound("an idempotency record".to_owned()))
}

/// Inserts the claim; returns whether the key was free.
async fn insert(db: &impl ConnectionTrait, claim: &KeyClaim, call_id: &str) -> Result<bool, DbErr> {
    let row = idempotency::ActiveModel {
        holder: Set(claim.holder.clone()),
        key: Set(claim.key.clone()),
        tool: Set(claim.tool.clone()),
        arguments_digest: Set(claim.arguments_digest.clone()),
        state: Set(idempotency::RUNNING.to_owned()),
        result: Set(None),
        call_id: Set(call_id.to_owned()),
        created_at: Set(clock::now()),
        expires_at: Set(claim.expires_at),
    };
    let taken = idempotency::Entity::insert(row)
        .on_conflict_do_nothing_on([idempotency::Column::Holder, idempotency::Column::Key])
        .exec_without_returning(db)
        .await?;
    Ok(matches!(taken, TryInsertResult::Inserted(1)))
}

/// Stores the outcome under a key, or releases the key, if the call still holds it. A call that was
/// considered lost may have lost its key to another call.
pub async fn settle_key(db: &impl ConnectionTrait, outcome: &KeyOutcome, call_id: &str) -> Result<(), DbErr> {
    let own = Condition::all()
        .add(idempotency::Column::CallId.eq(call_id))
        .add(idempotency::Column::State.eq(idempotency::RUNNING));
    let holder = idempotency::Column::Holder.eq(&outcome.holder);
    let key = idempotency::Column::Key.eq(&outcome.key);
    match &outcome.result {
        Some(result) => {
            idempotency::Entity::update_many()
                .col_expr(idempotency::Column::State, Expr::value(idempotency::DONE))
                .col_expr(idempotency::Column::Result, Expr::value(result))
                .filter(holder)
                .filter(key)
                .filter(own)
                .exec(db)
                .await?;
        }
        None => {
            idempotency::Entity::delete_many().filter(holder).filter(key).filter(own).exec(db).await?;
        }
    }
    Ok(())
}
