//! The configuration file is read again on SIGHUP and when it changes. What is wrong with it is told, and what was goes on.

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

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When the configuration file was changed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Option<SystemTime>);

impl Stamp {
    pub(crate) fn of(config: &Config) -> Self {
        Self(changed_at(config.file.as_ref()))
    }
}

/// `stamp` is from before the gateway was ready: a change since then counts.
pub(crate) async fn watch(
    cli: Cli,
    config: &Config,
    mut stamp: Stamp,
    front: &Front,
    stop: &CancellationToken,
) {
    let mut told = match signal(SignalKind::hangup()) {
        Ok(told) => told,
        Err(error) => {
            warn!(%error, "SIGHUP handler not installed; configuration reload disabled.");
            return stop.cancelled().await;
        }
    };
    let mut look = interval(LOOK_EVERY);
    loop {
        select! {
            () = stop.cancelled() => return,
            _ = told.recv() => {}
            _ = look.tick() => {
                let now = Stamp::of(config);
                if now == stamp {
                    continue;
                }
                stamp = now;
            }
        }
        match Config::load(&cli) {
            Ok(loaded) => {
                front.reload(&loaded.config);
                info!("Configuration reloaded: hosts, origins, size limits and rate limits.");
            }
            Err(error) => {
                error!(error = %broker::Chain(&error), "Configuration invalid; keeping the previous one.")
            }
        }
    }
}

fn changed_at(file: Option<&PathBuf>) -> Option<SystemTime> {
    std::fs::metadata(file?).ok()?.modified().ok()
}
