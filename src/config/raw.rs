//! Settings as they are written: every key, its default and its meaning, and nowhere else.

use serde::{Deserialize, Serialize};
use settings::{NatsTls, Telemetry, Text, section};

section! {
    pub(crate) struct Raw {
        /// `project_manager` or `project_analyst`; required. Also `--role`.
        role: Option<Text>,
        /// Name of this instance; generated at start if not set.
        instance: Option<Text>,
        nats: Nats,
        instructions: Instructions,
        gateway: Gateway,
        memory: Memory,
        inference: Inference,
        worker: Worker,
        agent: Agent,
        analysts: Analysts,
        security: Security,
        http: Http,
        telemetry: Telemetry = Telemetry::with_defaults("text", "info,async_nats=warn"),
    }
}

section! {
    pub(crate) struct Nats {
        /// NATS servers, separated by commas.
        url: Text = "nats://127.0.0.1:4222",
        /// Credentials of this instance: a `.creds` file with user JWT and seed.
        creds_file: Option<Text>,
        /// Credentials of this instance: a file with an nkey seed.
        nkey_file: Option<Text>,
        /// Inbox prefix for request replies. With a prefix of its own per identity, NATS permissions keep
        /// others from reading the replies.
        inbox_prefix: Text = "_INBOX",
        tls: NatsTls,
        /// `shared`: both roles use one queue and one stream of answers. `by_role`: analysts have streams of
        /// their own, so that NATS permissions separate them from managers; see [security](security.md).
        layout: Text = "shared",
        /// `create` makes missing streams and consumers and reports drift; `verify` refuses drift by name;
        /// `none` does not look.
        provision: Text = "create",
        /// Replicas of the streams that are created.
        replicas: Text = "1",
        /// Time for which the queue remembers message ids. More costs the server memory
        /// ([scaling](scaling.md#the-dedupe-window)); later copies are found by their journals.
        dedupe_window: Text = "2m",
    }
}

section! {
    pub(crate) struct Instructions {
        /// Folder with the instruction bundles of both roles.
        root: Text = "instructions",
        /// Bundle of the project manager; default: `project_manager` in the root.
        project_manager: Option<Text>,
        /// Bundle of the project analyst; default: `project_analyst` in the root.
        project_analyst: Option<Text>,
        /// The default skill; default: `skills/cynode-interaction.md` in the root.
        skill: Option<Text>,
    }
}

section! {
    pub(crate) struct Gateway {
        /// URL of the MCP gateway. Without it a worker has no tools and says so.
        url: Option<Text>,
        /// File with this agent's token.
        token_file: Option<Text>,
        /// Longest wait for one tool call.
        timeout: Text = "60s",
        /// Time a handoff waits for a gateway that is away, from its first failed call, before it is answered
        /// as failed.
        patience: Text = "60s",
        /// Tool results are cut at this many bytes.
        max_result_bytes: Text = "32768",
        /// Calls tools without rmcp's client. Turn it off to compare or to work around a problem; see
        /// [fast paths](fast-paths.md).
        fast_path: Text = "true",
    }
}

section! {
    pub(crate) struct Memory {
        /// Memory profile under which this worker calls tools, unless the lease of a handoff names one.
        /// Whether their calls may reach the network is a setting of the gateway; see
        /// [memory profiles](gateway.md#memory-profiles).
        profile: Text = "default",
        /// Memories that a manager recalls before it plans or answers, 0 to 10; 0 recalls none and costs
        /// nothing. See [memory](memory.md).
        recall: Text = "0",
    }
}

section! {
    pub(crate) struct Inference {
        /// `openai`, `replay` or `offline`; `auto`: `openai` if there is a server, `replay` if there is a
        /// recording, else `offline`.
        backend: Text = "auto",
        /// An OpenAI-compatible server, as in `http://127.0.0.1:8080/v1`.
        base_url: Option<Text>,
        /// The model to ask for.
        model: Option<Text>,
        /// Model for small typed questions; default: `inference.model`.
        fast_model: Option<Text>,
        /// Model for plans and verdicts; default: `inference.model`.
        strong_model: Option<Text>,
        /// File with the token for `inference.base_url`.
        token_file: Option<Text>,
        /// Longest silence of a model; only content ends it.
        timeout: Text = "120s",
        /// Tries of one model call that is silent or breaks off.
        tries: Text = "4",
        /// Time a handoff waits for a model that is away, from its first failed try, before it is answered as
        /// failed.
        patience: Text = "60s",
        /// Whether the default skill goes with every request.
        skills: Text = "true",
        /// The egress of an orchestrator, as in `http://127.0.0.1:8782/egress`. Each external provider is at
        /// `<egress_url>/<name>`, and asked under the lease of a handoff; see [egress](egress.md).
        egress_url: Option<Text>,
        /// File with the token for the egress; default: `gateway.token_file`.
        egress_token_file: Option<Text>,
        /// External models behind the egress: `[{ name = "…", model = "…" }]`.
        providers: Vec<Provider>,
        /// How models call tools: `native` (the calls of the chat protocol), `typed` (one constrained JSON
        /// object per turn, for small models), or `auto`: by the model's name and size, and by what it does.
        tool_mode: Text = "auto",
        /// How single models are asked, the first that matches:
        /// `[{ model = "qwen*", tool_mode = "typed", context_tokens = 8192, temperature = 0.2,
        /// max_tokens = 512, parallel_calls = false, stop = ["</s>"] }]`.
        profiles: Vec<ModelProfile>,
        price: Price,
        /// Answer from this recording, and refuse what it does not have.
        recording: Option<Text>,
        /// Record everything that is asked and answered to this file.
        record_to: Option<Text>,
        /// Thinking time of the offline model.
        offline_delay: Text = "0s",
    }
}

