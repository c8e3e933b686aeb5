//! LiteLLM's proxy, as a peer.

use std::{fs, time::Duration};

use testkit::{ChatClient, Process, eventually_within, free_port, workspace};

use super::direct::MODEL_ID;

#[derive(Debug)]
pub(crate) struct LiteLlm {
    process: Process,
    _folder: tempfile::TempDir,
    url: String,
}

impl LiteLlm {
    /// Starts it with a worker for each core. `None` if it is not installed.
    pub(crate) async fn start(model_url: &str) -> Option<Self> {
        let program = workspace().join(".tools/litellm/bin/litellm");
        if !program.is_file() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        let model = format!("{{model: openai/{MODEL_ID}, api_base: '{model_url}', api_key: none}}");
        let list = format!("model_list:\n- model_name: {MODEL_ID}\n  litellm_params: {model}\n");
        fs::write(&config, list).unwrap();
        let (port, cores) = (free_port(), std::thread::available_parallelism().unwrap());
        let arguments = ["--host", "127.0.0.1", "--config", &config.display().to_string()].map(str::to_owned);
        let mut arguments = arguments.to_vec();
        arguments.extend(["--port".to_owned(), port.to_string()]);
        arguments.extend(["--num_workers".to_owned(), cores.to_string()]);
        // Without a master key it has less to do for each request.
        let keyless = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY";
        let variables =
            [("LITELLM_LOG", "ERROR"), ("LITELLM_LOCAL_MODEL_COST_MAP", "True"), (keyless, "true")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let process = Process::start(&program, &arguments, &variables, &folder.path().join("log"));
        let url = format!("http://127.0.0.1:{port}/v1");
        let peer = Self { process, _folder: folder, url };
        eventually_within(Duration::from_secs(120), "LiteLLM answers", || async {
            let answer = peer.client().send_bytes("GET", "/models", None).await;
            answer.ok().filter(|answer| answer.status == 200)
        })
        .await;
        Some(peer)
    }

    pub(crate) fn client(&self) -> ChatClient {
        ChatClient::new(&self.url, "none")
    }
}

impl Drop for LiteLlm {
    fn drop(&mut self) {
        // Its workers outlive it, and would take time from the next measurement.
        self.process.kill_all();
    }
}
