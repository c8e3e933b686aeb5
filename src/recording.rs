//! G2: records model and tool calls, and replays them without making them.
//!
//! A recording is a file of JSON lines: a hash of the request, the response, and how long it took. A worker
//! that replays calls nothing and refuses requests that were not recorded.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use data_encoding::HEXLOWER;
use leased::HeldLease;
use policy::Lease;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subjects::HandoffId;
use tracing::warn;

use crate::{
    inference::{self, Reply, Request},
    tools::{Allowlist, CallError, Catalogue, PermittedCall, Returned, ToolInfo, Tools, TryListener},
};

/// The effect of lines with lists of tools. Those of older recordings have this one alone, and those of newer
/// ones the hash of the list after it.
const CATALOGUE: &str = "catalogue";
/// How many bytes are read at once to find the end of the last whole line.
const TAIL_BYTES: u64 = 64 * 1024;

/// Whether calls are recorded, replayed or neither.
#[derive(Debug)]
pub(crate) enum Recording {
    Off,
    Writing(Writer),
    Reading {
        /// Keyed by handoff, effect, and how often it was requested before.
        lines: HashMap<(Option<HandoffId>, String, usize), Line>,
        catalogues: Catalogues,
    },
}

/// Counts the effects that one handoff requested.
#[derive(Debug)]
pub(crate) struct HandoffEffects {
    handoff: HandoffId,
    /// How often each effect was requested.
    repeats: Mutex<HashMap<String, usize>>,
}

impl HandoffEffects {
    pub(crate) fn new(handoff: HandoffId) -> Self {
        Self { handoff, repeats: Mutex::default() }
    }

    /// Counts a request for this effect and returns how often it was requested before.
    fn next_repeat(&self, effect: &str) -> usize {
        let mut repeats = lock(&self.repeats);
        let count = repeats.entry(effect.to_owned()).or_default();
        *count += 1;
        *count - 1
    }
}

/// A value and how long it took to obtain.
#[derive(Clone, Debug)]
pub(crate) struct Timed<T> {
    pub(crate) value: T,
    pub(crate) ms: u64,
}

#[derive(Debug)]
pub(crate) struct Writer {
    file: Mutex<File>,
    /// The effects of the catalogues that this process has written.
    catalogues: Mutex<HashSet<String>>,
}

/// The recorded lists of tools, by effect.
#[derive(Debug)]
pub(crate) struct Catalogues {
    by_effect: HashMap<String, Arc<Catalogue>>,
    without_tools: Arc<Catalogue>,
}

