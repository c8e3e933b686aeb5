use std::{sync::Arc, time::Duration};

use broker::{Broker, Chain};
use futures_util::future::BoxFuture;
use operate::{
    status::Status,
    work::{Answered, InWork},
};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::admin::{Actor, Admin, Error};

/// Nobody waits longer for a look.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long a look is good for all who look.
const FRESH: Duration = Duration::from_millis(900);
/// Of each kind.
const IN_WORK: u64 = 10;
const ANSWERED: usize = 20;

/// How the work on handoffs is going.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Work {
    #[serde(flatten)]
    pub status: Status,
    /// Delivered and not settled, the longest in work first, up to 10 of each kind.
    pub in_work: Vec<InWork>,
    /// The newest 20, newest first.
    pub answered: Vec<Answered>,
}

/// What the last look brought, for all who look at the same time. Also that nothing could be seen: or each of them
/// would wait for that in turn.
#[derive(Debug, Default)]
pub(crate) struct Glance(Mutex<Option<Looked>>);

#[derive(Debug)]
struct Looked {
    at: Instant,
    work: Result<Arc<Work>, Error>,
}

impl Admin {
    /// Queues, instances, what is in work and what was answered lately.
    pub async fn look_at_work(&self, actor: &Actor) -> Result<Arc<Work>, Error> {
        actor.sees_everything()?;
        let mut last = self.glance.0.lock().await;
        if let Some(Looked { at, work }) = &*last
            && at.elapsed() < FRESH
        {
            return work.clone();
        }
        let before = last.as_ref().and_then(|looked| looked.work.as_ref().ok()).cloned();
        let before = before.as_ref().map_or(&[][..], |work| &work.in_work);
        let work = self.look(before).await.map(Arc::new);
        *last = Some(Looked { at: Instant::now(), work: work.clone() });
        work
    }

    async fn look(&self, before: &[InWork]) -> Result<Work, Error> {
        let broker = self.broker().await?;
        let look = async {
            Ok(Work {
                status: operate::status::look(&broker).await?,
                in_work: operate::work::in_work(&broker, IN_WORK, before).await?,
                answered: operate::work::answered(&broker, ANSWERED).await?,
            })
        };
        in_time(PATIENCE, look).await
    }

    pub(super) async fn broker(&self) -> Result<Broker, Error> {
        let Some(nats) = &self.nats else {
            return Err(Error::Conflict("the gateway has no NATS; set nats.url to see handoffs".to_owned()));
        };
        nats.broker().await.map_err(|away| Error::Unreachable(away.to_string()))
    }
}

/// What NATS is asked for, with an end to the waiting.
pub(super) fn in_time<'a, T: 'a>(
    patience: Duration,
    asked: impl Future<Output = Result<T, operate::Error>> + Send + 'a,
) -> BoxFuture<'a, Result<T, Error>> {
    // Boxed: it holds a conversation with NATS.
    Box::pin(async move {
        match timeout(patience, asked).await {
            Ok(answered) => answered.map_err(|error| told(&error)),
            Err(_) => Err(Error::Unreachable("NATS does not answer in time".to_owned())),
        }
    })
}

fn told(error: &operate::Error) -> Error {
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
        | operate::Error::NotTaken(_)
        | operate::Error::Publish(_)
        | operate::Error::Read(_)
        | operate::Error::Spill(_)
        | operate::Error::Subscribe(_)
        | operate::Error::Send(_)
        | operate::Error::Nats(_) => Error::Unreachable(text),
    }
}
