//! Settings as they are written. Every default stands here, and nowhere else.

use figment::value::{Dict, Value};
use serde::{Deserialize, Serialize};

macro_rules! section {
    ($name:ident { $($field:ident: $kind:ty = $default:expr),* $(,)? }) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct $name { $(pub(super) $field: $kind),* }
        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default.into()),* }
            }
        }
    };
}

section!(Raw {
    data: String = ".cynode/gateway",
    mcp: Mcp = Mcp::default(),
    admin: Admin = Admin::default(),
    store: Store = Store::default(),
    audit: Audit = Audit::default(),
    calls: Calls = Calls::default(),
    connections: Connections = Connections::default(),
    strangers: Strangers = Strangers::default(),
    upstreams: Upstreams = Upstreams::default(),
    nats: Nats = Nats::default(),
    grace: String = "20s",
    log: Log = Log::default(),
    telemetry: Telemetry = Telemetry::default(),
});

section!(Mcp {
    listen: String = "127.0.0.1:8790",
    hosts: Vec<String> = local(),
    origins: Vec<String> = Vec::<String>::new(),
    // An artifact of 1 MiB in base64 fits.
    max_body_bytes: usize = 2_usize << 20,
    read_timeout: String = "10s",
});

section!(Admin {
    listen: String = "127.0.0.1:8791",
    hosts: Vec<String> = local(),
    token_file: String = "",
    token_lives: String = "90days",
    session: String = "12h",
    https: bool = false,
});

section!(Store {
    url: String = "",
    max_connections: usize = 16_usize,
    patience: String = "5s",
    durability: String = "process",
});

section!(Audit {
    signing_key_file: String = "",
    head_file: String = "",
    seal_every: String = "5s",
    keep: String = "forever",
});

section!(Calls {
    max_result_bytes: usize = 1_usize << 20,
    per_second: usize = 1000_usize,
    keep_keys: String = "7days",
});

section!(Connections {
    max: usize = 1024_usize,
    header_timeout: String = "10s",
    // Longer than clients keep connections that they do not use (30 s ours), so that they close first.
    idle_timeout: String = "75s",
});

section!(Strangers { per_second: usize = 20_usize, report_every: String = "60s" });

section!(Upstreams { connect_timeout: String = "5s", refresh_every: String = "60s", stdio: bool = true });

section!(Nats {
    url: String = "",
    creds_file: String = "",
    nkey_file: String = "",
    inbox_prefix: String = "_INBOX",
    layout: String = "shared",
    tls: bool = false,
    ca_file: String = "",
    cert_file: String = "",
    key_file: String = "",
    signing_key_file: String = "",
});

section!(Log { level: String = "info", format: String = "json" });

section!(Telemetry { otlp_endpoint: String = "" });

fn local() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
}

/// Every setting by its dotted name, in the order in which they stand above.
pub(super) fn keys() -> Vec<String> {
    let mut keys = Vec::new();
    if let Ok(Value::Dict(_, dict)) = Value::serialize(Raw::default()) {
        collect("", &dict, &mut keys);
    }
    keys
}

fn collect(prefix: &str, dict: &Dict, keys: &mut Vec<String>) {
    for (name, value) in dict {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Dict(_, inner) => collect(&key, inner, keys),
            _ => keys.push(key),
        }
    }
}

pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Array(_, items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Bool(_, value) => value.to_string(),
        Value::Num(_, number) => {
            let unsigned = number.to_u128().map(|number| number.to_string());
            let signed = || number.to_i128().map(|number| number.to_string());
            unsigned.or_else(signed).unwrap_or_else(|| "?".to_owned())
        }
        Value::Char(_, letter) => format!("{letter:?}"),
        Value::Dict(..) | Value::Empty(..) => "\"\"".to_owned(),
    }
}