impl Catalogues {
    /// Returns the list with this effect. A recording of one list has that for all requests.
    fn find(&self, effect: Option<&str>) -> Option<Arc<Catalogue>> {
        let found = effect.and_then(|effect| self.by_effect.get(effect));
        let found = found.or_else(|| self.by_effect.get(CATALOGUE));
        match self.by_effect.len() {
            0 => Some(Arc::clone(&self.without_tools)),
            1 => self.by_effect.values().next().cloned(),
            _ => found.cloned(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    handoff: Option<HandoffId>,
    effect: String,
    /// How often the same request was made before in this handoff.
    repeat: usize,
    ms: u64,
    value: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open the recording {0}")]
    Open(PathBuf, #[source] io::Error),
    #[error("line {1} of the recording {0} is unreadable; remove it, or record again")]
    Line(PathBuf, usize, #[source] io::Error),
}

impl Recording {
    pub(crate) fn write_to(path: &Path) -> Result<Self, Error> {
        // It contains full prompts and results, so only its owner may read it.
        let file = File::options().create(true).read(true).append(true).mode(0o600).open(path);
        let file = file.and_then(|mut file| cut_last_line(&mut file).map(|()| file));
        let file = file.map_err(|error| Error::Open(path.to_owned(), error))?;
        Ok(Self::Writing(Writer { file: Mutex::new(file), catalogues: Mutex::default() }))
    }

    pub(crate) fn read_from(path: &Path, tools: &Tools) -> Result<Self, Error> {
        Self::read(path, tools.allowlist())
    }

    fn read(path: &Path, allowlist: Allowlist) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::Open(path.to_owned(), error))?;
        let mut lines = HashMap::new();
        let mut by_effect = HashMap::new();
        let (mut file, mut text) = (BufReader::new(file), Vec::new());
        for number in 1.. {
            let wrong = |error| Error::Line(path.to_owned(), number, error);
            text.clear();
            if file.read_until(b'\n', &mut text).map_err(wrong)? == 0 {
                break;
            }
            let line: Line = match serde_json::from_slice(&text) {
                // Its worker was killed while it wrote. What it recorded counts as not recorded.
                Err(error) if error.is_eof() && !text.ends_with(b"\n") => {
                    warn!(line = number, "Last line of the recording is cut off; ignored.");
                    break;
                }
                line => line.map_err(|error| wrong(error.into()))?,
            };
            if line.effect.starts_with(CATALOGUE) {
                let listed: Vec<ToolInfo> =
                    serde_json::from_value(line.value).map_err(|error| wrong(error.into()))?;
                let catalogue = Catalogue::new(allowlist, listed);
                by_effect.insert(line.effect, Arc::new(catalogue));
                continue;
            }
            // Also keyed without a handoff, first recording wins: the same request under another id gets the
            // same response.
            lines.entry((None, line.effect.clone(), line.repeat)).or_insert_with(|| line.clone());
            lines.insert((line.handoff, line.effect.clone(), line.repeat), line);
        }
        let without_tools = Arc::new(Catalogue::new(allowlist, Vec::new()));
        Ok(Self::Reading { lines, catalogues: Catalogues { by_effect, without_tools } })
    }

    /// Returns the tools that may be called. The listener learns of each failed try to list them.
    pub(crate) async fn catalogue(
        &self,
        effects: &HandoffEffects,
        tools: &Tools,
        lease: Option<&HeldLease>,
        listener: &dyn TryListener,
    ) -> Result<Arc<Catalogue>, CallError> {
        let asked = || audience(lease.map(|held| &held.lease));
        match self {
            Self::Off => tools.catalogue(lease, listener).await,
            Self::Writing(writer) => {
                let catalogue = tools.catalogue(lease, listener).await?;
                writer.write_catalogue(effects, &asked(), &catalogue);
                Ok(catalogue)
            }
            Self::Reading { .. } => self.recorded_catalogue(effects, &asked()),
        }
    }

    /// Returns the tools that were listed for this handoff, or else first for such a lease.
    fn recorded_catalogue(
        &self,
        effects: &HandoffEffects,
        asked: &Value,
    ) -> Result<Arc<Catalogue>, CallError> {
        let missing = || CallError::NotRecorded("the list of tools".to_owned());
        let Self::Reading { catalogues, .. } = self else { return Err(missing()) };
        let listed = self.recorded(effects, &effect_key("tools", asked));
        let effect = listed.and_then(|line| line.value.as_str());
        catalogues.find(effect).ok_or_else(missing)
    }

    /// Returns the recorded line of an effect that is requested now.
    fn recorded(&self, effects: &HandoffEffects, effect: &str) -> Option<&Line> {
        let Self::Reading { lines, .. } = self else { return None };
        let repeat = effects.next_repeat(effect);
        let found = |handoff| lines.get(&(handoff, effect.to_owned(), repeat));
        found(Some(effects.handoff)).or_else(|| found(None))
    }

    pub(crate) async fn model(
        &self,
        effects: &HandoffEffects,
        request: &Request<'_>,
        live: impl Future<Output = Result<Reply, inference::Error>>,
    ) -> Timed<Result<Reply, inference::Error>> {
        let asked = || request.canonical();
        let missing = || Err(inference::Error::NotRecorded(format!("question ({:?})", request.purpose)));
        self.record_or_replay(effects, "model", asked, live, missing).await
    }

    pub(crate) async fn tool(
        &self,
        effects: &HandoffEffects,
        call: &PermittedCall,
        live: impl Future<Output = Result<Returned, CallError>>,
    ) -> Timed<Result<Returned, CallError>> {
        let asked = || json!([call.name(), call.arguments()]);
        let missing = || Err(CallError::NotRecorded(call.name().to_owned()));
        self.record_or_replay(effects, "tool", asked, live, missing).await
    }

    /// Makes a call, makes and records it, or replays its recorded response.
    pub(crate) async fn record_or_replay<T: Serialize + DeserializeOwned>(
        &self,
        effects: &HandoffEffects,
        kind: &str,
        asked: impl Fn() -> Value,
        live: impl Future<Output = T>,
        missing: impl FnOnce() -> T,
    ) -> Timed<T> {
        match self {
            Self::Off => timed(live).await,
            Self::Writing(writer) => {
                let effect = effect_key(kind, &asked());
                // Counted at the request: of two concurrent requests either may be answered first.
                let repeat = effects.next_repeat(&effect);
                let done = timed(live).await;
                let value = json!(done.value);
                writer.write(&Line { handoff: Some(effects.handoff), effect, repeat, ms: done.ms, value });
                done
            }
            Self::Reading { .. } => {
                let line = self.recorded(effects, &effect_key(kind, &asked()));
                let value = line.and_then(|line| serde_json::from_value(line.value.clone()).ok());
                let ms = line.map_or(0, |line| line.ms);
                Timed { value: value.unwrap_or_else(missing), ms }
            }
        }
    }
}

async fn timed<T>(live: impl Future<Output = T>) -> Timed<T> {
    let started = Instant::now();
    let value = live.await;
    Timed { value, ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX) }
}

fn effect_key(kind: &str, asked: &Value) -> String {
    format!("{kind} {}", HEXLOWER.encode(&Sha256::digest(asked.to_string())))
}

/// Returns for whom tools are listed, which decides which ones: as the gateway does.
fn audience(lease: Option<&Lease>) -> Value {
    json!(lease.map(|Lease { user_id, tools, profile, .. }| (user_id, tools, profile)))
}

/// Cuts off the end of a file that a killed worker did not write whole, so that the next line begins anew.
fn cut_last_line(file: &mut File) -> io::Result<()> {
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(TAIL_BYTES);
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        (&*file).take(end - start).read_to_end(&mut tail)?;
        if let Some(last) = tail.iter().rposition(|byte| *byte == b'\n') {
            end = start + last as u64 + 1;
            break;
        }
        end = start;
    }
    if end < file.metadata()?.len() { file.set_len(end) } else { Ok(()) }
}

impl Writer {
    /// Records which tools a handoff was offered, and the list itself once.
    fn write_catalogue(&self, effects: &HandoffEffects, asked: &Value, catalogue: &Catalogue) {
        let tools = json!(catalogue.tools().collect::<Vec<&ToolInfo>>());
        let listed = effect_key(CATALOGUE, &tools);
        if lock(&self.catalogues).insert(listed.clone()) {
            self.write(&Line { handoff: None, effect: listed.clone(), repeat: 0, ms: 0, value: tools });
        }
        let effect = effect_key("tools", asked);
        let (handoff, repeat) = (Some(effects.handoff), effects.next_repeat(&effect));
        self.write(&Line { handoff, effect, repeat, ms: 0, value: listed.into() });
    }

    /// Appends a line, whole or not at all. A failure is only logged: a replay reports a missing line, and a
    /// full disk must not stop work.
    fn write(&self, line: &Line) {
        let mut text = json!(line).to_string();
        text.push('\n');
        let mut file = lock(&self.file);
        let written = file.metadata().and_then(|before| {
            file.write_all(text.as_bytes()).or_else(|error| file.set_len(before.len()).and(Err(error)))
        });
        if let Err(error) = written {
            warn!(%error, "Recording not written.");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
