use axum::response::{IntoResponse, Redirect, Response};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, HeaderValue, header::SET_COOKIE};

use super::{
    Console, Failure,
    session::{cookie, set_cookie},
};
use crate::admin::Error;

const NAME: &str = "cynode_said";
const LIVES: u64 = 60;
/// Browsers keep no larger cookies than 4 KiB.
const LONGEST: usize = 1000;

/// What is said on the page after a change, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flash {
    pub(super) good: bool,
    pub(super) text: String,
}

impl Flash {
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = BASE64URL_NOPAD.decode(cookie(headers, NAME)?.as_bytes()).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (sign, text) = text.split_at_checked(1)?;
        Some(Self { good: sign == "+", text: text.to_owned() })
    }

    fn written(&self) -> String {
        let sign = if self.good { '+' } else { '-' };
        let text = &self.text[..self.text.floor_char_boundary(LONGEST)];
        BASE64URL_NOPAD.encode(format!("{sign}{text}").as_bytes())
    }
}

/// Once it was shown.
pub(super) fn forgotten(response: &mut Response) {
    let gone = "cynode_said=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict";
    response.headers_mut().append(SET_COOKIE, HeaderValue::from_static(gone));
}

/// After a change: says how it went, on the page to go on with.
pub(super) fn after<T>(
    console: &Console,
    back: &str,
    result: Result<T, Error>,
    said: impl FnOnce(T) -> String,
) -> Result<Response, Failure> {
    let flash = match result {
        Ok(done) => Flash { good: true, text: said(done) },
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
    let cookie = set_cookie(console, NAME, &flash.written(), LIVES);
    response.headers_mut().append(SET_COOKIE, cookie);
    response
}

/// With a capital and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{}{stop}", first.to_uppercase(), letters.as_str())
}
