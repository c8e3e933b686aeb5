//! A real language model on this machine's own cores, as `make run-model` starts it.

use std::{fs, io::Read, process::ChildStdin, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Process, WorkerBuilder, eventually_within, workspace};

/// It is slow on cores that are busy with other tests.
const PATIENCE: Duration = Duration::from_secs(300);

/// The server and its model. Stopped when it is dropped.
#[derive(Debug)]
pub struct RealModel {
    _process: Process,
    _input: ChildStdin,
    url: String,
    _folder: TempDir,
}

impl RealModel {
    pub const NAME: &str = "smollm2-135m";

    /// # Panics
    /// If it cannot be started; `make tools` gets it.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("model.log");
        let python = workspace().join(".tools/model/bin/python");
        let script = workspace().join("scripts/serve_model.py").display().to_string();
        let (process, input) = Process::start_with_stdin(&python, &[script], &[], &log);
        let url = eventually_within(PATIENCE, "the model to be served", async || {
            let mut text = String::new();
            fs::File::open(&log).ok()?.read_to_string(&mut text).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("{} is served at ", Self::NAME)))
                .map(str::to_owned)
        })
        .await;
        Self { _process: process, _input: input, url, _folder: folder }
    }

    /// Sends a request for a chat completion and returns status and reply.
    pub async fn complete(&self, body: &Value) -> (u16, Value) {
        self.post("/v1/chat/completions", body).await
    }

    /// Returns how many tokens the model's tokenizer makes of a text.
    pub async fn count_tokens(&self, text: &str) -> usize {
        let (_, counted) = self.post("/tokenize", &json!({ "content": text })).await;
        counted["tokens"].as_array().expect("tokens").len()
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        // Fails if another thread installed a provider first, which is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = http.post(format!("{}{path}", self.url.trim_end_matches("/v1")));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
    }

    /// Has a worker ask it.
    pub fn asked_by(&self, worker: WorkerBuilder) -> WorkerBuilder {
        worker
            .set("inference.base_url", &*self.url)
            .set("inference.model", Self::NAME)
            .set("inference.timeout", "240s")
            .set("agent.think_timeout", "240s")
    }
}
