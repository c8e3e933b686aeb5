//! The state of queues, instances and handoffs, read from NATS and cached for concurrent readers.

use std::{sync::Arc, time::Duration};

use broker::{Broker, Chain};
use futures_util::future::BoxFuture;
use operate::work::InWork;
use tokio::time::{Instant, timeout};

use crate::{
    Actor, Admin, Error,
    work_cache::{CachedWork, Work},
};

const NATS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a result, or a failure, is served from the cache.
const CACHE_TTL: Duration = Duration::from_millis(900);
const MAX_IN_WORK_PER_KIND: u64 = 10;
const MAX_ANSWERS: usize = 20;

impl Admin {
    /// Returns the state of the work, at most 900 ms old. Fails with [`Error::Unreachable`] if NATS does not
    /// respond.
    pub(crate) async fn get_work(&self, actor: &Actor) -> Result<Arc<Work>, Error> {
        actor.ensure_admin()?;
        let mut last = self.work_cache.0.lock().await;
        if let Some(CachedWork { at, work }) = &*last
            && at.elapsed() < CACHE_TTL
        {
            return work.clone();
        }
        let before = last.as_ref().and_then(|cached| cached.work.as_ref().ok()).cloned();
        let before = before.as_ref().map_or(&[][..], |work| &work.in_work);
        let work = self.load_work(before).await.map(Arc::new);
        *last = Some(CachedWork { at: Instant::now(), work: work.clone() });
        work
    }

    async fn load_work(&self, before: &[InWork]) -> Result<Work, Error> {
        let broker = self.broker().await?;
        let load = async {
            Ok(Work {
                status: operate::status::read(&broker).await?,
                in_work: operate::work::in_work(&broker, MAX_IN_WORK_PER_KIND, before).await?,
                answered: operate::work::answered(&broker, MAX_ANSWERS).await?,
            })
        };
        with_timeout(NATS_TIMEOUT, load).await
    }

    /// Returns the NATS connection. Fails with [`Error::Conflict`] if none is configured.
    pub(super) async fn broker(&self) -> Result<Broker, Error> {
        let Some(nats) = &self.nats else {
            return Err(Error::Conflict("NATS is not configured; set nats.url to see handoffs".to_owned()));
        };
        nats.broker().await.map_err(|away| Error::Unreachable(away.to_string()))
    }
}

/// Runs a request to NATS under a timeout and converts its error.
pub(super) fn with_timeout<'a, T: 'a>(
    limit: Duration,
    request: impl Future<Output = Result<T, operate::Error>> + Send + 'a,
) -> BoxFuture<'a, Result<T, Error>> {
    // Boxed, since the future is large.
    Box::pin(async move {
        match timeout(limit, request).await {
            Ok(result) => result.map_err(|error| convert_error(&error)),
            Err(_) => Err(Error::Unreachable("NATS did not respond in time".to_owned())),
        }
    })
}

fn convert_error(error: &operate::Error) -> Error {
    let text = Chain(error).to_string();
    match error {
        operate::Error::NoSuchLetter(number) => Error::not_found("dead letter", number.to_string()),
        operate::Error::QueueFull
        | operate::Error::Layout(_)
        | operate::Error::NotReplayed { .. }
        | operate::Error::Letter(..)
        | operate::Error::Encode(_)
        | operate::Error::NothingToSign
        | operate::Error::Sign(_) => Error::Conflict(text),
        operate::Error::NoStreams
        | operate::Error::NoResponders(_)
        | operate::Error::Publish(_)
        | operate::Error::Read(_)
        | operate::Error::Spill(_)
        | operate::Error::Subscribe(_)
        | operate::Error::Send(_)
        | operate::Error::Nats(_) => Error::Unreachable(text),
    }
}
