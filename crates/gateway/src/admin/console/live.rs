//! Pages that follow what happens. Parts of a page that have an id are sent anew when they change; a script puts them in
//! place. Without it, loading the page again does the same.

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

/// What is to be told next.
pub(super) enum Next {
    Nothing,
    Parts(Markup),
    /// Parts after which nothing will change any more.
    Last(Markup),
}

/// Looks again and again, and tells what is new. Ends with the session, and with the gateway.
pub(super) trait Follow: Send + 'static {
    fn look(&mut self, console: &Console, session: &Session) -> impl Future<Output = Next> + Send;
}

struct Following<F> {
    follow: F,
    console: Arc<Console>,
    headers: HeaderMap,
    ticks: Interval,
    ended: bool,
}

pub(super) fn events<F: Follow>(
    console: Arc<Console>,
    headers: HeaderMap,
    every: Duration,
    follow: F,
) -> Response {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let following = Following { follow, console, headers, ticks, ended: false };
    let events =
        stream::unfold(following, |mut following| async { Some((following.next().await?, following)) });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl<F: Follow> Following<F> {
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
            // Not known is not in.
            let session = Session::find(&self.console, &self.headers).await.ok().flatten()?;
            match self.follow.look(&self.console, &session).await {
                Next::Nothing => {}
                Next::Parts(parts) => return Some(Ok(Event::default().data(parts.into_string()))),
                Next::Last(parts) => {
                    self.ended = true;
                    return Some(Ok(Event::default().event("last").data(parts.into_string())));
                }
            }
        }
        None
    }
}

/// Says that the page follows, and lets one pause it. Not seen without a script.
pub(super) fn panel(source: &str) -> Markup {
    html! {
        div .live data-follow=(source) hidden {
            span #live-said role="status" aria-live="polite" {}
            button .button .quiet .small type="button" aria-pressed="true" { "Pause" }
        }
    }
}
