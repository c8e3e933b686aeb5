//! Reloads the configuration file on SIGHUP and when it changes. An invalid file is logged, and the previous
//! configuration stays in effect.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::interval,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    config::{Cli, Config},
    front::Front,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Modification time of the configuration file; `None` if there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModifiedAt(Option<SystemTime>);

impl ModifiedAt {
    pub(crate) fn of(config: &Config) -> Self {
        Self(modification_time(config.file.as_ref()))
    }
}

/// Reloads until `stop` is cancelled. `modified_at` is taken at the beginning of the startup, so that a
/// change during the startup is noticed.
pub(crate) async fn watch(
    cli: Cli,
    config: &Config,
    mut modified_at: ModifiedAt,
    front: &Front,
    stop: &CancellationToken,
) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => {
            warn!(%error, "SIGHUP handler not installed; configuration reload disabled.");
            return stop.cancelled().await;
        }
    };
    let mut poll = interval(POLL_INTERVAL);
    loop {
        select! {
            () = stop.cancelled() => return,
            _ = hangup.recv() => {}
            _ = poll.tick() => {
                let now = ModifiedAt::of(config);
                if now == modified_at {
                    continue;
                }
                modified_at = now;
            }
        }
        match Config::load(&cli) {
            Ok(loaded) => {
                front.reload(&loaded.config);
                info!("Configuration reloaded: mcp.*, calls.per_second and unauthenticated.per_second.");
            }
            Err(error) => {
                error!(error = %broker::Chain(&error), "Configuration invalid; keeping the previous one.")
            }
        }
    }
}

fn modification_time(file: Option<&PathBuf>) -> Option<SystemTime> {
    std::fs::metadata(file?).ok()?.modified().ok()
}
