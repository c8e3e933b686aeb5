//! Why a lease cannot be served.

use std::{io, path::PathBuf};

use policy::InvalidLease;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("cannot use {}: another process uses it; stop it or choose another folder", .0.display())]
    InUse(PathBuf),
    #[error("cannot listen on {}", .0)]
    Listen(String, #[source] io::Error),
    /// The gateway was not asked, or refused.
    #[error("cannot bind the lease of the job: {0}")]
    Bind(leased::CallFailure),
    #[error("the gateway returned a lease that cannot be used")]
    Lease(#[from] InvalidLease),
    #[error("the lease is not for this node: {0}")]
    NotOurs(&'static str),
    #[error("the audit of lease {0} is damaged; it is kept for inspection and not continued")]
    Damaged(String),
    #[error("cannot write the audit of the lease")]
    Audit(#[from] crate::AppendError),
    #[error("an MCP server of this node cannot be used")]
    Upstream(#[source] upstream::Error),
}

impl Error {
    /// Returns whether the same may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Bind(leased::CallFailure::Gateway(error)) => error.is_transient(),
            _ => self.is_of_this_node(),
        }
    }

    /// Returns whether files of this node cannot be written, for example because its disk is full. That says
    /// nothing about the job: another node may serve it.
    pub fn is_of_this_node(&self) -> bool {
        match self {
            Self::File(..) | Self::Listen(..) => true,
            Self::Audit(error) => error.is_of_this_node(),
            Self::InUse(_) | Self::Bind(_) | Self::Lease(_) | Self::NotOurs(_) => false,
            Self::Damaged(_) | Self::Upstream(_) => false,
        }
    }
}
