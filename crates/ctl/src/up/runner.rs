//! The runner of workflows of the stack, if its packages are on this machine.

use std::path::{Path, PathBuf};

use super::{
    child,
    config::{GRACE, ProcessSpec, RUNNER, RUNNER_FOLDER, RUNNER_LEASE, RUNNER_PROGRAM, StackConfig},
};

/// Whether a runner can run here.
pub(super) enum Runner {
    Works(PathBuf),
    /// What is missing.
    Missing(String),
}

/// Has the program say its version, which fails without its Python. Its libraries take seconds to load, so it
/// finds out only later that one of them is missing.
pub(super) async fn check(config: &StackConfig) -> Runner {
    let Some(program) = &config.runner else {
        return Runner::Missing(format!(
            "{RUNNER_FOLDER}/{RUNNER_PROGRAM} is not there: `make tools` gets it"
        ));
    };
    // A script is found from any folder.
    let program = std::path::absolute(program).unwrap_or_else(|_| program.clone());
    let arguments = vec!["--version".to_owned()];
    let spec = ProcessSpec { name: RUNNER.to_owned(), program: program.clone(), arguments };
    match child::run(&spec).await {
        Ok((ended, _)) if ended.success() => Runner::Works(program),
        Ok((_, text)) => {
            let said = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it fails");
            Runner::Missing(format!("{}: {}", program.display(), said.trim()))
        }
        Err(error) => Runner::Missing(broker::Chain(&error).to_string()),
    }
}

impl StackConfig {
    /// Returns the port of the runner's probes and metrics.
    pub(super) fn runner_port(&self) -> u16 {
        self.up.api_port.saturating_add(6)
    }

    pub(super) fn runner_token(&self) -> PathBuf {
        self.data.join("workflow.token")
    }

    /// Returns how the runner is started.
    pub(super) fn runner_spec(&self, program: &Path) -> ProcessSpec {
        let settings = [
            ("runner.id", RUNNER.to_owned()),
            ("runner.grace", GRACE.to_owned()),
            ("runner.lease", RUNNER_LEASE.to_owned()),
            ("nats.url", self.nats_url()),
            ("nats.ack_wait", RUNNER_LEASE.to_owned()),
            ("gateway.url", self.mcp_url()),
            ("gateway.token_file", self.runner_token().display().to_string()),
            ("admin.listen", format!("127.0.0.1:{}", self.runner_port())),
        ];
        let arguments = settings.into_iter().map(|(key, value)| format!("--set={key}={value}"));
        let arguments = arguments.chain(std::iter::once("run".to_owned())).collect();
        ProcessSpec { name: RUNNER.to_owned(), program: program.to_owned(), arguments }
    }
}
