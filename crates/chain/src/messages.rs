//! Reads whole chains.

use std::{fmt, time::Duration};

use async_nats::jetstream::message::StreamMessage;
use broker::{Broker, ReadError};
use tokio::time::{sleep, timeout};

use crate::{Outages, Streams};

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a lagging replica gets to catch up before it is asked again.
const REPLICA_CATCH_UP_DELAY: Duration = Duration::from_millis(20);

impl<O: Outages> Streams<O> {
    /// Returns all messages of a chain, oldest first. The last one is the end that the next message must
    /// follow.
    pub async fn messages_under(&self, stream: &str, over: &impl fmt::Display) -> Vec<StreamMessage> {
        let filter = over.to_string();
        // Each try looks for the last message: the stream may lose it meanwhile.
        let read = || async {
            match broker::last_on(&self.broker.jetstream, stream, &filter).await? {
                Some(last) => messages_up_to(&self.broker, stream, &filter, last.sequence).await,
                None => Ok(Vec::new()),
            }
        };
        self.read(stream, read).await
    }
}

/// Any replica may answer; one that does not have the last message yet is asked again.
async fn messages_up_to(
    broker: &Broker,
    stream: &str,
    filter: &str,
    up_to: u64,
) -> Result<Vec<StreamMessage>, ReadError> {
    let reading = async {
        let mut found: Vec<StreamMessage> = Vec::new();
        loop {
            let from = found.last().map_or(1, |last| last.sequence + 1);
            if from > up_to {
                return Ok(found);
            }
            let batch = broker::read_batch(&broker.jetstream, stream, filter, from, up_to + 1 - from).await?;
            if batch.is_empty() {
                sleep(REPLICA_CATCH_UP_DELAY).await;
            }
            found.extend(batch.into_iter().filter(|message| message.sequence <= up_to));
        }
    };
    timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(ReadError::TimedOut))
}
