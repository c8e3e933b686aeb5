//! The audit: query, live tail, export and verification of the hash chain.

use std::{collections::VecDeque, time::Duration};

use api::{AuditVerification, Heads, NodeAlarm, NodeAudit, NodeLease, Pruned};
use futures_util::{Stream, stream};
use subjects::audit::{ChainVerifier, Row, pruning_is_signed};
use tokio::{sync::watch, time::timeout};
use tracing::error;

use audit::{Filter, bounds};
use store::{
    Store,
    entity::{edge_alarm, edge_lease},
};

use crate::{Actor, Admin, Error};

const ROWS_PER_READ: u64 = 500;
/// Most leases and alarms of nodes that are listed.
const MAX_OF_NODES: u64 = 1000;
/// Other instances append to the same chain without notifying this one, so it is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

impl Admin {
    pub(crate) async fn query_audit(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Row>, Error> {
        actor.ensure_admin()?;
        Ok(audit::search(&self.store, filter).await?)
    }

    /// Streams rows after `after`, or only new ones if it is `None`. Ends when the gateway stops or the store
    /// fails.
    pub(crate) async fn tail_audit(
        &self,
        actor: &Actor,
        after: Option<i64>,
    ) -> Result<impl Stream<Item = Row> + Send + use<>, Error> {
        actor.ensure_admin()?;
        let seq = match after {
            Some(after) => after,
            None => bounds(self.store.read()).await?.seq,
        };
        let tail = Tail { store: self.store.clone(), head: self.ledger.head(), seq, read: VecDeque::new() };
        let stop = self.stop.clone().cancelled_owned();
        let rows = stream::unfold(tail, |mut tail| async { Some((tail.next().await?, tail)) });
        Ok(stream::StreamExt::take_until(rows, Box::pin(stop)))
    }

    /// Returns where the chain begins, and a stream of its rows in order up to the current head.
    pub(crate) async fn export_audit(
        &self,
        actor: &Actor,
    ) -> Result<(Pruned, impl Stream<Item = Result<Row, Error>> + Send + use<>), Error> {
        actor.ensure_admin()?;
        let head = bounds(self.store.read()).await?;
        let pruned = Pruned { pruned_seq: head.pruned_seq, pruned_hash: head.pruned_hash };
        Ok((pruned, stream_rows(self.store.clone(), head.pruned_seq, head.seq)))
    }

    /// Returns the heads from the gateway's file. They do not protect against an attacker who can write both
    /// that file and the store: for that, compare with a copy that is kept elsewhere.
    pub(crate) async fn audit_heads(&self, actor: &Actor) -> Result<Heads, Error> {
        actor.ensure_admin()?;
        self.heads().await
    }

    /// Verifies the whole chain against the heads from the gateway's file.
    pub(crate) async fn verify_audit(&self, actor: &Actor) -> Result<AuditVerification, Error> {
        actor.ensure_admin()?;
        let Heads { key, heads } = self.heads().await?;
        let head = bounds(self.store.read()).await?;
        let bad = |rows, row, problem: String| AuditVerification {
            ok: false,
            rows,
            heads: 0,
            bad_row: Some(row),
            problem: Some(problem),
        };
        if let Some(forged) = heads.iter().find(|head| !head.is_signed_by(&key)) {
            let problem = format!("the head of row {} is not signed by {key}", forged.seq);
            return Ok(bad(0, forged.seq, problem));
        }
        if !heads.is_empty() && !pruning_is_signed(head.pruned_seq, &head.pruned_hash, &heads) {
            let problem =
                format!("rows up to {} are missing, and no signed head covers the pruning", head.pruned_seq);
            return Ok(bad(0, head.pruned_seq, problem));
        }
        let mut chain = ChainVerifier::new(head.pruned_seq, &head.pruned_hash, heads);
        let mut seq = head.pruned_seq;
        while seq < head.seq {
            let rows = audit::rows_after(&self.store, seq, ROWS_PER_READ).await?;
            let Some(last) = rows.last().map(|row| row.seq) else { break };
            for row in rows.iter().take_while(|row| row.seq <= head.seq) {
                if let Err(broken) = chain.check(row) {
                    return Ok(bad(row.seq - head.pruned_seq - 1, broken.row(), broken.to_string()));
                }
            }
            seq = last;
        }
        Ok(match chain.finish() {
            Err(broken) => bad(seq - head.pruned_seq, broken.row(), broken.to_string()),
            Ok((last, _)) if last < head.seq => {
                bad(last - head.pruned_seq, last + 1, format!("row {} is missing", last + 1))
            }
            Ok((last, heads)) => AuditVerification {
                ok: true,
                rows: last - head.pruned_seq,
                heads,
                bad_row: None,
                problem: None,
            },
        })
    }

    /// Returns what is known of the audit of nodes, and the alarms about it.
    pub(crate) async fn node_audit(&self, actor: &Actor) -> Result<NodeAudit, Error> {
        actor.ensure_admin()?;
        let leases = audit::edge::leases(&self.store, MAX_OF_NODES).await?;
        let alarms = audit::edge::alarms(&self.store, false, MAX_OF_NODES).await?;
        Ok(NodeAudit {
            leases: leases.into_iter().map(to_node_lease).collect(),
            alarms: alarms.into_iter().map(to_node_alarm).collect(),
        })
    }

    async fn heads(&self) -> Result<Heads, Error> {
        let (key, seal) = (self.seal.public_key(), self.seal.clone());
        let read = tokio::task::spawn_blocking(move || seal.heads()).await;
        match read {
            Ok(Ok(heads)) => Ok(Heads { key, heads }),
            Ok(Err(error)) => {
                error!(error = %broker::Chain(&error), "Reading audit heads failed.");
                Err(Error::Unavailable)
            }
            Err(error) => {
                error!(%error, "Reading audit heads panicked.");
                Err(Error::Unavailable)
            }
        }
    }
}

fn to_node_lease(row: edge_lease::Model) -> NodeLease {
    NodeLease {
        lease_id: row.lease_id,
        parent_id: row.parent_id,
        job_id: row.job_id,
        node: row.node,
        holder: row.holder,
        bound_at: row.bound_at,
        expires_at: row.expires_at,
        lines: row.lines,
        head: row.head,
        stated_lines: row.stated_lines,
        stated_head: row.stated_head,
        closed_at: row.closed_at,
        close_reason: row.close_reason,
    }
}

fn to_node_alarm(row: edge_alarm::Model) -> NodeAlarm {
    NodeAlarm {
        node: row.node,
        lease_id: row.lease_id,
        kind: row.kind,
        line: row.line,
        detail: row.detail,
        raised_at: row.raised_at,
        resolved_at: row.resolved_at,
    }
}

/// Streams the rows after `after`, up to and including `until`.
fn stream_rows(store: Store, after: i64, until: i64) -> impl Stream<Item = Result<Row, Error>> + Send {
    let begin = (store, after, VecDeque::<Row>::new());
    stream::try_unfold(begin, move |(store, mut seq, mut read)| async move {
        if read.is_empty() && seq < until {
            read = audit::rows_after(&store, seq, ROWS_PER_READ).await?.into();
        }
        let row = read.pop_front().filter(|row| row.seq <= until);
        Ok(row.map(|row| {
            seq = row.seq;
            (row, (store, seq, read))
        }))
    })
}

/// Position of a live tail in the chain.
struct Tail {
    store: Store,
    head: watch::Receiver<(i64, String)>,
    seq: i64,
    read: VecDeque<Row>,
}

impl Tail {
    async fn next(&mut self) -> Option<Row> {
        loop {
            if let Some(row) = self.read.pop_front() {
                self.seq = row.seq;
                return Some(row);
            }
            match audit::rows_after(&self.store, self.seq, ROWS_PER_READ).await {
                Ok(rows) if rows.is_empty() => {
                    // After a notification or the timeout, read again.
                    if let Ok(Err(_)) = timeout(POLL_INTERVAL, self.head.changed()).await {
                        return None;
                    }
                }
                Ok(rows) => self.read = rows.into(),
                Err(error) => {
                    error!(%error, "Store not available; audit watch ended.");
                    return None;
                }
            }
        }
    }
}
