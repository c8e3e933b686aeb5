//! Flags of `cynodectl up` and `down`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::DEFAULT_MODEL;

#[derive(Args, Debug)]
pub(crate) struct Up {
    /// Data folder.
    #[arg(long, value_name = "FOLDER", default_value = ".cynode")]
    pub(crate) data: PathBuf,
    /// Port of nats-server.
    #[arg(long, value_name = "PORT", env = "NATS_PORT", default_value_t = 4222)]
    pub(crate) nats_port: u16,
    /// Port of the gateway's MCP endpoint; the console uses the next port.
    #[arg(long, value_name = "PORT", env = "GATEWAY_PORT", default_value_t = 8790)]
    pub(crate) gateway_port: u16,
    /// Port of the OpenAI-compatible API. Also used, counted from it: +1 its probes and metrics, +2 the
    /// egress, +5 those of the node, +6 those of the workflow runner.
    #[arg(long, value_name = "PORT", env = "API_PORT", default_value_t = 8780)]
    pub(crate) api_port: u16,
    /// Number of project managers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) managers: u8,
    /// Number of project analysts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=16))]
    pub(crate) analysts: u8,
    /// Start no node: jobs wait until one is there.
    #[arg(long)]
    pub(crate) no_node: bool,
    /// URL of an OpenAI-compatible model server; the offline model is used by default.
    #[arg(long, value_name = "URL", env = "INFERENCE_URL")]
    pub(crate) model_url: Option<String>,
    /// Model name to request.
    #[arg(long, value_name = "NAME", env = "MODEL", default_value = DEFAULT_MODEL)]
    pub(crate) model: String,
    /// File with the model server's API token.
    #[arg(long, value_name = "FILE", env = "INFERENCE_TOKEN_FILE")]
    pub(crate) model_token_file: Option<PathBuf>,
    /// File with the key of an external provider of models, which is asked through the egress.
    #[arg(long, value_name = "FILE", env = "OPENAI_API_KEY_FILE", conflicts_with = "model_url")]
    pub(crate) provider_key_file: Option<PathBuf>,
    /// Base URL of that provider.
    #[arg(long, value_name = "URL", env = "OPENAI_BASE_URL", default_value = "https://api.openai.com/v1")]
    pub(crate) provider_url: String,
    /// Simulated response time of the offline model.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "400ms")]
    pub(crate) think_time: Duration,
    /// Folder with the instruction bundles.
    #[arg(long, value_name = "FOLDER", default_value = "instructions")]
    pub(crate) instructions: PathBuf,
    /// Path of nats-server; searched beside this program, in .tools/bin and on PATH by default.
    #[arg(long, value_name = "FILE", env = "NATS_SERVER")]
    pub(crate) nats_server: Option<PathBuf>,
    /// Path of cynode-workflow, the runner of workflows; searched in .tools/workflow/bin and on PATH by
    /// default.
    #[arg(long, value_name = "FILE", env = "WORKFLOW_RUNNER")]
    pub(crate) workflow_runner: Option<PathBuf>,
    /// Run a short tour and exit; the default without a terminal.
    #[arg(long, conflicts_with = "stay")]
    pub(crate) tour: bool,
    /// Run until SIGINT or SIGTERM, without a chat.
    #[arg(long)]
    pub(crate) stay: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Down {
    /// Data folder, as passed to `up`.
    #[arg(long, value_name = "FOLDER", default_value = ".cynode")]
    pub(crate) data: PathBuf,
}
