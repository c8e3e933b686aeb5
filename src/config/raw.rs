//! Settings as they are written. Every default stands here, and nowhere else.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Deserializer, Serialize, de};

/// A value that is read as text whatever it looks like: a model may be called `123`, and `5` is no duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Text(pub(super) String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) role: Option<Text>,
    pub(super) instance: Option<Text>,
    pub(super) nats: Nats,
    pub(super) instructions: Instructions,
    pub(super) gateway: Gateway,
    pub(super) inference: Inference,
    pub(super) worker: Worker,
    pub(super) agent: Agent,
    pub(super) analysts: Analysts,
    pub(super) security: Security,
    pub(super) http: Http,
    pub(super) telemetry: Telemetry,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Nats {
    pub(super) url: Text,
    pub(super) creds_file: Option<Text>,
    pub(super) nkey_file: Option<Text>,
    pub(super) inbox_prefix: Text,
    pub(super) tls: Tls,
    pub(super) layout: Text,
    pub(super) provision: Text,
    pub(super) replicas: Text,
    pub(super) dedupe_window: Text,
}

impl Default for Nats {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".into(),
            creds_file: None,
            nkey_file: None,
            inbox_prefix: "_INBOX".into(),
            tls: Tls::default(),
            layout: "shared".into(),
            provision: "create".into(),
            replicas: "1".into(),
            dedupe_window: "2m".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tls {
    pub(super) required: Text,
    pub(super) ca_file: Option<Text>,
    pub(super) cert_file: Option<Text>,
    pub(super) key_file: Option<Text>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { required: "false".into(), ca_file: None, cert_file: None, key_file: None }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Instructions {
    pub(super) root: Text,
    pub(super) project_manager: Option<Text>,
    pub(super) project_analyst: Option<Text>,
    pub(super) skill: Option<Text>,
}

impl Default for Instructions {
    fn default() -> Self {
        Self { root: "instructions".into(), project_manager: None, project_analyst: None, skill: None }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Gateway {
    pub(super) url: Option<Text>,
    pub(super) token_file: Option<Text>,
    pub(super) timeout: Text,
    pub(super) patience: Text,
    pub(super) max_result_bytes: Text,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            url: None,
            token_file: None,
            timeout: "60s".into(),
            patience: "60s".into(),
            max_result_bytes: "32768".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Inference {
    pub(super) backend: Text,
    pub(super) base_url: Option<Text>,
    pub(super) model: Option<Text>,
    pub(super) fast_model: Option<Text>,
    pub(super) strong_model: Option<Text>,
    pub(super) token_file: Option<Text>,
    pub(super) timeout: Text,
    pub(super) tries: Text,
    pub(super) patience: Text,
    pub(super) skills: Text,
    pub(super) egress_url: Option<Text>,
    pub(super) egress_token_file: Option<Text>,
    pub(super) providers: Vec<Provider>,
    pub(super) price: Price,
    pub(super) recording: Option<Text>,
    pub(super) record_to: Option<Text>,
    pub(super) offline_delay: Text,
}

/// An external provider behind the egress, and the model to ask of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) model: String,
}

/// US dollars for a million tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Price {
    pub(super) prompt: Option<Text>,
    pub(super) completion: Option<Text>,
}

impl Default for Inference {
    fn default() -> Self {
        Self {
            backend: "auto".into(),
            base_url: None,
            model: None,
            fast_model: None,
            strong_model: None,
            token_file: None,
            timeout: "120s".into(),
            tries: "4".into(),
            patience: "60s".into(),
            skills: "true".into(),
            egress_url: None,
            egress_token_file: None,
            providers: Vec::new(),
            price: Price::default(),
            recording: None,
            record_to: None,
            offline_delay: "0s".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Worker {
    pub(super) concurrency: Concurrency,
    pub(super) threads: Text,
    pub(super) ack_wait: Text,
    pub(super) grace: Text,
    pub(super) max_attempts: Text,
    pub(super) sweep_every: Text,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            concurrency: Concurrency::default(),
            threads: "1".into(),
            ack_wait: "30s".into(),
            grace: "20s".into(),
            max_attempts: "5".into(),
            sweep_every: "60s".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Concurrency {
    pub(super) chat: Text,
    pub(super) schedule: Text,
    pub(super) plan: Text,
    pub(super) r#continue: Text,
    pub(super) verify: Text,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            chat: "16".into(),
            schedule: "4".into(),
            plan: "4".into(),
            r#continue: "8".into(),
            verify: "8".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Agent {
    pub(super) max_steps: Text,
    pub(super) temperature: Text,
    pub(super) context_tokens: Text,
    pub(super) token_budget: Text,
    pub(super) offered_tools: Text,
    pub(super) max_reply_bytes: Text,
    pub(super) think_timeout: Text,
    pub(super) max_turn: Text,
    pub(super) assess_input: Text,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            max_steps: "12".into(),
            temperature: "0.2".into(),
            context_tokens: "16384".into(),
            token_budget: "200000".into(),
            offered_tools: "8".into(),
            max_reply_bytes: "65536".into(),
            think_timeout: "120s".into(),
            max_turn: "30m".into(),
            assess_input: "true".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Analysts {
    pub(super) enabled: Text,
    pub(super) max_concurrent: Text,
    pub(super) timeout: Text,
}

impl Default for Analysts {
    fn default() -> Self {
        Self { enabled: "false".into(), max_concurrent: "2".into(), timeout: "10m".into() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Security {
    pub(super) trusted_producers: Vec<Producer>,
    pub(super) signing_key_file: Option<Text>,
    pub(super) reply_prefixes: Vec<String>,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            trusted_producers: Vec::new(),
            signing_key_file: None,
            reply_prefixes: vec!["pma.reply.".into(), "pa.reply.".into(), "_INBOX.".into()],
        }
    }
}

/// A key alone, or a key and the subjects it may publish to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Producer {
    Key(String),
    Limited { key: String, subjects: Vec<String> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Http {
    pub(super) listen: Text,
}

impl Default for Http {
    fn default() -> Self {
        // Any free port, so that instances of both roles run side by side; the log and `$SRV.INFO` tell which.
        Self { listen: "127.0.0.1:0".into() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Telemetry {
    pub(super) log_format: Text,
    pub(super) log_level: Text,
    pub(super) otlp_endpoint: Option<Text>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { log_format: "text".into(), log_level: "info,async_nats=warn".into(), otlp_endpoint: None }
    }
}

/// Every setting there is, as a dotted key.
pub(super) fn keys() -> BTreeSet<String> {
    fn walk(prefix: &str, value: &serde_json::Value, out: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    walk(&key, value, out);
                }
            }
            _ => {
                out.insert(prefix.to_owned());
            }
        }
    }
    let mut out = BTreeSet::new();
    // `Raw` has only string keys, so this cannot fail; an empty set would refuse every variable by name.
    if let Ok(value) = serde_json::to_value(Raw::default()) {
        walk("", &value, &mut out);
    }
    out
}
