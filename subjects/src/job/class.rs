//! Classes of jobs: nodes of one pool that have the same engine, and the same image if the job names one.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PoolName, text::named_enum};

/// How much of an image's digest is part of a class, in hexadecimal digits.
const DIGEST_DIGITS: usize = 16;

named_enum! {
    /// What isolates a job from its node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Engine {
        /// bubblewrap: the programs of the node, read-only, in namespaces of the job's own.
        Bwrap = "bwrap",
        /// runc or runsc, from a root folder.
        Oci = "oci",
        /// podman or docker, from an image.
        Container = "container",
        /// A Kubernetes Job.
        Kubernetes = "kubernetes",
    }

    #[error("`{0}` is not an engine; it is `bwrap`, `oci`, `container` or `kubernetes`")]
    pub struct UnknownEngine;
}

impl Engine {
    /// Returns whether a job needs no image with this engine: it sees the programs of its node.
    pub const fn runs_without_image(self) -> bool {
        matches!(self, Self::Bwrap)
    }
}

/// The queue that a job waits in. Every node that serves the class can run it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    pub pool: PoolName,
    pub engine: Engine,
    /// The first digits of the image's digest.
    image: Option<Box<str>>,
}

impl Class {
    pub fn new(pool: PoolName, engine: Engine) -> Self {
        Self { pool, engine, image: None }
    }

    /// Returns the class of jobs with an image. `digest` is `sha256:` and 64 hexadecimal digits; `None` if it
    /// is not.
    pub fn with_image(pool: PoolName, engine: Engine, digest: &str) -> Option<Self> {
        let digits = digest.strip_prefix("sha256:")?;
        let is_digest = digits.len() == 64 && digits.bytes().all(is_hex);
        is_digest.then(|| Self { pool, engine, image: Some(digits[..DIGEST_DIGITS].into()) })
    }
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// One token: `<pool>.<engine>` would be two, and the name of a consumer has no dots.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.image {
            None => write!(f, "{}_{}", self.pool, self.engine),
            Some(image) => write!(f, "{}_{}_{image}", self.pool, self.engine),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a job class")]
pub struct UnknownClass(String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        let read = || {
            let mut parts = text.split('_');
            let (pool, engine) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let image = parts.next();
            let is_image = |digits: &str| digits.len() == DIGEST_DIGITS && digits.bytes().all(is_hex);
            if parts.next().is_some() || image.is_some_and(|digits| !is_image(digits)) {
                return None;
            }
            Some(Self { pool, engine, image: image.map(Into::into) })
        };
        read().ok_or_else(|| UnknownClass(text.to_owned()))
    }
}
