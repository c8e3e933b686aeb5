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
    time::Duration,
};

use futures_util::FutureExt;
use mcp::Tap;
use tokio::{fs, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use transport::Transport;

use crate::Error;

/// The variables that a process inherits from the gateway. The others may be secret.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
/// Shorter secrets are not masked, since they would match ordinary words.
const MIN_SECRET_BYTES: usize = 6;
/// How long the last lines of a process are awaited after the end of its connection. Ending it takes up to 2
/// s.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(3);

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

    /// Reads the secrets and starts the process. Its standard error is logged by one of `tasks`, until the
    /// process ends or shortly after `stop`.
    pub(crate) async fn start(
        &self,
        tap: Arc<dyn Tap>,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<(Transport, ExitReason), Error> {
        let environment = self.environment().await?;
        let (child, pipes) =
            child::start(&self.program, &self.arguments, environment, self.folder.as_deref())
                .map_err(|error| Error::Unavailable(format!("starting {}: {error}", self.program)))?;
        // Not ended together with the connection: the last lines of a process may say why it ended.
        let logging = stderr::log(pipes.stderr, self.name.clone(), self.secrets.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = logging => {}
                // A process that left the group may hold the pipe open.
                () = stop.cancelled().then(|()| sleep(LAST_LINES_TIMEOUT)) => {}
            }
        });
        let exit_reason = ExitReason::default();
        let transport =
            Transport::new(child, pipes.stdin, pipes.stdout, self.max_line, tap, exit_reason.clone());
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
