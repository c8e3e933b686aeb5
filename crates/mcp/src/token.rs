//! The bearer token, read from a file that may be replaced at any time. The file is checked for changes once
//! a second at most, and immediately when the server refuses the token.

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

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub struct Token {
    path: PathBuf,
    cached: Mutex<Option<CachedToken>>,
    /// The last token that was read, available without awaiting.
    latest: std::sync::Mutex<Option<String>>,
}

struct CachedToken {
    header: HeaderValue,
    stamp: FileStamp,
    checked_at: Instant,
}

/// The modification time and size of the file, to detect changes.
#[derive(PartialEq)]
struct FileStamp(Option<SystemTime>, u64);

impl Token {
    pub fn new(path: PathBuf) -> Self {
        Self { path, cached: Mutex::new(None), latest: Default::default() }
    }

    /// Returns the value of the `Authorization` header. Reads the file if it has changed.
    pub async fn header(&self) -> Result<HeaderValue, Error> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = cached.as_mut() {
            if cached.checked_at.elapsed() < CHECK_INTERVAL {
                return Ok(cached.header.clone());
            }
            cached.checked_at = Instant::now();
            match self.stamp().await {
                Ok(stamp) if stamp == cached.stamp => return Ok(cached.header.clone()),
                Ok(_) => {}
                Err(error) => return Ok(self.keep_cached(cached, &error)),
            }
        }
        match (self.read().await, cached.as_mut()) {
            (Ok(read), _) => Ok(cached.insert(read).header.clone()),
            (Err(error), Some(cached)) => Ok(self.keep_cached(cached, &error)),
            (Err(error), None) => Err(Error::Token(self.path.clone(), error)),
        }
    }

    /// Reads the file again and returns its token if it differs from `used`.
    pub(crate) async fn reload_if_changed(&self, used: &HeaderValue) -> Option<HeaderValue> {
        let mut cached = self.cached.lock().await;
        // If the file cannot be read, there is no newer token and the refusal stands.
        let read = self.read().await.ok()?;
        let header = cached.insert(read).header.clone();
        (header != used).then_some(header)
    }

    /// Replaces the token in a text in which a server may have quoted it.
    pub fn mask(&self, text: String) -> String {
        match self.latest.lock().unwrap_or_else(PoisonError::into_inner).as_deref() {
            Some(token) => text.replace(token, "[token]"),
            None => text,
        }
    }

    /// Returns the cached token after a failed read. The file may be missing while it is being replaced; the
    /// server decides how long the old token is valid.
    fn keep_cached(&self, cached: &CachedToken, error: &io::Error) -> HeaderValue {
        warn!(path = %self.path.display(), %error, "The token file cannot be read; using the last token.");
        cached.header.clone()
    }

    async fn stamp(&self) -> io::Result<FileStamp> {
        let about = fs::metadata(&self.path).await?;
        Ok(FileStamp(about.modified().ok(), about.len()))
    }

    async fn read(&self) -> io::Result<CachedToken> {
        // The stamp is read first, so that a change in between is detected by the next check.
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
        Ok(CachedToken { header, stamp, checked_at: Instant::now() })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("path", &self.path).finish_non_exhaustive()
    }
}
