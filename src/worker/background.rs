//! Tasks that run as long as the worker.

use broker::Chain;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::CLOSE_TIMEOUT;

/// Owns the background tasks. A task that ends before `stop` is cancelled stops the worker.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    set: JoinSet<Result<(), String>>,
    /// Tells all tasks to end.
    pub(super) stop: CancellationToken,
}

impl BackgroundTasks {
    pub(super) fn spawn<E>(&mut self, task: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: std::error::Error + 'static,
    {
        self.set.spawn(async move { task.await.map_err(|error| Chain(&error).to_string()) });
    }

    /// Spawns a task that ends only when `stop` is cancelled.
    pub(super) fn spawn_endless(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            task.await;
            Ok(())
        });
    }

    /// Waits until a task ends unexpectedly and returns why.
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

    /// Cancels all tasks and waits for them; aborts those that exceed [`CLOSE_TIMEOUT`].
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        let ended = timeout(CLOSE_TIMEOUT, async { while self.set.join_next().await.is_some() {} });
        if ended.await.is_err() {
            self.set.shutdown().await;
        }
    }
}
