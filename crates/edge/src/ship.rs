//! Ships audit files to the stream, each line exactly once, in order.
//!
//! Every message is stored under a compare-and-set on its subject, after the message that this process read
//! last. So a crash, a repeated publish or a second process adds nothing twice: who loses reads where the
//! stream ends, and goes on from there.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::atomic::Ordering,
    time::Duration,
};

use async_nats::HeaderMap;
use broker::{Broker, Chain, Expect, PublishError, ReadError};
use bytes::Bytes;
use subjects::{
    InstanceId, NodeId, Pattern, Subject,
    edge::{Line, MAX_BODY_BYTES, Record, split_lines},
    streams,
};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    Edge,
    sidecar::{self, AUDIT},
};

/// Lines gather for this time before they are shipped.
const GATHER: Duration = Duration::from_millis(20);
/// How often the folder is looked through when no line was appended.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The file of a lease whose audit in the stream is another gets this end.
const FORKED: &str = "forked";

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("reading an audit file")]
    File(#[from] io::Error),
    #[error("publishing")]
    Publish(#[from] PublishError),
    #[error("reading the stream")]
    Read(#[from] ReadError),
}

/// How far the file of one lease is shipped.
#[derive(Clone, Debug, Default)]
pub struct Shipment {
    /// Whether the end of the stream is known.
    is_known: bool,
    sequence: u64,
    offset: u64,
    /// The last line in the stream.
    n: u64,
    is_closed: bool,
    is_forked: bool,
}

impl Shipment {
    /// Returns whether the last line of the lease is in the stream.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns whether the stream holds other lines than the file.
    pub fn is_forked(&self) -> bool {
        self.is_forked
    }
}

impl Edge {
    /// Ships what is in the folder, and what is appended, until `stop`. Files are removed when all their
    /// lines are in the stream.
    pub async fn ship(&self, broker: &Broker, stop: CancellationToken) {
        let mut shipments: HashMap<String, Shipment> = HashMap::new();
        let mut is_failing = false;
        loop {
            let round = self.ship_round(broker, &mut shipments).await;
            match (&round, is_failing) {
                (Err(error), false) => warn!(error = %Chain(error), "Audit of leases not shipped; retrying."),
                (Ok(()), true) => info!("Audit of leases is shipped again."),
                _ => {}
            }
            is_failing = round.is_err();
            let pause = async {
                if is_failing {
                    sleep(RETRY_INTERVAL).await;
                } else {
                    select! {
                        () = self.shared.appended.notified() => sleep(GATHER).await,
                        () = sleep(IDLE_INTERVAL) => {}
                    }
                }
            };
            select! {
                () = stop.cancelled() => return,
                () = pause => {}
            }
        }
    }

    /// Ships what is in the folder now. Returns whether all of it is in the stream.
    pub async fn ship_once(&self, broker: &Broker) -> bool {
        let shipped = self.ship_round(broker, &mut HashMap::new()).await;
        if let Err(error) = &shipped {
            debug!(error = %Chain(error), "Audit of leases not shipped.");
        }
        shipped.is_ok()
    }

    async fn ship_round(
        &self,
        broker: &Broker,
        shipments: &mut HashMap<String, Shipment>,
    ) -> Result<(), Failure> {
        let leases = sidecar::leases(&self.folder)?;
        shipments.retain(|lease, _| leases.contains(lease));
        let mut failed = None;
        for lease in leases {
            let Ok(id) = lease.parse::<InstanceId>() else { continue };
            let shipment = shipments.entry(lease.clone()).or_default();
            let path = sidecar::path(&self.folder, &lease, AUDIT);
            let before = shipment.n;
            let shipped = Box::pin(ship_file_with(broker, &self.shared.node, &id, &path, shipment)).await;
            self.shared.counts.shipped.fetch_add(shipment.n.saturating_sub(before), Ordering::Relaxed);
            let is_active = self.active().iter().any(|session| session.lease_id == lease);
            match shipped {
                Ok(()) if shipment.is_forked => {
                    self.active().iter().filter(|it| it.lease_id == lease).for_each(|it| it.revoke());
                    fs::rename(&path, path.with_extension(FORKED))?;
                }
                Ok(()) if shipment.is_closed && !is_active => sidecar::remove(&self.folder, &lease)?,
                Ok(()) => {}
                // The others are tried, too: only this one may be refused.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Ships the lines of one audit file that the stream does not have. Returns whether all could be shipped.
pub async fn ship_file(
    broker: &Broker,
    node: &NodeId,
    lease: &InstanceId,
    path: &Path,
    shipment: &mut Shipment,
) -> bool {
    ship_file_with(broker, node, lease, path, shipment).await.is_ok()
}

async fn ship_file_with(
    broker: &Broker,
    node: &NodeId,
    lease: &InstanceId,
    path: &Path,
    shipment: &mut Shipment,
) -> Result<(), Failure> {
    let subject = Subject::EdgeAudit(node.clone(), lease.clone());
    loop {
        if shipment.is_forked || shipment.is_closed {
            return Ok(());
        }
        if !shipment.is_known {
            find_end(broker, &subject, path, shipment).await?;
            continue;
        }
        let (body, last) = next_lines(path, shipment.offset)?;
        let Some(last) = last else { return Ok(()) };
        let over = Pattern::EdgeAudit(node.clone(), lease.clone());
        let expect = Expect { over, sequence: shipment.sequence };
        // Known again when this is confirmed; if it is not, it may be stored nevertheless.
        shipment.is_known = false;
        let (client, sent) = (&broker.client, body.clone());
        match broker::publish(client, &subject, HeaderMap::new(), sent, Some(&expect)).await {
            Ok(stored) => {
                shipment.sequence = stored.sequence;
                shipment.offset += body.len() as u64;
                shipment.n = last.n;
                shipment.is_closed = matches!(last.record, Record::Closed { .. });
                shipment.is_known = true;
            }
            // Another process, or an earlier try of this one, was first.
            Err(PublishError::Conflict { .. }) => debug!(%subject, "Stream has newer lines; reading them."),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Finds out where the stream ends, and the same line in the file.
async fn find_end(
    broker: &Broker,
    subject: &Subject,
    path: &Path,
    shipment: &mut Shipment,
) -> Result<(), Failure> {
    let last = broker::last_on(&broker.jetstream, streams::EDGE_AUDIT, subject).await?;
    let Some(message) = last else {
        *shipment = Shipment { is_known: true, ..Shipment::default() };
        return Ok(());
    };
    let stored = split_lines(&message.payload).last().map(<[u8]>::to_vec).unwrap_or_default();
    let body = fs::read(path)?;
    let mut offset = 0;
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        offset += line.len() as u64;
        if line.strip_suffix(b"\n") == Some(&stored) {
            let decoded = Line::decode(&stored).map(|(line, ..)| line);
            let n = decoded.as_ref().map_or(shipment.n, |line| line.n);
            let is_closed = decoded.is_some_and(|line| matches!(line.record, Record::Closed { .. }));
            let sequence = message.sequence;
            *shipment = Shipment { is_known: true, sequence, offset, n, is_closed, is_forked: false };
            return Ok(());
        }
    }
    error!(
        %subject,
        "The stream holds lines of this lease that the audit file does not; the lease is not used any more."
    );
    shipment.is_forked = true;
    Ok(())
}

/// Reads whole lines from `offset` on, as many as fit into a message. Returns the last of them, too.
fn next_lines(path: &Path, offset: u64) -> Result<(Bytes, Option<Line>), Failure> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut body = Vec::new();
    file.take(MAX_BODY_BYTES as u64).read_to_end(&mut body)?;
    let whole = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    body.truncate(whole);
    let last = split_lines(&body).last().map(|text| {
        // A line that cannot be read is evidence, and is shipped too.
        let unreadable = Line { n: 0, prev: String::new(), at: 0, record: Record::Resumed };
        Line::decode(text).map_or(unreadable, |(line, ..)| line)
    });
    Ok((body.into(), last))
}
