use broker::Chain;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::CLOSE_WITHIN;

/// Tasks that live as long as the worker. One that ends early takes the worker down with it.
#[derive(Debug, Default)]
pub(super) struct Parts {
    set: JoinSet<Result<(), String>>,
    /// Tells all of them to end.
    pub(super) stop: CancellationToken,
}

impl Parts {
    pub(super) fn spawn<E>(&mut self, part: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: std::error::Error + 'static,
    {
        self.set.spawn(async move { part.await.map_err(|error| Chain(&error).to_string()) });
    }

    /// A part that ends only when it is told to.
    pub(super) fn spawn_endless(&mut self, part: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            part.await;
            Ok(())
        });
    }

    /// Waits until a part ends that should not have.
    pub(super) async fn failed(&mut self) -> String {
        loop {
            match self.set.join_next().await {
                Some(Ok(Ok(()))) if self.stop.is_cancelled() => {}
                Some(Ok(Ok(()))) => return "without an error".to_owned(),
                Some(Ok(Err(error))) => return error,
                Some(Err(panic)) => return panic.to_string(),
                None => return std::future::pending().await,
            }
        }
    }

    pub(super) async fn end(mut self) {
        self.stop.cancel();
        let ended = timeout(CLOSE_WITHIN, async { while self.set.join_next().await.is_some() {} });
        if ended.await.is_err() {
            self.set.shutdown().await;
        }
    }
}
