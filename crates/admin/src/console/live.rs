//! Live pages: parts of a page that have an id are sent as server-sent events when they change, and a script
//! replaces them. Without the script, a reload does the same.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response, Sse,
    sse::{Event, KeepAlive},
};
use futures_util::stream;
use http::HeaderMap;
use maud::{Markup, html};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Console, session::Session};

/// The result of one poll.
pub(super) enum Update {
    Unchanged,
    Parts(Markup),
    /// The final parts: nothing will change after them.
    Last(Markup),
}

/// A live page. It is polled until its last update, the end of the session or the stop of the gateway.
pub(super) trait LiveView: Send + 'static {
    fn poll(&mut self, console: &Console, session: &Session) -> impl Future<Output = Update> + Send;
}

struct UpdateStream<V> {
    view: V,
    console: Arc<Console>,
    headers: HeaderMap,
    ticks: Interval,
    ended: bool,
}

/// Returns a stream of server-sent events that polls `view` at the interval `every`.
pub(super) fn events<V: LiveView>(
    console: Arc<Console>,
    headers: HeaderMap,
    every: Duration,
    view: V,
) -> Response {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let updates = UpdateStream { view, console, headers, ticks, ended: false };
    let events = stream::unfold(updates, |mut updates| async { Some((updates.next().await?, updates)) });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl<V: LiveView> UpdateStream<V> {
    async fn next(&mut self) -> Option<Result<Event, Infallible>> {
        while !self.ended {
            let stop = &self.console.admin.stop;
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return None,
                // Cancel-safe per docs on `tick()`.
                _ = self.ticks.tick() => {}
            }
            // A session that cannot be confirmed has ended.
            let session = Session::find(&self.console, &self.headers).await.ok().flatten()?;
            match self.view.poll(&self.console, &session).await {
                Update::Unchanged => {}
                Update::Parts(parts) => return Some(Ok(Event::default().data(parts.into_string()))),
                Update::Last(parts) => {
                    self.ended = true;
                    return Some(Ok(Event::default().event("last").data(parts.into_string())));
                }
            }
        }
        None
    }
}

/// Renders the indicator of a live page with its pause button; hidden without the script.
pub(super) fn panel(source: &str) -> Markup {
    panel_until(source, None)
}

/// Like [`panel`], with what is said after the last update.
pub(super) fn panel_until(source: &str, last: Option<&str>) -> Markup {
    html! {
        div .live data-follow=(source) data-last=[last] hidden {
            span #live-said role="status" aria-live="polite" {}
            button .button .quiet .small type="button" aria-pressed="true" { "Stop refreshing" }
        }
    }
}
