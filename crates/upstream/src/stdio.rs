//! Upstreams that are child processes: starting them, their environment, and masking their secrets.

mod child;
mod stderr;
mod transport;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use mcp::Tap;
use tokio::{fs, task::JoinSet};

pub(crate) use transport::Transport;

use crate::Error;

/// The variables that a process inherits from the gateway. The others may be secret.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
/// Shorter secrets are not masked, since they would match ordinary words.
const MIN_SECRET_BYTES: usize = 6;

/// How the process of an upstream is started.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    program: String,
    arguments: Vec<String>,
    env: BTreeMap<String, String>,
    secret_env: BTreeMap<String, PathBuf>,
    folder: Option<PathBuf>,
    max_line: usize,
    secrets: Secrets,
}

/// The secret values that the process was given, to be masked in its output.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<Mutex<Vec<String>>>);

/// Why a process ended. Empty while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExitReason(Arc<OnceLock<String>>);

impl Program {
    pub(crate) fn new(
        name: &str,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
        secret_env: BTreeMap<String, PathBuf>,
        folder: Option<PathBuf>,
        max_line: usize,
    ) -> Result<Self, Error> {
        let name = name.to_owned();
        let mut argv = argv.into_iter();
        let program = argv.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| Error::Options("no program is named".to_owned()))?;
        let arguments = argv.collect();
        let secrets = Secrets::default();
        Ok(Self { name, program, arguments, env, secret_env, folder, max_line, secrets })
    }

    /// Reads the secrets and starts the process.
    pub(crate) async fn start(&self, tap: Arc<dyn Tap>) -> Result<(Transport, ExitReason), Error> {
        let environment = self.environment().await?;
        let (child, pipes) =
            child::start(&self.program, &self.arguments, environment, self.folder.as_deref())
                .map_err(|error| Error::Unavailable(format!("starting {}: {error}", self.program)))?;
        let mut stderr_task = JoinSet::new();
        stderr_task.spawn(stderr::log(pipes.stderr, self.name.clone(), self.secrets.clone()));
        let exit_reason = ExitReason::default();
        let transport = Transport::new(
            child,
            pipes.stdin,
            pipes.stdout,
            self.max_line,
            tap,
            exit_reason.clone(),
            stderr_task,
        );
        Ok((transport, exit_reason))
    }

    pub(crate) fn mask(&self, text: String) -> String {
        self.secrets.mask(text)
    }

    async fn environment(&self) -> Result<Vec<(OsString, OsString)>, Error> {
        let inherited = INHERITED.iter().filter_map(|name| Some(((*name).into(), env::var_os(name)?)));
        let given = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        let mut environment: Vec<(OsString, OsString)> = inherited.chain(given).collect();
        let mut secrets = Vec::new();
        for (name, path) in &self.secret_env {
            let value = fs::read_to_string(path).await;
            let value = value.map_err(|error| Error::Secret(path.clone(), Arc::new(error)))?;
            let value = value.trim_end_matches(['\r', '\n']);
            environment.push((name.into(), value.into()));
            secrets.push(value.to_owned());
        }
        self.secrets.set(secrets);
        Ok(environment)
    }
}

impl Secrets {
    fn set(&self, mut values: Vec<String>) {
        values.retain(|value| value.len() >= MIN_SECRET_BYTES);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = values;
    }

    fn mask(&self, text: String) -> String {
        let secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "[secret]"))
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl ExitReason {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.get().cloned()
    }

    /// Sets the reason. Only the first one counts, since later ones are consequences of it.
    fn set(&self, reason: String) {
        drop(self.0.set(reason));
    }
}
