//! Programs, arguments, ports and files of a local stack.

use std::path::{Path, PathBuf};

use secrets::file;
use subjects::streams::Layout;

use crate::{
    cli::{DEFAULT_MODEL, GatewayLink, LOCAL_USER, Link, Up},
    error::Error,
};

/// Endings of environment variables that the processes do not inherit. A worker refuses to start with a
/// provider's key in its environment, and the gateway would read `GATEWAY_PORT` as a setting; a stack should
/// start despite both.
const NOT_INHERITED: [&str; 6] =
    ["_API_KEY", "_AUTH_TOKEN", "_ADMIN_KEY", "HF_TOKEN", "GATEWAY_PORT", "PMA_ROLE"];

/// The external provider of a stack.
pub(super) const PROVIDER: &str = "openai";

/// How long running work may take to finish when the stack stops. Short, so that it stops soon: what is not
/// finished is handed back, and done after the next start.
pub(super) const GRACE: &str = "5s";

/// The name of the node's process, and its id.
pub(super) const NODE: &str = "node-1";

/// The name of the process that runs workflows, and its id.
pub(super) const RUNNER: &str = "workflow-1";
pub(super) const RUNNER_PROGRAM: &str = "cynode-workflow";
/// Where `make run` and `make tools` put it.
pub(super) const RUNNER_FOLDER: &str = ".tools/workflow/bin";
/// How long a runner may be silent. Short, so that the workflows of a killed one go on soon.
pub(super) const RUNNER_LEASE: &str = "5s";

/// A process of the stack.
#[derive(Clone, Debug)]
pub(super) struct ProcessSpec {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// Locations and settings of the stack.
pub(super) struct StackConfig {
    pub(super) data: PathBuf,
    pub(super) up: Up,
    layout: Layout,
    nats_server: PathBuf,
    gateway: PathBuf,
    worker: PathBuf,
    orchestrator: PathBuf,
    /// Absent if no node is wanted.
    pub(super) node: Option<PathBuf>,
    /// Absent if there is no runner of workflows on this machine.
    pub(super) runner: Option<PathBuf>,
}

impl StackConfig {
    /// Finds the programs and creates the data folder.
    pub(super) fn find(up: Up, layout: Layout) -> Result<Self, Error> {
        let beside = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
        let find = |name: &'static str, given: Option<&PathBuf>| {
            let on_path = std::env::var_os("PATH").unwrap_or_default();
            let mut places: Vec<PathBuf> = given.cloned().into_iter().collect();
            if given.is_none() {
                places.extend(beside.iter().map(|folder| folder.join(name)));
                places.push(Path::new(".tools/bin").join(name));
                places.extend(std::env::split_paths(&on_path).map(|folder| folder.join(name)));
            }
            places.into_iter().find(|place| place.is_file()).ok_or(Error::ProgramNotFound(name))
        };
        // Before anything is created.
        if !up.instructions.is_dir() {
            return Err(Error::InstructionsNotFound(up.instructions));
        }
        if up.provider_key_file.is_some() && up.model == DEFAULT_MODEL {
            return Err(Error::Usage("a provider has many models: name one, as in MODEL=gpt-5 make run"));
        }
        // The programs that read these would report a wrong one only after all others have started.
        if let Some(key) = &up.provider_key_file {
            file::read_private(key).map_err(|error| Error::File(key.clone(), error))?;
        }
        if let Some(token) = &up.model_token_file {
            let text = std::fs::read_to_string(token).map_err(|error| Error::File(token.clone(), error))?;
            if text.trim().is_empty() {
                return Err(Error::NotAToken(token.clone()));
            }
        }
        let data = std::path::absolute(&up.data).map_err(|error| Error::Write(up.data.clone(), error))?;
        file::create_private_folder(&data).map_err(|error| Error::Write(data.clone(), error))?;
        // It holds tokens and conversations. A folder of another user keeps its rights.
        drop(file::make_private(&data));
        Ok(Self {
            nats_server: find("nats-server", up.nats_server.as_ref())?,
            gateway: find("cynode-gateway", None)?,
            worker: find("cynode-pma", None)?,
            orchestrator: find("cynode-orchestrator", None)?,
            node: (!up.no_node).then(|| find("cynode-node", None)).transpose()?,
            runner: find_runner(up.workflow_runner.as_ref())?,
            data,
            up,
            layout,
        })
    }

    /// Returns the ports that must be free, each with the setting that changes it.
    pub(super) fn ports(&self) -> Vec<(u16, &'static str)> {
        let (nats, gateway, api) = (self.up.nats_port, self.up.gateway_port, self.up.api_port);
        let mut ports = vec![
            (nats, "NATS_PORT"),
            (gateway, "GATEWAY_PORT"),
            (gateway.saturating_add(1), "GATEWAY_PORT"),
            (api, "API_PORT"),
            (api.saturating_add(1), "API_PORT"),
        ];
        if self.has_provider() {
            ports.push((self.egress_port(), "API_PORT"));
        }
        if self.node.is_some() {
            ports.push((self.node_port(), "API_PORT"));
        }
        if self.runner.is_some() {
            ports.push((self.runner_port(), "API_PORT"));
        }
        ports
    }

