//! Middleware of the console: security headers, error pages.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use http::{
    HeaderValue,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use tracing::error;

use super::{Console, Failure, session::Session};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Turns failures and panics into pages, and sets the security headers of every response.
pub(super) async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let headers = request.headers().clone();
    let result = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = result.unwrap_or_else(|_| {
        error!("Console page panicked.");
        Failure::Internal.into_response()
    });
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        // With a session, the page has the usual navigation; without one, or if it cannot be read, it has
        // none.
        let session = Session::find(&console, &headers).await.ok().flatten();
        response = failure.page(session.as_ref());
    }
    let answer = response.headers_mut();
    answer.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer.insert(OPENER, HeaderValue::from_static("same-origin"));
    answer.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
