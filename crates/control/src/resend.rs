//! When what was sent and has no answer is looked for: the streams may have lost it. When workers are told
//! again to stop what they have not answered.

use contract::thread::RESEND_AFTER_SECONDS;
use sea_orm::{
    ColumnTrait, Condition, ExprTrait,
    sea_query::{Expr, IntoColumnRef},
};

/// How long after it was sent, at the earliest. By then it was published, if there is a server.
pub(super) const AFTER_US: i64 = RESEND_AFTER_SECONDS as i64 * 1_000_000;
/// It is looked for this often at least, however old it is.
const MAX_PAUSE_US: i64 = 60 * 60 * 1_000_000;
/// How long after workers were told to stop something they are told again: a part of its age, within these
/// limits, so that what nobody ever answers is no load.
const MIN_CANCEL_PAUSE_US: i64 = 5 * 1_000_000;
const MAX_CANCEL_PAUSE_US: i64 = 10 * 60 * 1_000_000;
const CANCELS_IN_AGE: i64 = 16;

/// Returns how long to wait before something of this age is looked for again: until its age has doubled, an
/// hour at most, so that many slow ones are no load.
pub(super) fn pause_after(age_us: i64) -> i64 {
    age_us.clamp(AFTER_US, MAX_PAUSE_US)
}

/// Returns how long to wait before workers are told again to stop something of this age.
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