/// An external provider behind the egress, and the model to ask it for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) model: String,
}

/// How models are asked whose name matches `model`, in which `*` stands for any text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelProfile {
    pub(crate) model: String,
    pub(crate) tool_mode: Option<String>,
    pub(crate) context_tokens: Option<usize>,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) parallel_calls: Option<bool>,
    #[serde(default)]
    pub(crate) stop: Vec<String>,
}

section! {
    pub(crate) struct Price {
        /// US dollars for a million prompt tokens; answers then tell their cost.
        prompt: Option<Text>,
        /// US dollars for a million completion tokens.
        completion: Option<Text>,
    }
}

section! {
    pub(crate) struct Worker {
        concurrency: Concurrency,
        /// Threads. One does more than ten thousand handoffs a second; see [scaling](scaling.md) before you
        /// set more.
        threads: Text = "1",
        /// Time without a heartbeat after which the server gives a handoff to another instance.
        ack_wait: Text = "30s",
        /// Time that running work gets after SIGTERM.
        grace: Text = "20s",
        /// A handoff that ends this many workers in a row without progress is dead-lettered as `poisoned`.
        max_attempts: Text = "5",
        /// How often to look for handoffs that were left behind.
        sweep_every: Text = "60s",
    }
}

section! {
    pub(crate) struct Concurrency {
        /// Chat handoffs at a time; each kind has slots of its own.
        chat: Text = "16",
        /// Schedule handoffs at a time.
        schedule: Text = "4",
        /// Plan handoffs at a time.
        plan: Text = "4",
        /// Continue handoffs at a time.
        r#continue: Text = "8",
        /// Review handoffs at a time.
        review: Text = "4",
        /// Verify handoffs at a time.
        verify: Text = "8",
    }
}

section! {
    pub(crate) struct Agent {
        /// Model calls per handoff, clamped to 1..50. Also `PLANNER_MAX_STEPS`.
        max_steps: Text = "12",
        /// Sampling temperature, clamped to 0..2. Also `MODEL_TEMPERATURE`.
        temperature: Text = "0.2",
        /// Tokens that one request may hold; the oldest turns are dropped first.
        context_tokens: Text = "16384",
        /// Tokens that one handoff may use in all.
        token_budget: Text = "200000",
        /// Tools offered to the model, best match first.
        offered_tools: Text = "8",
        /// Longer replies are cut at this many bytes.
        max_reply_bytes: Text = "65536",
        /// Longest time that models may take for a structured output; waiting for a server that is away is
        /// not counted.
        think_timeout: Text = "120s",
        /// Longest time that one instance works on a handoff; after that it is answered as
        /// `deadline_exceeded` and kept as a dead letter.
        max_turn: Text = "30m",
        /// Whether to ask the fast model for type and scope of a goal before it is planned: small ones are
        /// planned by the usual model, others by the strong one. Recorded in the trace.
        assess_input: Text = "true",
    }
}

section! {
    pub(crate) struct Analysts {
        /// Whether a manager may have work verified by analysts.
        enabled: Text = "false",
        /// Verifications that this instance may have in progress at a time, over all handoffs.
        max_concurrent: Text = "2",
        /// Longest wait for an analyst's findings.
        timeout: Text = "10m",
    }
}

section! {
    pub(crate) struct Security {
        /// nkeys one of which must have signed a handoff: a key, or `{ key, subjects }`. Empty: every
        /// producer that NATS lets publish.
        trusted_producers: Vec<Producer>,
        /// File with the nkey seed with which a manager signs its `pa.verify` handoffs.
        signing_key_file: Option<Text>,
        /// Prefixes that `reply_to` may have.
        reply_prefixes: Vec<String> = ["pma.reply.", "pa.reply.", "_INBOX."].map(str::to_owned),
    }
}

/// A key alone, or a key and the subjects it may publish to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Producer {
    Key(String),
    Limited { key: String, subjects: Vec<String> },
}

section! {
    pub(crate) struct Http {
        /// Address of `/healthz`, `/readyz` and `/metrics`. Port 0 is any free one, which the log and
        /// `$SRV.INFO` tell; empty: none.
        listen: Text = "127.0.0.1:0",
    }
}
