//! Checks the settings and converts them into a [`Config`].

use std::{path::PathBuf, time::Duration};

use access::unauthenticated;
use policy::LeaseMode;
use registry::upstreams;
use settings::{Checker, Error, NatsConnection, Text, nats_options};
use url::Url;

use super::{
    Audit, Calls, Config, Leases, Mcp, Nats, Workflows,
    raw::{self, Raw},
};
use store::Durability;

const MOMENT: Duration = Duration::from_millis(1);
/// As for every administrator's token.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);
/// A lease can be checked without the store, so it should not outlive its revocation for long.
const MAX_LEASE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// A workflow of a dead runner waits as long.
const MAX_ACK_WAIT: Duration = Duration::from_secs(10 * 60);
const MAX_BYTES: usize = 64 << 20;
const MAX_RATE: u32 = 10_000_000;
/// Documents of an index are numbered with 32 bits.
const MAX_CHUNKS: u64 = 100_000_000;
const MAX_MEMORY_BYTES: u64 = 1 << 40;

pub(super) fn check(check: &Checker<'_>, raw: &Raw, file: Option<PathBuf>) -> Result<Config, Error> {
    let data = PathBuf::from(raw.data.as_str());
    let in_data =
        |text: &Option<Text>, name: &str| given(text).map_or_else(|| data.join(name), PathBuf::from);
    Ok(Config {
        mcp: mcp(check, &raw.mcp)?,
        admin: admin::Settings {
            listen: check.address("admin.listen", &raw.admin.listen)?,
            hosts: hosts(check, "admin.hosts", &raw.admin.hosts)?,
            token_file: in_data(&raw.admin.token_file, "admin.token"),
            token_lives: check.duration(
                "admin.token_lives",
                &raw.admin.token_lives,
                MOMENT..=MAX_TOKEN_LIFETIME,
            )?,
            session: check.positive_duration("admin.session", &raw.admin.session)?,
            https: check.boolean("admin.https", &raw.admin.https)?,
            chat_user: raw
                .admin
                .chat_user
                .as_str()
                .trim()
                .parse()
                .map_err(|error: subjects::IdError| check.refuse("admin.chat_user", error.to_string()))?,
            orchestrator_url: given(&raw.admin.orchestrator_url)
                .map(|text| orchestrator_url(check, text))
                .transpose()?,
        },
        store: store(check, &raw.store, &data.join("gateway.db"))?,
        audit: Audit {
            signing_key_file: in_data(&raw.audit.signing_key_file, "audit.nk"),
            head_file: in_data(&raw.audit.head_file, "audit-heads.jsonl"),
            seal_every: check.positive_duration("audit.seal_every", &raw.audit.seal_every)?,
            keep: match raw.audit.keep.as_str().trim() {
                "forever" => None,
                _ => Some(check.positive_duration("audit.keep", &raw.audit.keep)?),
            },
            fast_append: check.boolean("audit.fast_append", &raw.audit.fast_append)?,
            node_grace: check.positive_duration("audit.node_grace", &raw.audit.node_grace)?,
        },
        calls: Calls {
            max_result_bytes: check.number(
                "calls.max_result_bytes",
                &raw.calls.max_result_bytes,
                1024..=MAX_BYTES,
            )?,
            per_second: check.number("calls.per_second", &raw.calls.per_second, 1..=MAX_RATE)?,
            keep_keys: check.positive_duration("calls.keep_keys", &raw.calls.keep_keys)?,
        },
        leases: leases(check, &raw.leases, in_data(&raw.leases.signing_key_file, "lease.nk"))?,
        connections: connections(check, &raw.connections)?,
        unauthenticated: unauthenticated::Settings {
            per_second: check.number(
                "unauthenticated.per_second",
                &raw.unauthenticated.per_second,
                1..=MAX_RATE,
            )?,
            report_every: check
                .positive_duration("unauthenticated.report_every", &raw.unauthenticated.report_every)?,
        },
        upstreams: upstreams::Settings {
            connect_timeout: check
                .positive_duration("upstreams.connect_timeout", &raw.upstreams.connect_timeout)?,
            refresh_every: check
                .positive_duration("upstreams.refresh_every", &raw.upstreams.refresh_every)?,
            stdio: check.boolean("upstreams.stdio", &raw.upstreams.stdio)?,
            fast_path: check.boolean("upstreams.fast_path", &raw.upstreams.fast_path)?,
        },
        sandbox: super::sandbox::check(check, &raw.sandbox)?,
        memory: control::MemorySettings {
            max_chunks: check.number("memory.max_chunks", &raw.memory.max_chunks, 1..=MAX_CHUNKS)?,
            max_bytes: check.number("memory.max_bytes", &raw.memory.max_bytes, 1..=MAX_MEMORY_BYTES)?,
            index_bytes: check.number("memory.index_bytes", &raw.memory.index_bytes, 1..=MAX_MEMORY_BYTES)?,
        },
        workflows: Workflows {
            ack_wait: check.duration("workflows.ack_wait", &raw.workflows.ack_wait, SECOND..=MAX_ACK_WAIT)?,
        },
        nats: nats(check, &raw.nats)?,
        grace: check.positive_duration("grace", &raw.grace)?,
        telemetry: raw.telemetry.check(check)?,
        data,
        file,
    })
}

