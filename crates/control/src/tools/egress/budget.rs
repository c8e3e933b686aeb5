//! The budget of a user at a provider: what was used on a day, and what open calls may still use.
//!
//! Rows are locked in one order: usage by day, then calls. So concurrent calls, also of several gateways, are
//! counted one after the other, and never wait for each other in a circle.

use contract::egress::{Denial, DenialCode, Limits};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect, sea_query::Expr,
};
use store::{
    Store, clock,
    entity::{
        egress_call::{self, LOST},
        egress_usage,
    },
};

use super::{Amount, micro_usd};
use crate::{Context, ToolError};

/// Lost calls that one transaction closes.
const MAX_LOST: u64 = 100;
/// When a call is tried again that waits for open calls.
const BUSY_RETRY_SECONDS: u64 = 5;

/// A user's usage of a provider on one day.
#[derive(Clone, Debug)]
pub(super) struct Account<'a> {
    pub(super) user_id: &'a str,
    pub(super) provider: &'a str,
    pub(super) day: String,
}

/// Denies a call if its user has used up a limit, or if open calls may do so. A call that begins within the
/// limits may exceed them by what it uses itself, and no other call begins then. So a limit is exceeded by
/// less than the most that one call can use.
pub(super) async fn check(
    context: &Context<'_>,
    account: &Account<'_>,
    limits: &Limits,
) -> Result<Option<Denial>, ToolError> {
    if *limits == Limits::default() {
        return Ok(None);
    }
    let db = &context.db;
    close_lost_of(db, account.user_id, account.provider, &account.day, context.now).await?;
    let used = lock_usage(db, account).await?;
    let used = Amount {
        prompt_tokens: used.prompt_tokens,
        completion_tokens: used.completion_tokens,
        micro_usd: used.micro_usd,
    };
    let open = open_calls(account.user_id, account.provider).all(db).await?;
    let taken = open.iter().fold(used, |sum, call| sum.plus(expected(call)));
    let tokens = limits.tokens_per_day.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let usd = limits.usd_per_day.map(|limit| micro_usd("usd_per_day", limit)).transpose()?;
    let dollars = |micro_usd: i64| format!("${:.2}", micro_usd as f64 / 1e6);
    let spent = [
        (
            tokens,
            used.tokens(),
            taken.tokens(),
            tokens.map(|limit| format!("{} of {limit} tokens", used.tokens())),
        ),
        (
            usd,
            used.micro_usd,
            taken.micro_usd,
            usd.map(|limit| format!("{} of {}", dollars(used.micro_usd), dollars(limit))),
        ),
    ];
    for (limit, used, taken, spent) in spent {
        let (Some(limit), Some(spent)) = (limit, spent) else { continue };
        let (user, provider, open) = (account.user_id, account.provider, open.len());
        if used >= limit {
            let message = format!(
                "{user} has used up the budget for {provider}: {spent} today; try again after midnight UTC, \
                 or have an operator raise it in egress.providers"
            );
            return Ok(Some(Denial { code: DenialCode::BudgetUsedUp, message, retry_after_seconds: None }));
        }
        if taken >= limit {
            let message = format!(
                "{open} open calls of {user} may use up what is left of the budget for {provider}: {spent} \
                 today; try again when they have ended"
            );
            let retry_after_seconds = Some(BUSY_RETRY_SECONDS);
            return Ok(Some(Denial { code: DenialCode::BudgetBusy, message, retry_after_seconds }));
        }
    }
    Ok(None)
}

/// Adds what a call used to its account.
pub(super) async fn add(
    db: &impl ConnectionTrait,
    account: &Account<'_>,
    calls: (i64, i64),
    amount: Amount,
) -> Result<(), DbErr> {
    let row = lock_usage(db, account).await?;
    let sum = |column: i64, added: i64| Set(column.saturating_add(added).max(0));
    let change = egress_usage::ActiveModel {
        calls: sum(row.calls, calls.0),
        estimated_calls: sum(row.estimated_calls, calls.1),
        prompt_tokens: sum(row.prompt_tokens, amount.prompt_tokens),
        completion_tokens: sum(row.completion_tokens, amount.completion_tokens),
        micro_usd: sum(row.micro_usd, amount.micro_usd),
        ..row.into()
    };
    change.update(db).await?;
    Ok(())
}

