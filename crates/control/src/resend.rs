//! Retry intervals: when to check unanswered handoffs that the streams may have lost, and when to publish an
//! unanswered cancel again.

use contract::thread::RESEND_AFTER_SECONDS;
use sea_orm::{
    ColumnTrait, Condition, ExprTrait,
    sea_query::{Expr, IntoColumnRef},
};

/// Time from sending a handoff to its first check. By then it is published, unless the server is unavailable.
pub(super) const AFTER_US: i64 = RESEND_AFTER_SECONDS as i64 * 1_000_000;
/// Longest interval between checks, however old the handoff is.
const MAX_PAUSE_US: i64 = 60 * 60 * 1_000_000;
/// Interval between publishes of a cancel: a fraction of its age, within these limits, so that cancels which
/// are never answered cause little load.
const MIN_CANCEL_PAUSE_US: i64 = 5 * 1_000_000;
const MAX_CANCEL_PAUSE_US: i64 = 10 * 60 * 1_000_000;
const CANCELS_IN_AGE: i64 = 16;

/// Returns how long to wait before the next check of a handoff of this age: until its age has doubled, at
/// most an hour, so that many slow handoffs cause little load.
pub(super) fn pause_after(age_us: i64) -> i64 {
    age_us.clamp(AFTER_US, MAX_PAUSE_US)
}

/// Returns how long to wait before a cancel of this age is published again.
pub(super) fn cancel_pause_after(age_us: i64) -> i64 {
    (age_us / CANCELS_IN_AGE).clamp(MIN_CANCEL_PAUSE_US, MAX_CANCEL_PAUSE_US)
}

/// Selects what was begun at one time and sent or looked for at a later one, and is to be looked for now.
pub(super) fn is_due<C: ColumnTrait + IntoColumnRef>(begun_at: C, last_at: C, now: i64) -> Condition {
    let age_has_doubled = Expr::col(last_at).mul(2_i64).sub(Expr::col(begun_at)).lte(now);
    let is_long_ago = last_at.lte(now.saturating_sub(MAX_PAUSE_US));
    Condition::all()
        .add(last_at.lte(now.saturating_sub(AFTER_US)))
        .add(Condition::any().add(age_has_doubled).add(is_long_ago))
}
