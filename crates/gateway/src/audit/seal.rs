//! The head of the chain, signed and kept where the store's owner cannot change it.

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

use super::chain::ends;
use crate::{clock, nats::Nats, store::Store};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read or create the signing key {}", .0.display())]
    KeyFile(PathBuf, #[source] io::Error),
    #[error("{} contains no nkey seed", .0.display())]
    NoKey(PathBuf),
    #[error("signing the head of the audit")]
    Sign(#[source] nkeys::error::Error),
    #[error("writing the heads of the audit to {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
    #[error("creating the stream of audit heads")]
    Stream(#[source] Unsent),
}

/// Whatever kept a head from being published.
type Unsent = Box<dyn std::error::Error + Send + Sync>;

/// Signs heads, and keeps them in a file and, where there is NATS, in a stream.
#[derive(Debug)]
pub struct Seal {
    key: KeyPair,
    file: PathBuf,
    nats: Option<Arc<Nats>>,
    /// Whether the stream is there, as far as we know.
    has_stream: AtomicBool,
}

/// The last head that was sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    pub seq: i64,
    pruned_seq: i64,
}

impl Seal {
    /// Makes a key where there is none yet.
    pub fn open(key_file: &Path, file: PathBuf, nats: Option<Arc<Nats>>) -> Result<Self, Error> {
        let wrong = |error| Error::KeyFile(key_file.to_owned(), error);
        let seed = match fs::read_to_string(key_file) {
            Ok(seed) => seed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let seed = KeyPair::new_user().seed().map_err(Error::Sign)?;
                crate::secret_file::create(key_file, &seed).map_err(wrong)?;
                seed
            }
            Err(error) => return Err(wrong(error)),
        };
        let key = KeyPair::from_seed(seed.trim()).map_err(|_| Error::NoKey(key_file.to_owned()))?;
        Ok(Self { key, file, nats, has_stream: AtomicBool::new(false) })
    }

    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// Seals where the chain ends now, unless that is what was sealed `last`.
    pub async fn put(&self, store: &Store, last: Sealed) -> Result<Sealed, Error> {
        let head = ends(store.read()).await?;
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
        let wrong = |error| Error::File(self.file.clone(), error);
        let mut line = serde_json::to_vec(head).map_err(|error| wrong(error.into()))?;
        line.push(b'\n');
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file).map_err(wrong)?;
        file.write_all(&line).map_err(wrong)
    }

    /// The file has it already. NATS may be away; the next head says all that this one says.
    async fn publish(&self, head: &Head) {
        let Some(nats) = &self.nats else { return };
        match self.send(nats, head).await {
            Ok(stream_seq) => debug!(seq = head.seq, stream_seq, "Audit head published."),
            Err(error) => warn!(%error, seq = head.seq, "Audit head not published."),
        }
    }

    async fn send(&self, nats: &Nats, head: &Head) -> Result<u64, Unsent> {
        let jetstream = nats.broker().await?.jetstream;
        self.make_stream(&jetstream).await?;
        let body = serde_json::to_vec(head)?;
        Ok(jetstream.publish(HEAD_SUBJECT, body.into()).await?.await?.sequence)
    }

    /// Makes the stream for heads if NATS is there. A server that keeps no streams is told now, not with the first head.
    pub async fn prepare(&self) -> Result<(), Error> {
        let Some(nats) = &self.nats else { return Ok(()) };
        match nats.broker().await {
            Ok(broker) => self.make_stream(&broker.jetstream).await.map_err(Error::Stream),
            Err(_) => Ok(()),
        }
    }

    async fn make_stream(&self, jetstream: &jetstream::Context) -> Result<(), Unsent> {
        if !self.has_stream.load(Ordering::Relaxed) {
            jetstream.get_or_create_stream(subjects::streams::audit(1)).await?;
            self.has_stream.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The heads that the file holds.
    pub fn heads(&self) -> Result<Vec<Head>, Error> {
        let wrong = |error| Error::File(self.file.clone(), error);
        let file = match fs::File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(wrong(error)),
        };
        let lines = io::BufReader::new(file).lines();
        // A line that was cut off by a crash is not a head.
        lines
            .map(|line| Ok(serde_json::from_str(&line?).ok()))
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()
            .map_err(wrong)
    }
}
