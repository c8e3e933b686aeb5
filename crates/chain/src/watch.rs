//! Checks whether streams accept messages.

use std::time::Duration;

use async_nats::jetstream::{
    ErrorCode,
    context::{GetStreamError, GetStreamErrorKind},
    stream::{self, DiscardPolicy},
};
use subjects::Subject;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{Outages, Streams};

const CHECK_INTERVAL: Duration = Duration::from_secs(10);

impl<O: Outages> Streams<O> {
    /// Asks the server whether the streams accept messages. `unused` is a subject of a chain that does not
    /// exist: without the permission to read a stream's info, a read shows whether the stream exists.
    pub async fn check_available(&self, streams: &[&'static str], unused: &Subject) -> bool {
        for stream in streams {
            if !Box::pin(self.check_writable(stream, unused)).await {
                return false;
            }
        }
        true
    }

    async fn check_writable(&self, stream: &'static str, unused: &Subject) -> bool {
        let Ok(found) = self.broker.jetstream.get_stream(stream).await else {
            return broker::last_on(&self.broker.jetstream, stream, unused).await.is_ok();
        };
        let is_full = is_full(found.cached_info());
        if is_full {
            warn!(stream, "Stream is still full.");
        }
        !is_full
    }

    /// Checks the streams at an interval until `stop`. An idle process would not notice that a stream is
    /// missing or full. `on_config` is called with the configuration of each stream that is found.
    pub async fn watch(
        &self,
        streams: &[&'static str],
        on_config: impl Fn(&'static str, &stream::Config),
        stop: CancellationToken,
    ) {
        while timeout(CHECK_INTERVAL, stop.cancelled()).await.is_err() {
            for stream in streams {
                match self.broker.jetstream.get_stream(*stream).await {
                    Ok(found) => {
                        let info = found.cached_info();
                        if is_full(info) {
                            self.outages.trip(&format!("cannot write {stream}: the stream is full"));
                        }
                        on_config(stream, &info.config);
                    }
                    Err(error) if is_missing(&error) => {
                        self.outages.trip(&format!("cannot write {stream}: the stream is missing"));
                    }
                    // The server is unreachable, which readiness reports separately, or the permission is
                    // missing.
                    Err(_) => {}
                }
            }
        }
    }
}

fn is_full(info: &stream::Info) -> bool {
    let reached = |limit: i64, used: u64| u64::try_from(limit).is_ok_and(|limit| limit > 0 && used >= limit);
    info.config.discard == DiscardPolicy::New
        && (reached(info.config.max_messages, info.state.messages)
            || reached(info.config.max_bytes, info.state.bytes))
}

fn is_missing(error: &GetStreamError) -> bool {
    let kind = error.kind();
    matches!(kind, GetStreamErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
