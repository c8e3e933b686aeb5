//! The bearer token. It lives in a file that others rewrite while we run, so we look again now and then, and at once
//! when the server refuses the one we have.

use std::{
    fmt, io,
    path::PathBuf,
    sync::PoisonError,
    time::{Duration, Instant, SystemTime},
};

use http::HeaderValue;
use tokio::{fs, sync::Mutex};
use tracing::warn;

use crate::Error;

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct Token {
    path: PathBuf,
    known: Mutex<Option<Known>>,
    /// What was read last, for those who cannot wait.
    latest: std::sync::Mutex<Option<String>>,
}

struct Known {
    header: HeaderValue,
    stamp: Stamp,
    looked: Instant,
}

/// By this a file that was rewritten is told from one that was not.
#[derive(PartialEq)]
struct Stamp(Option<SystemTime>, u64);

impl Token {
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: Mutex::new(None), latest: Default::default() }
    }

    /// The value of the `Authorization` header.
    pub async fn header(&self) -> Result<HeaderValue, Error> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_mut() {
            if known.looked.elapsed() < LOOK_EVERY {
                return Ok(known.header.clone());
            }
            known.looked = Instant::now();
            match self.stamp().await {
                Ok(stamp) if stamp == known.stamp => return Ok(known.header.clone()),
                Ok(_) => {}
                Err(error) => return Ok(self.keep(known, &error)),
            }
        }
        match (self.read().await, known.as_mut()) {
            (Ok(read), _) => Ok(known.insert(read).header.clone()),
            (Err(error), Some(known)) => Ok(self.keep(known, &error)),
            (Err(error), None) => Err(Error::Token(self.path.clone(), error)),
        }
    }

    /// What the file holds now, if it is not what was used.
    pub(crate) async fn newer_than(&self, used: &HeaderValue) -> Option<HeaderValue> {
        let mut known = self.known.lock().await;
        // Unreadable at this moment: then there is nothing newer, and the refusal stands.
        let read = self.read().await.ok()?;
        let header = known.insert(read).header.clone();
        (header != used).then_some(header)
    }

    /// Takes the token out of a text in which a server may have quoted it.
    pub fn mask(&self, text: String) -> String {
        match self.latest.lock().unwrap_or_else(PoisonError::into_inner).as_deref() {
            Some(token) => text.replace(token, "[token]"),
            None => text,
        }
    }

    /// While the file is being replaced it may be gone; the server decides how long the old token is good.
    fn keep(&self, known: &Known, error: &io::Error) -> HeaderValue {
        warn!(path = %self.path.display(), %error, "The token file cannot be read; using the last token.");
        known.header.clone()
    }

    async fn stamp(&self) -> io::Result<Stamp> {
        let about = fs::metadata(&self.path).await?;
        Ok(Stamp(about.modified().ok(), about.len()))
    }

    async fn read(&self) -> io::Result<Known> {
        // The stamp first: if the file changes in between, the next look sees that.
        let stamp = self.stamp().await?;
        let text = fs::read_to_string(&self.path).await?;
        let token = text.trim();
        if token.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a token that a header can carry"))?;
        header.set_sensitive(true);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.to_owned());
        Ok(Known { header, stamp, looked: Instant::now() })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("path", &self.path).finish_non_exhaustive()
    }
}
