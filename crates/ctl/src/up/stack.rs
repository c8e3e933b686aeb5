use std::{fs, path::PathBuf, sync::Arc, time::Instant};

use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    LOOK_EVERY, UP_WITHIN,
    child::{self, Known},
    lock,
    parts::Part,
};
use crate::error::Error;

const LINES_OF_LOG: usize = 8;

/// The processes that run, in the order in which they were started.
pub(super) struct Stack {
    data: PathBuf,
    running: Vec<Running>,
}

struct Running {
    name: String,
    known: Arc<Known>,
    stop: CancellationToken,
    keeper: JoinSet<()>,
}

impl Stack {
    pub(super) fn new(data: PathBuf) -> Self {
        Self { data, running: Vec::new() }
    }

    pub(super) fn start(&mut self, part: Part) -> Result<(), Error> {
        let (log, name) = (self.log(&part.name), part.name.clone());
        // What the last stack had to say is not about this one.
        drop(fs::remove_file(&log));
        let (known, stop) = (Arc::new(Known::default()), CancellationToken::new());
        let child = child::spawn(&part, &log, &known)?;
        let mut keeper = JoinSet::new();
        keeper.spawn(child::keep(part, log, child, Arc::clone(&known), stop.clone()));
        self.running.push(Running { name, known, stop, keeper });
        lock::note(&self.data, &self.pids())
    }

    /// Waits for something; a process that ends meanwhile is the answer.
    pub(super) async fn until<T>(
        &self,
        what: &'static str,
        condition: impl AsyncFn() -> Option<T>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        loop {
            if let Some(found) = condition().await {
                return Ok(found);
            }
            let dead = self.running.iter().find(|running| running.known.deaths() > 0);
            let late = began.elapsed() > UP_WITHIN;
            if let Some(guilty) = dead.or_else(|| self.running.last().filter(|_| late)) {
                let log = self.log(&guilty.name);
                let text = fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(LINES_OF_LOG)..].join("\n");
                return Err(Error::NotUp { what, guilty: guilty.name.clone(), log, tail });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The process of that name, if it runs.
    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        self.running.iter().find(|running| running.name == name)?.known.pid()
    }

    /// Ends all in the opposite order: workers hand back what they have before NATS goes. Those of a kind end together.
    pub(super) async fn stop(&mut self) {
        for group in [&["manager-", "analyst-"][..], &["gateway"], &["nats"]] {
            let belongs = |running: &&mut Running| group.iter().any(|name| running.name.starts_with(name));
            let mut ending: Vec<&mut Running> = self.running.iter_mut().filter(belongs).collect();
            ending.iter().for_each(|running| running.stop.cancel());
            for running in &mut ending {
                while running.keeper.join_next().await.is_some() {}
            }
        }
        self.running.clear();
        lock::forget(&self.data);
    }

    fn pids(&self) -> Vec<(String, u32)> {
        let pid = |running: &Running| Some((running.name.clone(), running.known.pid()?));
        self.running.iter().filter_map(pid).collect()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.data.join(format!("{name}.log"))
    }
}
