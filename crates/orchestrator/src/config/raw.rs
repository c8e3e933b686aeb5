//! Settings as they are written: every key, its default and its meaning, and nowhere else.

use serde::{Deserialize, Serialize};
use settings::{NatsTls, Telemetry, Text, section};

section! {
    pub(crate) struct Raw {
        api: Api,
        admin: Admin,
        nats: Nats,
        gateway: Gateway,
        chat: Chat,
        direct: Direct,
        egress: Egress,
        rate_limits: RateLimits,
        unauthenticated: Unauthenticated,
        connections: Connections,
        /// Time that running requests get after SIGTERM. Streams that are cut off can be joined at another
        /// orchestrator.
        grace: Text = "20s",
        telemetry: Telemetry = Telemetry::with_defaults("json", "info"),
    }
}

section! {
    pub(crate) struct Api {
        /// Address for clients.
        listen: Text = "127.0.0.1:8780",
        /// Host names under which clients reach the API; a request for another name is refused.
        hosts: Vec<String> = local(),
        /// Origins of web pages that may call the API with a key of their own. None by default.
        origins: Vec<String>,
        /// Largest request in bytes.
        max_body_bytes: Text = "2097152",
        /// Longest time that a request may take to arrive.
        read_timeout: Text = "10s",
    }
}

section! {
    pub(crate) struct Admin {
        /// Address for `/livez`, `/readyz` and `/metrics`.
        listen: Text = "127.0.0.1:8781",
    }
}

section! {
    pub(crate) struct Nats {
        /// NATS servers, separated by commas.
        url: Text = "nats://127.0.0.1:4222",
        /// Credentials: a `.creds` file with user JWT and seed.
        creds_file: Option<Text>,
        /// Credentials: a file with an nkey seed.
        nkey_file: Option<Text>,
        /// Inbox prefix for request replies.
        inbox_prefix: Text = "_INBOX",
        /// `shared` or `by_role`, as the workers have it.
        layout: Text = "shared",
        tls: NatsTls,
        /// File with the nkey seed that signs handoffs. Needed if the workers have
        /// `security.trusted_producers`.
        signing_key_file: Option<Text>,
    }
}

section! {
    pub(crate) struct Gateway {
        /// MCP endpoint of the gateway.
        url: Text = "http://127.0.0.1:8790/mcp",
        /// File with the orchestrator's token: one of agent type `orchestrator`.
        token_file: Option<Text>,
        /// Longest time for one call, with its retry.
        timeout: Text = "10s",
        /// Calls tools without rmcp's client. Turn it off to compare or to work around a problem; see
        /// [fast paths](fast-paths.md).
        fast_path: Text = "true",
    }
}

section! {
    pub(crate) struct Chat {
        /// Most messages of one request.
        max_messages: Text = "2000",
        /// Most streams that are open at the same time, over all keys, with those of models for direct
        /// inference.
        max_streams: Text = "4000",
        /// Longest silence of a stream: a comment is sent then, so that neither clients nor proxies close it.
        /// A stream of a direct model begins when its server answers, which may take `direct.silence`.
        keep_alive: Text = "5s",
        /// How a stream sends text that a model is writing and that may turn out not to be the answer: as
        /// `content`, as `reasoning`, or `off`; see [streams](chat-api.md#streams).
        drafts: Text = "content",
        /// How long a request without streaming waits for its answer. Afterwards the answer can be fetched.
        wait: Text = "9m 30s",
        /// Model that answers prompts which front ends make for themselves, such as for titles. Without it
        /// they are answered by rule. Never `cynodeai.pm`.
        task_model: Option<Text>,
        /// How often handoffs are looked for that an orchestrator stored and did not publish.
        sweep_every: Text = "5s",
        /// Publishes handoffs again that the queue has lost. Turn it off where orchestrators with one gateway
        /// have NATS accounts of their own: none sees the queues of the others.
        resend_lost: Text = "true",
        /// How long an API key stays valid here after it was last checked. A revocation is heard over NATS
        /// before that.
        key_cache: Text = "5s",
    }
}

section! {
    pub(crate) struct Direct {
        /// Models that are not the project manager: `[{ id = "llama", url = "http://127.0.0.1:11434/v1",
        /// model = "llama3.2", key_file = "llama.key" }]`. `model` is what the server calls it, by default
        /// `id`.
        models: Vec<DirectModel>,
        /// Longest time to connect to a model server.
        connect_timeout: Text = "5s",
        /// Longest silence of a model server. Comments in its stream end a silence.
        silence: Text = "120s",
    }
}

/// A model that is not the project manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectModel {
    pub(crate) id: String,
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<String>,
}

section! {
    pub(crate) struct Egress {
        /// Address for agents, which reach external providers at `/egress/<name>/…`. Opened if there are
        /// providers.
        listen: Text = "127.0.0.1:8782",
        /// Host names under which agents reach the egress; a request for another name is refused.
        hosts: Vec<String> = local(),
        /// Largest request in bytes.
        max_body_bytes: Text = "8388608",
        /// Most calls at the same time.
        max_calls: Text = "256",
        /// Longest time of one call.
        timeout: Text = "10m",
        /// Longest silence of a provider.
        silence: Text = "2m",
        /// External providers, with their keys in files: `[{ name = "openai", url = "https://…/v1",
        /// key_file = "…", auth = "bearer", models = ["gpt-*"], price = { prompt = 1.25, completion = 10 },
        /// budget = { tokens_per_day = 1000000, usd_per_day = 5 }, max_completion_tokens = 4096,
        /// limit_field = "max_completion_tokens", include_usage = true }]`; see [egress](egress.md).
        providers: Vec<Provider>,
    }
}

/// An external provider. Only its name, its address and the file with its key are needed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) models: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) price: Option<Price>,
    #[serde(default)]
    pub(crate) budget: Budget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_completion_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit_field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) include_usage: Option<bool>,
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    pub(crate) prompt: f64,
    pub(crate) completion: f64,
}

/// What one user may use in a day.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Budget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usd_per_day: Option<f64>,
}

section! {
    pub(crate) struct RateLimits {
        /// Requests a minute for each API key, at each orchestrator.
        requests_per_minute: Text = "600",
        /// Chats of one API key that are worked on at the same time, also those whose client is gone.
        concurrent_turns: Text = "64",
    }
}

section! {
    pub(crate) struct Unauthenticated {
        /// Requests a second without a valid key from one address (IPv6: one /64); bursts of five times as
        /// many.
        per_second: Text = "20",
    }
}

section! {
    pub(crate) struct Connections {
        /// Open connections for each listener.
        max: Text = "8192",
        /// Longest time that the head of a request may take.
        header_timeout: Text = "10s",
        /// Longest silence between requests. Clients should close first: keep it above their idle time.
        idle_timeout: Text = "75s",
    }
}

fn local() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
}