/// Returns what was used of an account, locked until the transaction ends.
pub(super) async fn lock_usage(
    db: &impl ConnectionTrait,
    account: &Account<'_>,
) -> Result<egress_usage::Model, DbErr> {
    let Account { user_id, provider, day } = account;
    let none = egress_usage::Model {
        user_id: (*user_id).to_owned(),
        provider: (*provider).to_owned(),
        day: day.clone(),
        calls: 0,
        estimated_calls: 0,
        prompt_tokens: 0,
        completion_tokens: 0,
        micro_usd: 0,
    };
    let insert = egress_usage::Entity::insert(egress_usage::ActiveModel::from(none.clone()));
    insert.on_conflict_do_nothing().exec_without_returning(db).await?;
    let key = (none.user_id.clone(), none.provider.clone(), none.day.clone());
    let row = egress_usage::Entity::find_by_id(key).lock_exclusive().one(db).await?;
    Ok(row.unwrap_or(none))
}

/// Returns what a call was expected to use.
pub(super) fn expected(call: &egress_call::Model) -> Amount {
    Amount {
        prompt_tokens: call.expected_prompt_tokens,
        completion_tokens: call.expected_completion_tokens,
        micro_usd: call.expected_micro_usd,
    }
}

fn open_calls(user: &str, provider: &str) -> sea_orm::Select<egress_call::Entity> {
    egress_call::Entity::find()
        .filter(egress_call::Column::UserId.eq(user))
        .filter(egress_call::Column::Provider.eq(provider))
        .filter(egress_call::Column::Outcome.is_null())
}

/// Closes the calls of a user that were not ended in time, and counts what they were expected to use. Returns
/// how many.
async fn close_lost_of(
    db: &impl ConnectionTrait,
    user: &str,
    provider: &str,
    today: &str,
    now: i64,
) -> Result<u64, DbErr> {
    let lost = open_calls(user, provider).filter(egress_call::Column::ExpiresAt.lt(now)).limit(MAX_LOST);
    let mut lost = lost.all(db).await?;
    if lost.is_empty() {
        return Ok(0);
    }
    lost.sort_by(|one, other| one.day.cmp(&other.day));
    let mut days: Vec<String> = lost.iter().map(|call| call.day.clone()).collect();
    days.push(today.to_owned());
    days.sort();
    days.dedup();
    for day in days {
        lock_usage(db, &Account { user_id: user, provider, day }).await?;
    }
    let mut closed = 0;
    for call in lost {
        let update = egress_call::Entity::update_many()
            .col_expr(egress_call::Column::Outcome, Expr::value(LOST))
            .col_expr(egress_call::Column::EndedAt, Expr::value(now))
            .filter(egress_call::Column::Id.eq(&call.id))
            .filter(egress_call::Column::Outcome.is_null());
        // It may have been ended while this transaction waited for the locks.
        if update.exec(db).await?.rows_affected > 0 {
            let account = Account { user_id: user, provider, day: call.day.clone() };
            add(db, &account, (1, 1), expected(&call)).await?;
            closed += 1;
        }
    }
    Ok(closed)
}

/// Closes calls that were not ended in time, because their orchestrator was killed. Returns how many.
pub async fn close_lost_calls(store: &Store) -> Result<u64, DbErr> {
    let now = clock::now();
    let lost = egress_call::Entity::find()
        .filter(egress_call::Column::Outcome.is_null())
        .filter(egress_call::Column::ExpiresAt.lt(now))
        .order_by_asc(egress_call::Column::ExpiresAt)
        .limit(MAX_LOST)
        .all(store.read())
        .await?;
    let mut accounts: Vec<(String, String)> =
        lost.into_iter().map(|call| (call.user_id, call.provider)).collect();
    accounts.sort();
    accounts.dedup();
    let mut closed = 0;
    for (user, provider) in accounts {
        let write = store.write().await?;
        closed += close_lost_of(&*write, &user, &provider, &super::day(now), now).await?;
        write.commit().await?;
    }
    Ok(closed)
}

/// Deletes calls that ended before a time, in microseconds since 1970. What they used stays.
pub async fn delete_old_calls(store: &Store, before: i64) -> Result<(), DbErr> {
    let write = store.write().await?;
    let ended = egress_call::Column::EndedAt.lt(before);
    egress_call::Entity::delete_many().filter(ended).exec(&*write).await?;
    write.commit().await
}
