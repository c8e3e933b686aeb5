use std::{path::Path, time::Duration};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use broker::{Broker, Chain};
use futures_util::StreamExt;
use serde::Deserialize;
use subjects::{audit::Head, streams};
use tokio::time::timeout;

use super::{
    super::client::{Ask, Gateway},
    file_lines,
};
use crate::{cli, error::Error, link};

/// NATS is asked in passing: whoever needs it says so.
const PATIENCE: Duration = Duration::from_secs(3);
/// The next head is in the stream already, or there is something wrong.
const NEXT_WITHIN: Duration = Duration::from_secs(10);

/// Heads whose signature is good, and what was found out on the way to them.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) heads: Vec<Head>,
    pub(super) from_nats: usize,
    pub(super) from_file: usize,
    pub(super) from_gateway: usize,
    pub(super) key: Option<String>,
    /// Something that no chain can make good.
    pub(super) problem: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl Gathered {
    /// Leaves out heads of rows after this one.
    pub(super) fn only_until(&mut self, last: i64) {
        let before = self.heads.len();
        self.heads.retain(|head| head.seq <= last);
        let later = before - self.heads.len();
        if later > 0 {
            self.warnings.push(format!("{later} heads are of rows after {last} and were left out"));
        }
    }

    /// Takes those that `key` signed.
    fn take(&mut self, heads: Vec<Head>, key: &str) -> usize {
        let before = self.heads.len();
        let mut others = 0;
        for head in heads {
            if head.is_signed_by(key) {
                self.heads.push(head);
            } else if head.key == key {
                self.problem =
                    Some(format!("the head of row {} does not bear the signature of {key}", head.seq));
            } else {
                others += 1;
            }
        }
        if others > 0 {
            self.warnings.push(format!("{others} heads are signed by another key and were left out"));
        }
        self.heads.len() - before
    }
}

pub(super) async fn gather(
    gateway: Option<&Gateway>,
    nats: &cli::Link,
    command: &cli::Verify,
) -> Result<Gathered, Error> {
    let mut gathered = Gathered::default();
    let (its_key, own) = match gateway {
        Some(gateway) => of_gateway(gateway).await?,
        None => (None, Vec::new()),
    };
    let filed = match &command.heads {
        Some(path) => of_file(path)?,
        None => Vec::new(),
    };
    let published = of_nats(gateway.is_some(), nats, command, &mut gathered.warnings).await?;
    let outside = published.last().or(filed.last()).map(|head| head.key.clone());
    let Some(key) = command.key.clone().or(its_key).or(outside) else {
        gathered.warnings.push("no signed heads found: a rewritten chain would pass verification".to_owned());
        return Ok(gathered);
    };
    if command.key.is_none() {
        let warning = format!("the signer is taken to be {key}; --key says who it must be");
        gathered.warnings.push(warning);
    }
    gathered.from_nats = gathered.take(published, &key);
    gathered.from_file = gathered.take(filed, &key);
    gathered.from_gateway = gathered.take(own, &key);
    if gathered.heads.is_empty() && command.key.is_some() {
        gathered.problem = Some(format!("no head is signed by {key}"));
    }
    if gathered.from_nats + gathered.from_file == 0 {
        let warning = "no head came from outside the gateway: whoever rules its machine could have made a whole new \
                       chain (--nats, --heads)";
        gathered.warnings.push(warning.to_owned());
    }
    // The same head is kept in several places.
    gathered.heads.sort_by(|a, b| (a.seq, &a.hash, a.pruned_seq).cmp(&(b.seq, &b.hash, b.pruned_seq)));
    gathered.heads.dedup_by(|a, b| (a.seq, &a.hash, a.pruned_seq) == (b.seq, &b.hash, b.pruned_seq));
    gathered.key = Some(key);
    Ok(gathered)
}

async fn of_gateway(gateway: &Gateway) -> Result<(Option<String>, Vec<Head>), Error> {
    #[derive(Deserialize)]
    struct Heads {
        key: String,
        heads: Vec<Head>,
    }
    let Heads { key, heads } = gateway.get(Ask::path(&["audit", "heads"])).await?;
    Ok((Some(key), heads))
}

fn of_file(path: &Path) -> Result<Vec<Head>, Error> {
    let mut heads = Vec::new();
    for line in file_lines(path)? {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let head = serde_json::from_str(&line);
        heads.push(head.map_err(|error| Error::Wrong(format!("{}: no head: {error}", path.display())))?);
    }
    Ok(heads)
}

/// Insisted upon, NATS has to answer; otherwise it is asked if the gateway is asked too.
async fn of_nats(
    online: bool,
    nats: &cli::Link,
    command: &cli::Verify,
    warnings: &mut Vec<String>,
) -> Result<Vec<Head>, Error> {
    if command.nats {
        return published(&link::connect(nats).await?).await;
    }
    if !online {
        return Ok(Vec::new());
    }
    let read = timeout(PATIENCE, async { published(&link::connect(nats).await?).await }).await;
    match read {
        Ok(Ok(heads)) => Ok(heads),
        Ok(Err(error)) => {
            warnings.push(format!("the heads that NATS keeps were not read: {}", Chain(&error)));
            Ok(Vec::new())
        }
        Err(_) => {
            warnings.push("the heads that NATS keeps were not read: no answer in time".to_owned());
            Ok(Vec::new())
        }
    }
}

async fn published(broker: &Broker) -> Result<Vec<Head>, Error> {
    let stream = broker.jetstream.get_stream(streams::AUDIT).await.map_err(|_| {
        Error::nats(format!(
            "there is no stream {}; cynode-gateway makes it when it has nats.url",
            streams::AUDIT
        ))
    })?;
    if stream.cached_info().state.messages == 0 {
        return Ok(Vec::new());
    }
    let config = pull::OrderedConfig { deliver_policy: DeliverPolicy::All, ..Default::default() };
    let consumer = stream.create_consumer(config).await.map_err(Error::nats)?;
    let mut messages = consumer.messages().await.map_err(Error::nats)?;
    let mut heads = Vec::new();
    loop {
        let next = timeout(NEXT_WITHIN, messages.next()).await.map_err(Error::nats)?;
        let Some(message) = next else { return Ok(heads) };
        let message = message.map_err(Error::nats)?;
        // What is no head was put there by somebody else; it proves nothing and disproves nothing.
        heads.extend(serde_json::from_slice::<Head>(&message.payload));
        if message.info().map_err(Error::nats)?.pending == 0 {
            return Ok(heads);
        }
    }
}
