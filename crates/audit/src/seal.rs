//! Signs heads of the chain and keeps them outside the store, where the owner of the store cannot change
//! them.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_nats::jetstream;
use nkeys::KeyPair;
use sea_orm::DbErr;
use subjects::audit::{HEAD_SUBJECT, Head};
use tracing::{debug, warn};

use super::chain::bounds;
use store::{Store, clock};

use broker::OnDemand;
use secrets::signing_key;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Key(#[from] signing_key::Error),
    #[error("signing the head of the audit")]
    Sign(#[source] nkeys::error::Error),
    #[error("writing the heads of the audit to {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
    #[error("creating the stream of audit heads")]
    Stream(#[source] PublishError),
}

/// Any error that prevented a head from being published.
type PublishError = Box<dyn std::error::Error + Send + Sync>;

/// Signs heads and keeps them in a file and, if NATS is configured, in a stream.
#[derive(Debug)]
pub struct Seal {
    key: KeyPair,
    file: PathBuf,
    nats: Option<Arc<OnDemand>>,
    /// Set once the stream is known to exist.
    has_stream: AtomicBool,
}

/// The last head that was sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    pub seq: i64,
    pruned_seq: i64,
}

impl Seal {
    /// Reads the signing key; creates it if the file does not exist.
    pub fn open(key_file: &Path, file: PathBuf, nats: Option<Arc<OnDemand>>) -> Result<Self, Error> {
        let key = signing_key::read_or_create(key_file)?;
        Ok(Self { key, file, nats, has_stream: AtomicBool::new(false) })
    }

    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// Signs and stores the current head, unless it is the one that was sealed `last`. Returns the sealed
    /// head. A failure to publish to NATS is only logged.
    pub async fn seal_head(&self, store: &Store, last: Sealed) -> Result<Sealed, Error> {
        let head = bounds(store.read()).await?;
        let now = Sealed { seq: head.seq, pruned_seq: head.pruned_seq };
        if now == last || head.seq == 0 {
            return Ok(last);
        }
        let head = Head {
            seq: head.seq,
            hash: head.hash,
            pruned_seq: head.pruned_seq,
            pruned_hash: head.pruned_hash,
            at: clock::now(),
            key: String::new(),
            signature: String::new(),
        };
        let head = head.sign(&self.key).map_err(Error::Sign)?;
        self.write_file(&head)?;
        self.publish(&head).await;
        Ok(now)
    }

    fn write_file(&self, head: &Head) -> Result<(), Error> {
        let file_error = |error| Error::File(self.file.clone(), error);
        let mut line = serde_json::to_vec(head).map_err(|error| file_error(error.into()))?;
        line.push(b'\n');
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file).map_err(file_error)?;
        file.write_all(&line).map_err(file_error)
    }

    /// Publishes a head that is already in the file. A failure is logged: the next head covers the same rows.
    async fn publish(&self, head: &Head) {
        let Some(nats) = &self.nats else { return };
        match self.send(nats, head).await {
            Ok(stream_seq) => debug!(seq = head.seq, stream_seq, "Audit head published."),
            Err(error) => warn!(%error, seq = head.seq, "Audit head not published."),
        }
    }

    async fn send(&self, nats: &OnDemand, head: &Head) -> Result<u64, PublishError> {
        let jetstream = nats.broker().await?.jetstream;
        self.ensure_stream(&jetstream).await?;
        let body = serde_json::to_vec(head)?;
        Ok(jetstream.publish(HEAD_SUBJECT, body.into()).await?.await?.sequence)
    }

    /// Creates the stream for heads if NATS is reachable, so that a server without JetStream is reported at
    /// startup and not with the first head.
    pub async fn prepare(&self) -> Result<(), Error> {
        let Some(nats) = &self.nats else { return Ok(()) };
        match nats.broker().await {
            Ok(broker) => self.ensure_stream(&broker.jetstream).await.map_err(Error::Stream),
            Err(_) => Ok(()),
        }
    }

    async fn ensure_stream(&self, jetstream: &jetstream::Context) -> Result<(), PublishError> {
        if !self.has_stream.load(Ordering::Relaxed) {
            jetstream.get_or_create_stream(subjects::streams::audit(1)).await?;
            self.has_stream.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads the heads from the file.
    pub fn heads(&self) -> Result<Vec<Head>, Error> {
        let file_error = |error| Error::File(self.file.clone(), error);
        let file = match fs::File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(file_error(error)),
        };
        let lines = io::BufReader::new(file).lines();
        // Skips a line that a crash left incomplete.
        lines
            .map(|line| Ok(serde_json::from_str(&line?).ok()))
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()
            .map_err(file_error)
    }
}
