//! The key of a provider, read from a file that may be replaced at any time.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use http::{HeaderName, HeaderValue, header::AUTHORIZATION};
use secrets::file;
use tracing::warn;

use crate::config::Auth;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the key when its file has changed.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    auth: Auth,
    cached: Mutex<Option<Cached>>,
}

/// A key, and the header that carries it.
#[derive(Clone)]
pub(super) struct Credential {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    pub(super) secret: String,
}

#[derive(Clone, Debug)]
struct Cached {
    credential: Credential,
    stamp: Stamp,
    checked_at: Instant,
}

/// The modification time and size of the file, by which changes are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(Option<SystemTime>, u64);

impl KeyFile {
    pub(super) fn new(path: PathBuf, auth: Auth) -> Self {
        Self { path, auth, cached: Mutex::default() }
    }

    /// Returns the key. A file that cannot be read any more, for example while it is replaced, leaves the
    /// last key in use.
    pub(super) fn credential(&self) -> io::Result<Credential> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached.as_mut() {
            if known.checked_at.elapsed() < CHECK_INTERVAL {
                return Ok(known.credential.clone());
            }
            known.checked_at = Instant::now();
        }
        // The file is small and local, so reading it takes microseconds.
        match (self.read(cached.as_ref().map(|known| known.stamp)), cached.as_mut()) {
            (Ok(Some(read)), _) => Ok(cached.insert(read).credential.clone()),
            (Ok(None), Some(known)) => Ok(known.credential.clone()),
            (Err(error), Some(known)) => {
                let path = self.path.display();
                warn!(%path, %error, "Provider key file not readable; using the last key.");
                Ok(known.credential.clone())
            }
            (Err(error), None) => Err(error),
            (Ok(None), None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reads the file; `None` if it has not changed.
    fn read(&self, last: Option<Stamp>) -> io::Result<Option<Cached>> {
        // The stamp is read first, so that a change in between is detected by the next check.
        let about = fs::metadata(&self.path)?;
        let stamp = Stamp(about.modified().ok(), about.len());
        if last == Some(stamp) {
            return Ok(None);
        }
        let secret = file::read_private(&self.path)?;
        let (name, text) = match self.auth {
            Auth::Bearer => (AUTHORIZATION, format!("Bearer {secret}")),
            Auth::Header(name) => (HeaderName::from_static(name), secret.clone()),
        };
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a key that a header can carry"))?;
        value.set_sensitive(true);
        let credential = Credential { name, value, secret };
        Ok(Some(Cached { credential, stamp, checked_at: Instant::now() }))
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn replaced_key_is_read_again_and_a_missing_file_keeps_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        let file = KeyFile::new(path.clone(), Auth::Header("x-api-key"));
        assert!(file.credential().is_err());
        write("first\n");
        assert_eq!(file.credential().unwrap().secret, "first");
        let age = || file.cached.lock().unwrap().as_mut().unwrap().checked_at -= CHECK_INTERVAL;
        write("second one");
        assert_eq!(file.credential().unwrap().secret, "first", "checked once a second");
        age();
        assert_eq!(file.credential().unwrap().secret, "second one");
        fs::remove_file(&path).unwrap();
        age();
        let kept = file.credential().unwrap();
        assert_eq!((kept.secret.as_str(), kept.name.as_str()), ("second one", "x-api-key"));
        assert!(!format!("{file:?}").contains("second one"), "a key is never printed");
    }
}
