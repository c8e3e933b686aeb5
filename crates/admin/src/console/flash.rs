//! One-time messages after a change, carried in a cookie to the next page.

use axum::response::{IntoResponse, Redirect, Response};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, HeaderValue, header::SET_COOKIE};

use super::{
    Console, Failure,
    session::{cookie, set_cookie},
};
use crate::Error;

const COOKIE_NAME: &str = "cynode_said";
const MAX_AGE_SECONDS: u64 = 60;
/// Browsers limit cookies to 4 KiB.
const MAX_TEXT_BYTES: usize = 1000;

/// A message that the next page shows once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flash {
    pub(super) good: bool,
    pub(super) text: String,
}

impl Flash {
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = BASE64URL_NOPAD.decode(cookie(headers, COOKIE_NAME)?.as_bytes()).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (sign, text) = text.split_at_checked(1)?;
        Some(Self { good: sign == "+", text: text.to_owned() })
    }

    fn encode(&self) -> String {
        let sign = if self.good { '+' } else { '-' };
        let text = &self.text[..self.text.floor_char_boundary(MAX_TEXT_BYTES)];
        BASE64URL_NOPAD.encode(format!("{sign}{text}").as_bytes())
    }
}

/// Deletes the cookie once the message was shown.
pub(super) fn clear(response: &mut Response) {
    let expired = "cynode_said=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict";
    response.headers_mut().append(SET_COOKIE, HeaderValue::from_static(expired));
}

/// Redirects to `back` with a message about the result; `message` describes a success. Errors that need a
/// page of their own are returned.
pub(super) fn redirect_after<T>(
    console: &Console,
    back: &str,
    result: Result<T, Error>,
    message: impl FnOnce(T) -> String,
) -> Result<Response, Failure> {
    let flash = match result {
        Ok(done) => Flash { good: true, text: message(done) },
        Err(error @ (Error::Forbidden(_) | Error::Unavailable | Error::Unrecorded)) => {
            return Err(error.into());
        }
        Err(
            error @ (Error::NotFound { .. }
            | Error::Invalid { .. }
            | Error::Conflict(_)
            | Error::Unreachable(_)),
        ) => Flash { good: false, text: sentence(&error.to_string()) },
    };
    Ok(redirect(console, back, &flash))
}

pub(super) fn redirect(console: &Console, back: &str, flash: &Flash) -> Response {
    let mut response = Redirect::to(back).into_response();
    let cookie = set_cookie(console, COOKIE_NAME, &flash.encode(), MAX_AGE_SECONDS);
    response.headers_mut().append(SET_COOKIE, cookie);
    response
}

/// Formats a text as a sentence: capital letter and full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{}{stop}", first.to_uppercase(), letters.as_str())
}
