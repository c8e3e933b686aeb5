use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use super::child::{signal, terminate};
use crate::{
    error::{Error, Exit},
    print,
};

const LOCK: &str = "up.lock";
const PIDS: &str = "up.pids";
const OURS: [&str; 4] = ["nats-server", "cynode-gateway", "cynode-pma", "cynodectl"];
const GONE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Held as long as a stack runs in a folder; gone with its process, however that ends.
pub(super) fn take(data: &Path) -> Result<File, Error> {
    let path = data.join(LOCK);
    let wrong = |error| Error::Write(path.clone(), error);
    let options = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = options.map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            drop(file.read_to_string(&mut pid));
            return Err(Error::RunsAlready { data: data.to_owned(), pid: pid.trim().to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(wrong(error)),
    }
    let left: Vec<String> = noted(data).into_iter().map(|(name, pid)| format!("{name} ({pid})")).collect();
    if !left.is_empty() {
        return Err(Error::LeftOver { data: data.to_owned(), left: left.join(", ") });
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(wrong)?;
    write!(file, "{}", std::process::id()).map_err(wrong)?;
    Ok(file)
}

/// Writes down what runs, for whoever comes after us should we be killed.
pub(super) fn note(data: &Path, pids: &[(String, u32)]) -> Result<(), Error> {
    let lines: Vec<String> = pids.iter().map(|(name, pid)| format!("{name} {pid}")).collect();
    let path = data.join(PIDS);
    fs::write(&path, lines.join("\n")).map_err(|error| Error::Write(path, error))
}

pub(super) fn forget(data: &Path) {
    drop(fs::remove_file(data.join(PIDS)));
}

/// What was written down and still runs.
fn noted(data: &Path) -> Vec<(String, u32)> {
    let text = fs::read_to_string(data.join(PIDS)).unwrap_or_default();
    let read = |line: &str| {
        let (name, pid) = line.split_once(' ')?;
        Some((name.to_owned(), pid.parse().ok()?))
    };
    text.lines().filter_map(read).filter(|(_, pid)| is_ours(*pid)).collect()
}

/// A number may be another's by now.
fn is_ours(pid: u32) -> bool {
    let program = fs::read_link(PathBuf::from(format!("/proc/{pid}/exe")));
    let name = program.ok().and_then(|program| program.file_name()?.to_str().map(str::to_owned));
    // A program that was built anew since then is marked.
    name.is_some_and(|name| OURS.contains(&name.trim_end_matches(" (deleted)")))
}

/// Ends the stack of a folder: through its supervisor, or what a dead one left behind.
pub(super) async fn end_what_runs(data: &Path) -> Result<Exit, Error> {
    match take(data) {
        Ok(_) => {
            print::note("nothing runs here");
            Ok(Exit::Done)
        }
        Err(Error::RunsAlready { pid, .. }) => {
            let Ok(pid) = pid.parse() else { return Err(Error::Wrong(format!("{LOCK} names no process"))) };
            terminate(pid);
            until_gone(&[pid]).await?;
            print::line("the stack has ended");
            Ok(Exit::Done)
        }
        Err(Error::LeftOver { .. }) => {
            let left = noted(data);
            // In the opposite order: workers hand back what they have before NATS goes.
            for (name, pid) in left.iter().rev() {
                terminate(*pid);
                if until_gone(&[*pid]).await.is_err() {
                    signal(*pid, Signal::SIGKILL);
                }
                print::line(&format!("{name} has ended"));
            }
            forget(data);
            Ok(Exit::Done)
        }
        Err(other) => Err(other),
    }
}

async fn until_gone(pids: &[u32]) -> Result<(), Error> {
    let gone = async {
        while pids.iter().any(|pid| is_ours(*pid)) {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(GONE_WITHIN, gone).await.map_err(|_| Error::Wrong("it does not end".to_owned()))
}