fn mcp(check: &Checker<'_>, raw: &raw::Mcp) -> Result<Mcp, Error> {
    Ok(Mcp {
        listen: check.address("mcp.listen", &raw.listen)?,
        hosts: hosts(check, "mcp.hosts", &raw.hosts)?,
        origins: raw.origins.clone(),
        max_body_bytes: check.number("mcp.max_body_bytes", &raw.max_body_bytes, 1024..=MAX_BYTES)?,
        read_timeout: check.positive_duration("mcp.read_timeout", &raw.read_timeout)?,
        fast_path: check.boolean("mcp.fast_path", &raw.fast_path)?,
    })
}

fn store(check: &Checker<'_>, raw: &raw::Store, default: &std::path::Path) -> Result<store::Options, Error> {
    let durabilities = [("process", Durability::Process), ("power", Durability::Power)];
    Ok(store::Options {
        url: given(&raw.url).map_or_else(|| format!("sqlite://{}", default.display()), str::to_owned),
        max_connections: check.number("store.max_connections", &raw.max_connections, 2..=500)?,
        patience: check.positive_duration("store.patience", &raw.patience)?,
        durability: check.choice("store.durability", &raw.durability, &durabilities)?,
    })
}

fn leases(check: &Checker<'_>, raw: &raw::Leases, signing_key_file: PathBuf) -> Result<Leases, Error> {
    let modes = [("optional", LeaseMode::Optional), ("required", LeaseMode::Required)];
    let lifetime = check.duration("leases.lifetime", &raw.lifetime, SECOND..=MAX_LEASE_LIFETIME)?;
    Ok(Leases {
        mode: check.choice("leases.mode", &raw.mode, &modes)?,
        signing_key_file,
        lifetime,
        renewable_for: check.duration(
            "leases.renewable_for",
            &raw.renewable_for,
            lifetime..=MAX_TOKEN_LIFETIME,
        )?,
    })
}

fn connections(check: &Checker<'_>, raw: &raw::Connections) -> Result<listener::Limits, Error> {
    Ok(listener::Limits {
        max: check.number("connections.max", &raw.max, 8..=1_000_000)?,
        header_timeout: check.positive_duration("connections.header_timeout", &raw.header_timeout)?,
        idle_timeout: check.positive_duration("connections.idle_timeout", &raw.idle_timeout)?,
    })
}

fn nats(check: &Checker<'_>, raw: &raw::Nats) -> Result<Option<Nats>, Error> {
    let Some(url) = raw.url.as_ref().filter(|url| !url.as_str().is_empty()) else { return Ok(None) };
    let connection = NatsConnection {
        url,
        creds_file: raw.creds_file.as_ref(),
        nkey_file: raw.nkey_file.as_ref(),
        inbox_prefix: &raw.inbox_prefix,
        layout: &raw.layout,
        tls: &raw.tls,
    };
    Ok(Some(Nats {
        options: nats_options(check, connection, "cynode-gateway".to_owned())?,
        signing_key_file: given(&raw.signing_key_file).map(PathBuf::from),
    }))
}

/// Checks the base URL of an orchestrator.
fn orchestrator_url(check: &Checker<'_>, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let right = "an HTTP address, as in http://127.0.0.1:8780/v1";
    url.ok_or_else(|| check.wrong("admin.orchestrator_url", text, right))
}

/// Refuses an empty list, with which every request would be refused.
fn hosts(check: &Checker<'_>, key: &str, hosts: &[String]) -> Result<Vec<String>, Error> {
    if hosts.is_empty() || hosts.iter().any(|host| host.trim().is_empty()) {
        return Err(check.refuse(key, "name at least one host, as in [\"gateway.internal\"]"));
    }
    Ok(hosts.to_vec())
}

/// An empty value is the same as none.
fn given(text: &Option<Text>) -> Option<&str> {
    text.as_ref().map(Text::as_str).filter(|text| !text.is_empty())
}
