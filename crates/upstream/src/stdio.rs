//! Servers that are programs: how they are started, spoken to and ended.

mod child; // starts processes, and ends them with all that they started
mod stderr; // what they complain about
mod transport; // one message to a line

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

/// What a program gets of our own environment. The rest is none of its business, and some of it is secret.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
/// Shorter ones would be found in innocent words.
const SHORTEST_SECRET: usize = 6;

/// How a server's process is started.
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

/// The values that the process was given and nobody else may see.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<Mutex<Vec<String>>>);

/// Why a process ended, once it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<OnceLock<String>>);

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

    pub(crate) async fn start(&self, tap: Arc<dyn Tap>) -> Result<(Transport, Ending), Error> {
        let environment = self.environment().await?;
        let (child, pipes) =
            child::start(&self.program, &self.arguments, environment, self.folder.as_deref())
                .map_err(|error| Error::Unavailable(format!("starting {}: {error}", self.program)))?;
        let mut complaints = JoinSet::new();
        complaints.spawn(stderr::log(pipes.stderr, self.name.clone(), self.secrets.clone()));
        let ending = Ending::default();
        let transport =
            Transport::new(child, pipes.stdin, pipes.stdout, self.max_line, tap, ending.clone(), complaints);
        Ok((transport, ending))
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
        self.secrets.are(secrets);
        Ok(environment)
    }
}

impl Secrets {
    fn are(&self, mut values: Vec<String>) {
        values.retain(|value| value.len() >= SHORTEST_SECRET);
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

impl Ending {
    pub(crate) fn words(&self) -> Option<String> {
        self.0.get().cloned()
    }

    /// The first word on it is the reason; what follows, follows from it.
    fn is(&self, words: String) {
        drop(self.0.set(words));
    }
}