    pub(super) fn nats_url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.up.nats_port)
    }

    pub(super) fn mcp_url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.up.gateway_port)
    }

    pub(super) fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.up.gateway_port.saturating_add(1))
    }

    /// Returns the base URL of the OpenAI-compatible API.
    pub(super) fn api_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.up.api_port)
    }

    fn egress_port(&self) -> u16 {
        self.up.api_port.saturating_add(2)
    }

    /// Returns whether models are asked through the egress.
    pub(super) fn has_provider(&self) -> bool {
        self.up.provider_key_file.is_some()
    }

    pub(super) fn orchestrator_token(&self) -> PathBuf {
        self.data.join("orchestrator.token")
    }

    /// Returns the file with an API key of the person at the terminal.
    pub(super) fn api_key(&self) -> PathBuf {
        self.data.join("api.key")
    }

    pub(super) fn admin_token(&self) -> PathBuf {
        self.data.join("gateway/admin.token")
    }

    pub(super) fn manager_token(&self) -> PathBuf {
        self.data.join("manager.token")
    }

    /// Returns the file of the MCP server that the tour installs.
    pub(super) fn server_file(&self) -> PathBuf {
        self.data.join("word_server.py")
    }

    pub(super) fn analyst_token(&self) -> PathBuf {
        self.data.join("analyst.token")
    }

    /// Returns how the administrator reaches the gateway.
    pub(super) fn gateway_link(&self) -> GatewayLink {
        GatewayLink { gateway: self.admin_url(), admin_token_file: Some(self.admin_token()) }
    }

    pub(super) fn link(&self) -> Link {
        Link::to(self.nats_url(), self.layout)
    }

    pub(super) fn nats(&self) -> ProcessSpec {
        let store = self.data.join("nats").display().to_string();
        let port = self.up.nats_port.to_string();
        let arguments = ["-a", "127.0.0.1", "-p", &port, "-js", "-sd", &store].map(str::to_owned).to_vec();
        ProcessSpec { name: "nats".to_owned(), program: self.nats_server.clone(), arguments }
    }

    pub(super) fn gateway(&self) -> ProcessSpec {
        let arguments = vec![
            format!("--data={}", self.data.join("gateway").display()),
            format!("--listen=127.0.0.1:{}", self.up.gateway_port),
            format!("--admin-listen=127.0.0.1:{}", self.up.gateway_port.saturating_add(1)),
            format!("--set=nats.url={}", self.nats_url()),
            format!("--set=nats.layout={}", self.layout),
            "--set=audit.seal_every=1s".to_owned(),
            format!("--set=workflows.ack_wait={}", RUNNER_LEASE),
            format!("--set=admin.orchestrator_url={}", self.api_url()),
            format!("--set=admin.chat_user={LOCAL_USER}"),
        ];
        ProcessSpec { name: "gateway".to_owned(), program: self.gateway.clone(), arguments }
    }

    pub(super) fn workers(&self) -> Vec<ProcessSpec> {
        let managers = (1..=self.up.managers).map(|number| {
            let name = format!("manager-{number}");
            let mut spec = self.worker("project_manager", name, &self.manager_token());
            spec.arguments.push("--set=analysts.enabled=true".to_owned());
            spec
        });
        let analysts = (1..=self.up.analysts)
            .map(|number| self.worker("project_analyst", format!("analyst-{number}"), &self.analyst_token()));
        managers.chain(analysts).collect()
    }

    fn worker(&self, role: &str, name: String, token: &Path) -> ProcessSpec {
        let mut arguments = vec![
            "run".to_owned(),
            format!("--role={role}"),
            format!("--nats-url={}", self.nats_url()),
            format!("--set=nats.layout={}", self.layout),
            format!("--set=instance={name}"),
            format!("--set=instructions.root={}", self.up.instructions.display()),
            format!("--set=gateway.url={}", self.mcp_url()),
            format!("--set=gateway.token_file={}", token.display()),
            // Short, so that the tour shows a takeover without a long wait.
            "--set=worker.ack_wait=5s".to_owned(),
            format!("--set=worker.grace={GRACE}"),
        ];
        match &self.up.model_url {
            Some(url) => {
                arguments.push(format!("--set=inference.base_url={url}"));
                arguments.push(format!("--set=inference.model={}", self.up.model));
                let token = self.up.model_token_file.as_ref();
                arguments.extend(token.map(|file| format!("--set=inference.token_file={}", file.display())));
            }
            None if self.has_provider() => {
                let egress = format!("http://127.0.0.1:{}/egress", self.egress_port());
                arguments.push(format!("--set=inference.egress_url={egress}"));
                let model = &self.up.model;
                arguments.push(format!(
                    "--set=inference.providers=[{{ name = {PROVIDER:?}, model = {model:?} }}]"
                ));
            }
            None => {
                let pause = humantime::format_duration(self.up.think_time);
                arguments.push(format!("--set=inference.offline_delay={pause}"));
            }
        }
        ProcessSpec { name, program: self.worker.clone(), arguments }
    }

    pub(super) fn orchestrator(&self) -> ProcessSpec {
        let mut arguments = vec![
            format!("--set=api.listen=127.0.0.1:{}", self.up.api_port),
            format!("--set=admin.listen=127.0.0.1:{}", self.up.api_port.saturating_add(1)),
            format!("--set=nats.url={}", self.nats_url()),
            format!("--set=nats.layout={}", self.layout),
            format!("--set=gateway.url={}", self.mcp_url()),
            format!("--set=gateway.token_file={}", self.orchestrator_token().display()),
            format!("--set=grace={GRACE}"),
        ];
        if let Some(url) = &self.up.model_url {
            let key = self.up.model_token_file.as_ref();
            let key = key.map(|file| format!(", key_file = {:?}", file.display().to_string()));
            arguments.push(format!(
                "--set=direct.models=[{{ id = {:?}, url = {url:?}{} }}]",
                self.up.model,
                key.unwrap_or_default()
            ));
        }
        if let Some(file) = &self.up.provider_key_file {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            arguments.push(format!("--set=egress.listen=127.0.0.1:{}", self.egress_port()));
            arguments.push(format!(
                "--set=egress.providers=[{{ name = {PROVIDER:?}, url = {:?}, key_file = {:?} }}]",
                self.up.provider_url,
                file.display().to_string()
            ));
        }
        ProcessSpec { name: "orchestrator".to_owned(), program: self.orchestrator.clone(), arguments }
    }

    pub(super) fn has_model(&self) -> bool {
        self.up.model_url.is_some() || self.has_provider()
    }

    pub(super) fn describe_model(&self) -> String {
        match &self.up.model_url {
            Some(url) => format!("{} at {}", self.up.model, broker::redact_url(url)),
            None if self.has_provider() => {
                let url = broker::redact_url(&self.up.provider_url);
                format!("{} at {url}, through the egress", self.up.model)
            }
            None => "the offline model (INFERENCE_URL=… MODEL=… for a real one)".to_owned(),
        }
    }

    pub(super) fn welcome(&self) -> String {
        format!(
            "\nYou talk to the project manager of the project “{}”. /tasks lists its tasks, /help all \
             commands, Ctrl-C stops everything.\nConsole, with a chat in the browser: {}/console (sign in \
             with the token in {}). Logs: {}\n{}\n{}\n",
            super::seed::TITLE,
            self.admin_url(),
            relative_path(&self.admin_token()),
            relative_path(&self.data.join("*.log")),
            self.describe_user(),
            self.describe_api(),
        )
    }

    /// Introduces the user of the stack.
    pub(super) fn describe_user(&self) -> String {
        format!(
            "The user of this stack is `{LOCAL_USER}`, the person at this terminal: chats here and in the \
             console and the API key in {} act for `{LOCAL_USER}`, and cynodectl does with --user \
             {LOCAL_USER}",
            relative_path(&self.api_key())
        )
    }

    /// Says how other programs talk to the project manager.
    pub(super) fn describe_api(&self) -> String {
        let (url, key) = (self.api_url(), relative_path(&self.api_key()));
        let body = r#"{"model":"cynodeai.pm","messages":[{"role":"user","content":"What is left to do?"}]}"#;
        format!(
            "OpenAI-compatible API: {url}, model cynodeai.pm, key in {key}\n\
             \x20 curl:       curl {url}/chat/completions -H \"Authorization: Bearer $(cat {key})\" -H \
             'Content-Type: application/json' -d '{body}'\n\
             \x20 openai SDK: OPENAI_BASE_URL={url} OPENAI_API_KEY=$(cat {key})\n\
             \x20 Open WebUI: Settings, Connections, OpenAI API: the same URL, and a key of a front end; see \
             docs/chat-api.md"
        )
    }
}

/// Finds the runner of workflows: the given one, that of this repository, or one on PATH.
fn find_runner(given: Option<&PathBuf>) -> Result<Option<PathBuf>, Error> {
    if let Some(given) = given {
        let found = given.is_file().then(|| given.clone());
        return found.map(Some).ok_or(Error::ProgramNotFound(RUNNER_PROGRAM));
    }
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(RUNNER_FOLDER)).chain(std::env::split_paths(&on_path));
    Ok(folders.map(|folder| folder.join(RUNNER_PROGRAM)).find(|place| place.is_file()))
}

/// Returns whether the processes inherit an environment variable.
pub(super) fn is_inherited(name: &str) -> bool {
    !NOT_INHERITED.iter().any(|ending| name.ends_with(ending))
}

/// Returns a path relative to the current folder, if it is below it.
fn relative_path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
