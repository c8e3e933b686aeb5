use std::{collections::VecDeque, time::Duration};

use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use subjects::audit::{Chain, Head, Row, pruning_is_signed};
use tokio::{sync::watch, time::timeout};
use tracing::error;
use utoipa::ToSchema;

use crate::{
    admin::{Actor, Admin, Error},
    audit::{self, Filter, ends},
    store::Store,
};

const PIECE: u64 = 500;
/// Other instances write into the same chain and cannot wake us.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where the chain begins: rows up to this one were kept long enough and are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pruned {
    pub pruned_seq: i64,
    pub pruned_hash: String,
}

/// Signed heads of the chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heads {
    /// The public key of whoever signed.
    pub key: String,
    pub heads: Vec<Head>,
}

/// What became of holding the chain against the heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verified {
    pub ok: bool,
    /// How many rows were followed.
    pub rows: i64,
    /// How many signed heads were met.
    pub heads: usize,
    /// The first row that is wrong.
    pub bad_row: Option<i64>,
    pub problem: Option<String>,
}

impl Admin {
    pub async fn query_audit(&self, actor: &Actor, filter: &Filter) -> Result<Vec<Row>, Error> {
        actor.sees_everything()?;
        Ok(audit::search(&self.store, filter).await?)
    }

    /// Rows as they come: those after `after`, or from now on. Ends when the gateway stops.
    pub async fn tail_audit(
        &self,
        actor: &Actor,
        after: Option<i64>,
    ) -> Result<impl Stream<Item = Row> + Send + use<>, Error> {
        actor.sees_everything()?;
        let seq = match after {
            Some(after) => after,
            None => ends(self.store.read()).await?.seq,
        };
        let tail =
            Tail { store: self.store.clone(), head: self.calls.ledger.head(), seq, read: VecDeque::new() };
        let stop = self.stop.clone().cancelled_owned();
        let rows = stream::unfold(tail, |mut tail| async { Some((tail.next().await?, tail)) });
        Ok(stream::StreamExt::take_until(rows, Box::pin(stop)))
    }

    /// Where the chain begins, and then all of it in order, as it is now.
    pub async fn export_audit(
        &self,
        actor: &Actor,
    ) -> Result<(Pruned, impl Stream<Item = Result<Row, Error>> + Send + use<>), Error> {
        actor.sees_everything()?;
        let head = ends(self.store.read()).await?;
        let pruned = Pruned { pruned_seq: head.pruned_seq, pruned_hash: head.pruned_hash };
        Ok((pruned, chain(self.store.clone(), head.pruned_seq, head.seq)))
    }

    /// The heads that the gateway's file holds. Whoever can write that file and the store could have made them all, so
    /// a copy that is kept elsewhere is worth more.
    pub async fn audit_heads(&self, actor: &Actor) -> Result<Heads, Error> {
        actor.sees_everything()?;
        self.heads().await
    }

    /// Follows the whole chain and holds it against the heads of the file.
    pub async fn verify_audit(&self, actor: &Actor) -> Result<Verified, Error> {
        actor.sees_everything()?;
        let Heads { key, heads } = self.heads().await?;
        let head = ends(self.store.read()).await?;
        let bad = |rows, row, problem: String| Verified {
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
            let problem = format!("rows up to {} are gone, and no signed head says so", head.pruned_seq);
            return Ok(bad(0, head.pruned_seq, problem));
        }
        let mut chain = Chain::begin(head.pruned_seq, &head.pruned_hash, heads);
        let mut seq = head.pruned_seq;
        while seq < head.seq {
            let rows = audit::rows_after(&self.store, seq, PIECE).await?;
            let Some(last) = rows.last().map(|row| row.seq) else { break };
            for row in rows.iter().take_while(|row| row.seq <= head.seq) {
                if let Err(broken) = chain.follow(row) {
                    return Ok(bad(row.seq - head.pruned_seq - 1, broken.row(), broken.to_string()));
                }
            }
            seq = last;
        }
        Ok(match chain.end() {
            Err(broken) => bad(seq - head.pruned_seq, broken.row(), broken.to_string()),
            Ok((last, _)) if last < head.seq => {
                bad(last - head.pruned_seq, last + 1, format!("row {} is missing", last + 1))
            }
            Ok((last, heads)) => {
                Verified { ok: true, rows: last - head.pruned_seq, heads, bad_row: None, problem: None }
            }
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

/// The rows after one and up to another.
fn chain(store: Store, after: i64, until: i64) -> impl Stream<Item = Result<Row, Error>> + Send {
    let begin = (store, after, VecDeque::<Row>::new());
    stream::try_unfold(begin, move |(store, mut seq, mut read)| async move {
        if read.is_empty() && seq < until {
            read = audit::rows_after(&store, seq, PIECE).await?.into();
        }
        let row = read.pop_front().filter(|row| row.seq <= until);
        Ok(row.map(|row| {
            seq = row.seq;
            (row, (store, seq, read))
        }))
    })
}

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
            match audit::rows_after(&self.store, self.seq, PIECE).await {
                Ok(rows) if rows.is_empty() => {
                    // In time or not: then we look.
                    if let Ok(Err(_)) = timeout(LOOK_EVERY, self.head.changed()).await {
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
