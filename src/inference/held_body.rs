//! A request body that is held back until the connection is established and its sender may still send it.
//!
//! Connecting can take seconds. A process that was frozen meanwhile may have lost its handoff to another one,
//! and a server works on a request, and charges for it, once it has its body.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use reqwest::Body;
use tokio::sync::oneshot;

/// The sender's end of a held body. Dropping it ends the request.
#[derive(Debug)]
pub(super) struct Hold {
    connected: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

/// Returns a body and what holds it back. The body has no length: set the header.
pub(super) fn hold(content: Vec<u8>) -> (Body, Hold) {
    let (is_connected, connected) = oneshot::channel();
    let (release, released) = oneshot::channel();
    let body = stream::once(async move {
        // Asked for the first time when a connection has taken the request. No receiver: not sent any more.
        let _not_waiting = is_connected.send(());
        match released.await {
            Ok(()) => Ok(Bytes::from(content)),
            Err(_) => Err(io::Error::other("the request was given up before its body was sent")),
        }
    });
    (Body::wrap_stream(body), Hold { connected, release })
}

impl Hold {
    /// Waits until a connection has taken the request. Never returns if none does.
    pub(super) async fn wait_until_connected(&mut self) {
        if (&mut self.connected).await.is_err() {
            std::future::pending().await
        }
    }

    /// Releases the body.
    pub(super) fn release(self) {
        // A request that ended meanwhile has no use for it.
        let _ended = self.release.send(());
    }
}

#[cfg(test)]
mod tests;
