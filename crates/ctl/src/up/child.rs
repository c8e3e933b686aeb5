#![expect(
    clippy::disallowed_types,
    reason = "an operator's supervisor starts the processes of a local stack"
)]

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::parts::{Part, is_passed_on};
use crate::{error::Error, print};

/// More than a worker's grace.
const GONE_WITHIN: Duration = Duration::from_secs(25);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// One that ran for so long does not die of how it was started.
const IS_STEADY_AFTER: Duration = Duration::from_secs(20);

/// What others may know of a process.
#[derive(Debug, Default)]
pub(super) struct Known {
    pid: AtomicU32,
    deaths: AtomicU32,
}

impl Known {
    /// `None` while none runs.
    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// How often it ended by itself.
    pub(super) fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::Relaxed)
    }
}

/// Starts a process. Its output goes to a log beside the data.
pub(super) fn spawn(part: &Part, log: &Path, known: &Known) -> Result<Child, Error> {
    let wrong = |error| Error::Write(log.to_owned(), error);
    let out = File::options().create(true).append(true).open(log).map_err(wrong)?;
    let passed_on = std::env::vars_os().filter(|(name, _)| name.to_str().is_none_or(is_passed_on));
    let child = Command::new(&part.program)
        .args(&part.arguments)
        .env_clear()
        .envs(passed_on)
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(wrong)?)
        .stderr(out)
        // Ctrl-C is for us; we end the others in their order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Error::NotStarted(part.program.clone(), error))?;
    known.pid.store(child.id().unwrap_or(0), Ordering::Relaxed);
    Ok(child)
}

/// Keeps a process alive until `stop`, then ends it.
pub(super) async fn keep(
    part: Part,
    log: PathBuf,
    mut child: Child,
    known: Arc<Known>,
    stop: CancellationToken,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let Some(ended) = stop.run_until_cancelled(child.wait()).await else {
            end(&mut child).await;
            return;
        };
        known.pid.store(0, Ordering::Relaxed);
        known.deaths.fetch_add(1, Ordering::Relaxed);
        if started.elapsed() > IS_STEADY_AFTER {
            pause = FIRST_PAUSE;
        }
        print::note(&format!("{} {}; it is started again", part.name, in_words(ended.ok())));
        loop {
            if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match spawn(&part, &log, &known) {
                Ok(again) => {
                    child = again;
                    break;
                }
                Err(error) => print::note(&broker::Chain(&error).to_string()),
            }
        }
    }
}

fn in_words(ended: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match ended.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("ended with code {code}"),
        Some((None, Some(signal))) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

async fn end(child: &mut Child) {
    if let Some(pid) = child.id() {
        terminate(pid);
    }
    if timeout(GONE_WITHIN, child.wait()).await.is_err() {
        // It had its time.
        drop(child.kill().await);
    }
}

/// Asks a process to end; one that is gone already has done so.
pub(super) fn terminate(pid: u32) {
    signal(pid, Signal::SIGTERM);
}

pub(super) fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // One that is gone cannot be signalled, and need not be.
        let _gone = kill(Pid::from_raw(pid), signal).is_err();
    }
}
