//! Keys in the store: a call that must have its effect once takes one, and leaves its answer there.

use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter,
    TryInsertResult, sea_query::Expr,
};

use crate::{clock, store::entity::idempotency};

/// A key that is freed again and again while one looks is not waited for.
const MOST_TRIES: usize = 10;

/// The wish that a call have its effect once.
#[derive(Clone, Debug)]
pub struct Claim {
    pub holder: String,
    pub key: String,
    pub tool: String,
    pub arguments_digest: String,
    pub expires_at: i64,
}

/// What a claim found.
#[derive(Clone, Debug)]
pub enum Begun {
    /// Nobody was here before: the call may have its effect.
    Fresh,
    /// Somebody was.
    Known(Box<idempotency::Model>),
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub struct Finish {
    pub holder: String,
    pub key: String,
    /// `None`: it had no effect, so the key is free again.
    pub result: Option<String>,
}

/// Takes a key, unless it is taken.
pub(crate) async fn claim(db: &impl ConnectionTrait, wish: &Claim, call_id: &str) -> Result<Begun, DbErr> {
    for _ in 0..MOST_TRIES {
        if insert(db, wish, call_id).await? {
            return Ok(Begun::Fresh);
        }
        let known = idempotency::Entity::find_by_id((wish.holder.clone(), wish.key.clone())).one(db).await?;
        match known {
            // An attempt of ours was committed although it seemed to fail.
            Some(known) if known.call_id == call_id && known.state == idempotency::RUNNING => {
                return Ok(Begun::Fresh);
            }
            Some(known) => return Ok(Begun::Known(Box::new(known))),
            // It was there a moment ago, and was freed in between.
            None => {}
        }
    }
    Err(DbErr::RecordNotFound("an idempotency record".to_owned()))
}

/// Whether the key was free.
async fn insert(db: &impl ConnectionTrait, wish: &Claim, call_id: &str) -> Result<bool, DbErr> {
    let row = idempotency::ActiveModel {
        holder: Set(wish.holder.clone()),
        key: Set(wish.key.clone()),
        tool: Set(wish.tool.clone()),
        arguments_digest: Set(wish.arguments_digest.clone()),
        state: Set(idempotency::RUNNING.to_owned()),
        result: Set(None),
        call_id: Set(call_id.to_owned()),
        created_at: Set(clock::now()),
        expires_at: Set(wish.expires_at),
    };
    let taken = idempotency::Entity::insert(row)
        .on_conflict_do_nothing_on([idempotency::Column::Holder, idempotency::Column::Key])
        .exec_without_returning(db)
        .await?;
    Ok(matches!(taken, TryInsertResult::Inserted(1)))
}

/// Says what became of a key, if it is still the call's own: one that was taken for lost may have lost its key to another.
pub(crate) async fn settle(db: &impl ConnectionTrait, finish: &Finish, call_id: &str) -> Result<(), DbErr> {
    let own = Condition::all()
        .add(idempotency::Column::CallId.eq(call_id))
        .add(idempotency::Column::State.eq(idempotency::RUNNING));
    let holder = idempotency::Column::Holder.eq(&finish.holder);
    let key = idempotency::Column::Key.eq(&finish.key);
    match &finish.result {
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
