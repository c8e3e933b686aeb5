//! Collects signed heads from the gateway, a file and NATS.

use std::{path::Path, time::Duration};

use api::Heads;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use broker::{Broker, Chain};
use futures_util::StreamExt;
use subjects::{audit::Head, streams};
use tokio::time::timeout;

use super::{edge::EdgeMessage, file_lines};
use crate::{
    cli,
    error::Error,
    gateway::{ApiRequest, Gateway},
    link,
};

/// Time for NATS unless `--nats` requires it.
const NATS_TIMEOUT: Duration = Duration::from_secs(3);
/// The next head is already stored, so a longer wait means an error.
const NEXT_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Heads with a valid signature, and the problems found while collecting them.
#[derive(Debug, Default)]
pub(super) struct CollectedHeads {
    pub(super) heads: Vec<Head>,
    /// Heads from outside the gateway that others have signed.
    pub(super) of_others: Vec<Head>,
    pub(super) from_nats: usize,
    pub(super) from_file: usize,
    pub(super) from_gateway: usize,
    pub(super) key: Option<String>,
    /// A problem that fails the verification whatever the chain.
    pub(super) problem: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl CollectedHeads {
    /// Drops heads of rows after `last`.
    pub(super) fn drop_after(&mut self, last: i64) {
        let before = self.heads.len();
        self.heads.retain(|head| head.seq <= last);
        self.of_others.retain(|head| head.seq <= last);
        let later = before - self.heads.len();
        if later > 0 {
            self.warnings.push(format!("{later} heads of rows after {last} were ignored"));
        }
    }

    /// Adds the heads signed by one of the keys and returns their number. Others are kept if `keep_others`.
    fn add_signed(&mut self, heads: Vec<Head>, keys: &[String], keep_others: bool) -> usize {
        let before = self.heads.len();
        let mut ignored = 0;
        for head in heads {
            let (is_trusted, is_signed) = (keys.contains(&head.key), head.is_signed_by(&head.key));
            match (is_trusted, is_signed) {
                (true, true) => self.heads.push(head),
                (true, false) => {
                    let (row, key) = (head.seq, head.key);
                    self.problem = Some(format!("the head of row {row} has an invalid signature of {key}"));
                }
                (false, true) if keep_others => self.of_others.push(head),
                (false, _) => ignored += 1,
            }
        }
        if ignored > 0 {
            self.warnings.push(format!("{ignored} heads signed by another key were ignored"));
        }
        self.heads.len() - before
    }
}

/// Collects the heads that trusted keys signed: those of `--key`, or else the key of the gateway, or else
/// that of the newest head from outside. Without `--key`, the heads of other gateways are collected too.
pub(super) async fn collect(
    gateway: Option<&Gateway>,
    nats: &cli::Link,
    command: &cli::Verify,
) -> Result<CollectedHeads, Error> {
    let mut collected = CollectedHeads::default();
    let (gateway_key, own) = match gateway {
        Some(gateway) => read_from_gateway(gateway).await?,
        None => (None, Vec::new()),
    };
    let filed = match &command.heads {
        Some(path) => read_from_file(path)?,
        None => Vec::new(),
    };
    let published = read_from_nats(gateway.is_some(), nats, command, &mut collected.warnings).await?;
    let outside = published.last().or(filed.last()).map(|head| head.key.clone());
    let is_assumed = command.key.is_empty();
    let keys: Vec<String> =
        if is_assumed { gateway_key.or(outside).into_iter().collect() } else { command.key.clone() };
    if keys.is_empty() {
        collected
            .warnings
            .push("no signed heads found: a rewritten chain would pass verification".to_owned());
        return Ok(collected);
    }
    let shown = keys.join(", ");
    if is_assumed {
        let warning = format!("the signer is assumed to be {shown}; pass --key to require a key");
        collected.warnings.push(warning);
    }
    collected.from_nats = collected.add_signed(published, &keys, is_assumed);
    collected.from_file = collected.add_signed(filed, &keys, is_assumed);
    // Who changes the store may add heads of any key there.
    collected.from_gateway = collected.add_signed(own, &keys, false);
    if let Some(key) = keys.iter().find(|key| !collected.heads.iter().any(|head| head.key == **key))
        && !is_assumed
    {
        collected.problem = Some(format!("no head is signed by {key}"));
    }
    if collected.from_nats + collected.from_file == 0 {
        let warning = "no head came from outside the gateway: an attacker on its machine could have replaced \
                       the whole chain; pass --nats or --heads";
        collected.warnings.push(warning.to_owned());
    }
    // The same head may be stored in several places.
    collected.of_others.sort_by(|a, b| (a.seq, &a.signature).cmp(&(b.seq, &b.signature)));
    collected.of_others.dedup();
    collected.heads.sort_by(|a, b| (a.seq, &a.hash, a.pruned_seq).cmp(&(b.seq, &b.hash, b.pruned_seq)));
    collected.heads.dedup_by(|a, b| (a.seq, &a.hash, a.pruned_seq) == (b.seq, &b.hash, b.pruned_seq));
    collected.key = Some(shown);
    Ok(collected)
}

async fn read_from_gateway(gateway: &Gateway) -> Result<(Option<String>, Vec<Head>), Error> {
    let Heads { key, heads } = gateway.ask(ApiRequest::get(&["audit", "heads"])).await?;
    Ok((Some(key), heads))
}

fn read_from_file(path: &Path) -> Result<Vec<Head>, Error> {
    let mut heads = Vec::new();
    for line in file_lines(path)? {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let head = serde_json::from_str(&line);
        heads.push(
            head.map_err(|error| Error::Other(format!("{}: not a signed head: {error}", path.display())))?,
        );
    }
    Ok(heads)
}

/// Reads the heads from NATS. With `--nats` NATS must answer; otherwise it is tried if the gateway is used as
/// well, and a failure is a warning.
async fn read_from_nats(
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
    let read = timeout(NATS_TIMEOUT, async { published(&link::connect(nats).await?).await }).await;
    match read {
        Ok(Ok(heads)) => Ok(heads),
        Ok(Err(error)) => {
            warnings.push(format!("the heads in NATS were not read: {}", Chain(&error)));
            Ok(Vec::new())
        }
        Err(_) => {
            warnings.push("the heads in NATS were not read: timed out".to_owned());
            Ok(Vec::new())
        }
    }
}

/// Reads the audit of nodes from NATS, in the order of the stream. With `--nats` NATS must answer; otherwise
/// a failure is a warning.
pub(super) async fn read_edge_audit(
    nats: &cli::Link,
    command: &cli::Verify,
    warnings: &mut Vec<String>,
) -> Result<Option<Vec<EdgeMessage>>, Error> {
    let read = async {
        let broker = link::connect(nats).await?;
        stored(&broker, streams::EDGE_AUDIT, |subject, body| Some((subject.to_owned(), body.to_vec()))).await
    };
    if command.nats {
        return read.await.map(Some);
    }
    let why = match timeout(NATS_TIMEOUT * 4, read).await {
        Ok(Ok(messages)) => return Ok(Some(messages)),
        Ok(Err(error)) => Chain(&error).to_string(),
        Err(_) => "timed out".to_owned(),
    };
    warnings.push(format!("the audit of nodes in NATS was not read, only the gateway's alarms: {why}"));
    Ok(None)
}

async fn published(broker: &Broker) -> Result<Vec<Head>, Error> {
    // Other messages in the stream are ignored; they neither prove nor disprove anything.
    stored(broker, streams::AUDIT, |_, body| serde_json::from_slice::<Head>(body).ok()).await
}

/// Reads all messages of a stream.
async fn stored<T>(
    broker: &Broker,
    name: &str,
    read: impl Fn(&str, &[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let stream = broker.jetstream.get_stream(name).await.map_err(|_| {
        Error::nats(format!("stream {name} not found; cynode-gateway creates it if nats.url is set"))
    })?;
    if stream.cached_info().state.messages == 0 {
        return Ok(Vec::new());
    }
    let config = pull::OrderedConfig { deliver_policy: DeliverPolicy::All, ..Default::default() };
    let consumer = stream.create_consumer(config).await.map_err(Error::nats)?;
    let mut messages = consumer.messages().await.map_err(Error::nats)?;
    let mut found = Vec::new();
    loop {
        let next = timeout(NEXT_HEAD_TIMEOUT, messages.next()).await.map_err(Error::nats)?;
        let Some(message) = next else { return Ok(found) };
        let message = message.map_err(Error::nats)?;
        found.extend(read(&message.subject, &message.payload));
        if message.info().map_err(Error::nats)?.pending == 0 {
            return Ok(found);
        }
    }
}
