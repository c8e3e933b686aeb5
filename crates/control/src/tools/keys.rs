//! `key.*`: the API keys of users, which are their tokens.

use contract::key::{Check, Checked, Key};
use policy::{OnDisconnect, Scope};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use crate::{BuiltInTool, Context, Does, Entry, ToolError};
use store::{clock, entity::token};

/// The holder of a token that is an API key, as the store has it.
const USER: &str = "user";
/// Length of a SHA-256 in hexadecimal digits.
const HASH_DIGITS: usize = 64;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Check>()]
}

impl BuiltInTool for Check {
    const TITLE: &'static str = "Check an API key";
    const DESCRIPTION: &'static str =
        "Tells whose API key has a hash, and what it permits. An unknown, expired or revoked one is absent.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Checked, ToolError> {
        check_hash("hash", &input.hash)?;
        let row = token::Entity::find().filter(token::Column::Hash.eq(&input.hash)).one(&context.db).await?;
        Ok(Checked { key: row.and_then(|row| into_key(row, context.now)) })
    }
}

/// Returns the API key of a row; `None` if it is another kind of token, expired or revoked.
pub(crate) fn into_key(row: token::Model, now: i64) -> Option<Key> {
    let is_valid = row.agent == USER && row.revoked_at.is_none() && row.expires_at > now;
    let user_id = row.user_id.filter(|_| is_valid)?;
    Some(Key {
        key_id: row.id,
        user_id,
        expires_at: clock::text(row.expires_at),
        is_front_end: row.is_front_end,
        // A policy that cannot be read must not cancel work.
        on_disconnect: row.on_disconnect.parse().unwrap_or(OnDisconnect::Continue),
    })
}

/// Checks that a text is a SHA-256 in lower-case hexadecimal digits.
pub(crate) fn check_hash(what: &str, hash: &str) -> Result<(), ToolError> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if hash.len() == HASH_DIGITS && hash.bytes().all(is_digit) {
        return Ok(());
    }
    Err(ToolError::Invalid(format!("`{what}` must be a SHA-256 in {HASH_DIGITS} lower-case hex digits")))
}
