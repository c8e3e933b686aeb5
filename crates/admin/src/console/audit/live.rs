//! Live audit rows as server-sent events.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use tokio::time::timeout;

use super::{AuditFilter, row};
use crate::console::{Console, Failure, form::Fields, session::Session};

/// How often the session of a live stream is checked.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const LAST_EVENT_ID: &str = "last-event-id";

/// Streams new rows, each as an HTML table row. Ends with the session.
pub(in super::super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let seen = headers.get(LAST_EVENT_ID).and_then(|seen| seen.to_str().ok()).or(fields.given("after"));
    let after = seen.and_then(|seen| seen.parse().ok());
    let rows = console.admin.tail_audit(&session.actor, after).await?;
    let audit = AuditStream {
        rows: Box::pin(rows),
        filter: AuditFilter::from_fields(&fields),
        console,
        headers,
        checked_at: Instant::now(),
    };
    let events = stream::unfold(audit, |mut audit| async { Some((audit.next().await?, audit)) });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

struct AuditStream<S> {
    rows: S,
    filter: AuditFilter,
    console: Arc<Console>,
    headers: HeaderMap,
    checked_at: Instant,
}

impl<S: futures_util::Stream<Item = subjects::audit::Row> + Unpin> AuditStream<S> {
    async fn next(&mut self) -> Option<Result<Event, Infallible>> {
        loop {
            let next = timeout(SESSION_CHECK_INTERVAL, self.rows.next()).await;
            if self.checked_at.elapsed() >= SESSION_CHECK_INTERVAL {
                self.checked_at = Instant::now();
                // A session that cannot be confirmed has ended.
                Session::find(&self.console, &self.headers).await.ok().flatten()?;
            }
            match next {
                Ok(Some(next)) if self.filter.matches(&next) => {
                    let event = Event::default().id(next.seq.to_string()).data(row(&next).into_string());
                    return Some(Ok(event));
                }
                Ok(None) => return None,
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
}
