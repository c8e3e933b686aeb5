//! G2: records model and tool calls, and replays them without making them.
//!
//! A recording is a file of JSON lines: a hash of the request, the response, and how long it took. A worker
//! that replays calls nothing and refuses requests that were not recorded.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use data_encoding::HEXLOWER;
use leased::HeldLease;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subjects::HandoffId;
use tracing::warn;

use crate::{
    inference::{self, Reply, Request},
    tools::{CallError, Catalogue, PermittedCall, Returned, ToolInfo, Tools, TryListener},
};

const CATALOGUE: &str = "catalogue";

/// Whether calls are recorded, replayed or neither.
#[derive(Debug)]
pub(crate) enum Recording {
    Off,
    Writing(Writer),
    Reading {
        /// Keyed by handoff, effect, and how often it was requested before.
        lines: HashMap<(Option<HandoffId>, String, usize), Line>,
        catalogue: Arc<Catalogue>,
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
    catalogue_written: Mutex<bool>,
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
    #[error("line {1} of the recording {0} is unreadable")]
    Line(PathBuf, usize, #[source] io::Error),
}

impl Recording {
    pub(crate) fn write_to(path: &Path) -> Result<Self, Error> {
        // It contains full prompts and results, so only its owner may read it.
        let file = File::options().create(true).append(true).mode(0o600).open(path);
        let file = file.map_err(|error| Error::Open(path.to_owned(), error))?;
        Ok(Self::Writing(Writer { file: Mutex::new(file), catalogue_written: Mutex::new(false) }))
    }

    pub(crate) fn read_from(path: &Path, tools: &Tools) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::Open(path.to_owned(), error))?;
        let mut lines = HashMap::new();
        let mut listed: Vec<ToolInfo> = Vec::new();
        for (index, line) in BufReader::new(file).lines().enumerate() {
            let wrong = |error| Error::Line(path.to_owned(), index + 1, error);
            let line: Line =
                serde_json::from_str(&line.map_err(wrong)?).map_err(|error| wrong(error.into()))?;
            if line.effect == CATALOGUE {
                listed = serde_json::from_value(line.value).map_err(|error| wrong(error.into()))?;
                continue;
            }
            // Also keyed without a handoff, first recording wins: the same request under another id gets the
            // same response.
            lines.entry((None, line.effect.clone(), line.repeat)).or_insert_with(|| line.clone());
            lines.insert((line.handoff, line.effect.clone(), line.repeat), line);
        }
        let catalogue = Arc::new(Catalogue::new(tools.allowlist(), listed));
        Ok(Self::Reading { lines, catalogue })
    }

    /// Returns the tools that may be called. The listener learns of each failed try to list them.
    pub(crate) async fn catalogue(
        &self,
        tools: &Tools,
        lease: Option<&HeldLease>,
        listener: &dyn TryListener,
    ) -> Result<Arc<Catalogue>, CallError> {
        if let Self::Reading { catalogue, .. } = self {
            return Ok(Arc::clone(catalogue));
        }
        let catalogue = tools.catalogue(lease, listener).await?;
        if let Self::Writing(writer) = self {
            let first = !std::mem::replace(&mut *lock(&writer.catalogue_written), true);
            if first {
                let tools: Vec<&ToolInfo> = catalogue.tools().collect();
                let effect = CATALOGUE.to_owned();
                writer.write(&Line { handoff: None, effect, repeat: 0, ms: 0, value: json!(tools) });
            }
        }
        Ok(catalogue)
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
            Self::Reading { lines, .. } => {
                let effect = effect_key(kind, &asked());
                let repeat = effects.next_repeat(&effect);
                let found = |handoff| lines.get(&(handoff, effect.clone(), repeat));
                let line = found(Some(effects.handoff)).or_else(|| found(None));
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

impl Writer {
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
