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

use super::{Wanted, row};
use crate::admin::console::{Console, Failure, form::Fields, session::Session};

/// So often it is looked whether whoever watches is still in.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LAST_SEEN: &str = "last-event-id";

/// Rows as they come, each as the row of a table. Ends with the session.
pub(in super::super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let seen = headers.get(LAST_SEEN).and_then(|seen| seen.to_str().ok()).or(fields.given("after"));
    let after = seen.and_then(|seen| seen.parse().ok());
    let rows = console.admin.tail_audit(&session.actor, after).await?;
    let watching = Watching {
        rows: Box::pin(rows),
        wanted: Wanted::read(&fields),
        console,
        headers,
        looked: Instant::now(),
    };
    let events = stream::unfold(watching, |mut watching| async { Some((watching.next().await?, watching)) });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

struct Watching<S> {
    rows: S,
    wanted: Wanted,
    console: Arc<Console>,
    headers: HeaderMap,
    looked: Instant,
}

impl<S: futures_util::Stream<Item = subjects::audit::Row> + Unpin> Watching<S> {
    async fn next(&mut self) -> Option<Result<Event, Infallible>> {
        loop {
            let next = timeout(LOOK_EVERY, self.rows.next()).await;
            if self.looked.elapsed() >= LOOK_EVERY {
                self.looked = Instant::now();
                // Not known is not in.
                Session::find(&self.console, &self.headers).await.ok().flatten()?;
            }
            match next {
                Ok(Some(next)) if self.wanted.has(&next) => {
                    let event = Event::default().id(next.seq.to_string()).data(row(&next).into_string());
                    return Some(Ok(event));
                }
                Ok(None) => return None,
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
}
