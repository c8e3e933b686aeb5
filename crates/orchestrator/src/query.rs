//! Reads the query of a path.

use std::{borrow::Cow, collections::HashMap};

use crate::error::ApiError;

const DEFAULT_LIMIT: u64 = 20;
/// The longest page of a list.
pub(crate) const MAX_LIMIT: u64 = 100;

/// Reads `limit` and `after` of a query.
pub(crate) fn page(query: Option<&str>) -> Result<(u64, Option<String>), ApiError> {
    let query = parse(query);
    let limit = match query.get("limit") {
        None => DEFAULT_LIMIT,
        Some(text) => match text.parse() {
            Ok(limit @ 1..=MAX_LIMIT) => limit,
            _ => {
                let message = format!("`limit` is a whole number from 1 to {MAX_LIMIT}.");
                return Err(ApiError::invalid("limit", message));
            }
        },
    };
    Ok((limit, query.get("after").map(|cursor| cursor.to_string())))
}

/// Reads all fields of a query.
pub(crate) fn parse(query: Option<&str>) -> HashMap<Cow<'_, str>, Cow<'_, str>> {
    url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect()
}
