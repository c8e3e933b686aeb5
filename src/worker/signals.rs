//! SIGTERM and SIGINT as cancellation tokens.

use std::convert::Infallible;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Error;

/// Translates signals: the first asks the worker to stop, the second ends the grace period.
pub(super) struct Signals {
    pub(super) first: CancellationToken,
    pub(super) second: CancellationToken,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Error> {
        Ok(Self {
            first: CancellationToken::new(),
            second: CancellationToken::new(),
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
        })
    }

    /// Forwards signals while it is polled. Never returns.
    pub(super) async fn watch(&mut self) -> Infallible {
        loop {
            tokio::select! {
                // Cancel-safe per docs on `recv()`.
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            if self.first.is_cancelled() {
                self.second.cancel();
            } else {
                self.first.cancel();
            }
        }
    }
}
