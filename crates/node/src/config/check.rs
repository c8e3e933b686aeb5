//! Checks the settings and converts them into a [`Config`].

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use broker::Provision;
use settings::{Checker, Error, NatsConnection, Text, nats_options};
use subjects::{NodeId, PoolName, job::Engine};

use super::{
    Config, Edge, Gateway, Image, Nats, Node, Sandbox,
    raw::{self, Raw},
};

const MAX_SLOTS: u32 = 4096;
const MAX_LABELS: usize = 32;
const MAX_LABEL_BYTES: usize = 64;

pub(super) fn check(check: &Checker<'_>, raw: &Raw) -> Result<Config, Error> {
    Ok(Config {
        node: node(check, &raw.node)?,
        nats: nats(check, &raw.nats)?,
        gateway: gateway(check, &raw.gateway)?,
        sandbox: sandbox(check, &raw.sandbox)?,
        edge: edge(check, &raw.edge)?,
        admin: check.address("admin.listen", &raw.admin.listen)?,
        telemetry: raw.telemetry.check(check)?,
    })
}

fn node(check: &Checker<'_>, raw: &raw::Node) -> Result<Node, Error> {
    let id = match raw.id.as_ref().map(|id| id.as_str().trim()).filter(|id| !id.is_empty()) {
        Some(NodeId::GATEWAY) => {
            return Err(check.refuse("node.id", "`gateway` is what the gateway writes under; choose another"));
        }
        Some(id) => id.parse().map_err(|error| check.refuse("node.id", format!("`{id}`: {error}")))?,
        None => id_of_host(),
    };
    let pool = raw.pool.as_str().trim();
    let pool: PoolName =
        pool.parse().map_err(|error| check.refuse("node.pool", format!("`{pool}`: {error}")))?;
    let labels = labels(check, &raw.labels)?;
    Ok(Node {
        id,
        pool,
        labels,
        slots: slots(check, &raw.slots)?,
        data: PathBuf::from(raw.data.as_str()),
        grace: check.positive_duration("node.grace", &raw.grace)?,
        ack_wait: check.duration(
            "node.ack_wait",
            &raw.ack_wait,
            Duration::from_secs(1)..=Duration::from_secs(3600),
        )?,
    })
}

fn labels(check: &Checker<'_>, raw: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let is_part = |text: &str| {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
        (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.bytes().all(is_safe)
    };
    let mut labels = BTreeMap::new();
    for label in raw {
        let parts = label.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        let Some((name, value)) = parts.filter(|(name, value)| is_part(name) && is_part(value)) else {
            let right =
                "a label, as in zone=a: name and value have 1 to 64 characters of A-Z a-z 0-9 _ - . /";
            return Err(check.wrong("node.labels", label, right));
        };
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(check.refuse("node.labels", format!("`{name}` has two values")));
        }
    }
    if labels.len() > MAX_LABELS {
        return Err(check.refuse("node.labels", format!("there are more than {MAX_LABELS}")));
    }
    Ok(labels)
}

fn slots(check: &Checker<'_>, text: &Text) -> Result<u32, Error> {
    if text.as_str().trim() == "auto" {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        return Ok(u32::try_from(cores).unwrap_or(MAX_SLOTS).min(MAX_SLOTS));
    }
    check.number("node.slots", text, 1..=MAX_SLOTS)
}

/// Returns the host's name as an id, or `node` if it has none that can be one.
fn id_of_host() -> NodeId {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let first = name.split('.').next().unwrap_or_default();
    let id: String = first.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let id = id.trim_matches('-');
    id.parse().ok().filter(|id: &NodeId| id.as_str() != NodeId::GATEWAY).unwrap_or_default()
}

fn nats(check: &Checker<'_>, raw: &raw::Nats) -> Result<Nats, Error> {
    let provision = [("create", Provision::Create), ("verify", Provision::Verify), ("none", Provision::None)];
    let connection = NatsConnection {
        url: &raw.url,
        creds_file: raw.creds_file.as_ref(),
        nkey_file: raw.nkey_file.as_ref(),
        inbox_prefix: &raw.inbox_prefix,
        // Jobs are in streams of their own, whatever the layout of handoffs.
        layout: &Text::from("shared"),
        tls: &raw.tls,
    };
    Ok(Nats {
        options: nats_options(check, connection, super::PROGRAM.name.to_owned())?,
        provision: check.choice("nats.provision", &raw.provision, &provision)?,
        replicas: check.number("nats.replicas", &raw.replicas, 1..=5)?,
    })
}

fn gateway(check: &Checker<'_>, raw: &raw::Gateway) -> Result<Gateway, Error> {
    let url = raw.url.as_str().trim();
    if !url.parse::<url::Url>().is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return Err(check.wrong("gateway.url", url, "an HTTP address, as in http://127.0.0.1:8790/mcp"));
    }
    let token_file = raw.token_file.as_ref().map(|file| file.as_str().trim()).filter(|file| !file.is_empty());
    Ok(Gateway {
        url: url.to_owned(),
        token_file: token_file.map(PathBuf::from),
        timeout: check.positive_duration("gateway.timeout", &raw.timeout)?,
        patience: check.positive_duration("gateway.patience", &raw.patience)?,
    })
}

fn edge(check: &Checker<'_>, raw: &raw::Edge) -> Result<Edge, Error> {
    for upstream in &raw.upstreams {
        upstream.options().map_err(|error| check.refuse("edge.upstreams", error.to_string()))?;
    }
    let listen = raw.listen.as_ref().filter(|listen| !listen.as_str().trim().is_empty());
    let listen = listen.map(|listen| check.address("edge.listen", listen)).transpose()?;
    if let Some(address) = listen.filter(|address| !address.ip().is_loopback()) {
        let right = "a loopback address, as in 127.0.0.1:8787";
        return Err(check.wrong("edge.listen", &address.to_string(), right));
    }
    let (shortest, longest) = (Duration::from_secs(300), Duration::from_secs(900));
    Ok(Edge {
        upstreams: raw.upstreams.clone(),
        listen,
        lifetime: check.duration("edge.lifetime", &raw.lifetime, shortest..=longest)?,
    })
}

fn sandbox(check: &Checker<'_>, raw: &raw::Sandbox) -> Result<Sandbox, Error> {
    let mut engines: Vec<Engine> = Vec::new();
    for name in &raw.engines {
        let engine = name.trim().parse();
        let engine = engine.map_err(|_| check.wrong("sandbox.engines", name, "an engine"))?;
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    if engines.is_empty() {
        return Err(check.refuse("sandbox.engines", "name at least one engine, as in [\"bwrap\"]"));
    }
    let mut images: Vec<Image> = Vec::new();
    for image in &raw.images {
        let digits = image.digest.strip_prefix("sha256:").unwrap_or_default();
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 64 || !digits.bytes().all(is_hex) {
            let right = "a digest: sha256: and 64 digits of 0-9 a-f";
            return Err(check.wrong("sandbox.images", &image.digest, right));
        }
        let rootfs = image.rootfs.as_ref().map(PathBuf::from);
        if let Some(folder) = rootfs.as_ref().filter(|folder| !folder.is_dir()) {
            let found = folder.display().to_string();
            return Err(check.wrong("sandbox.images", &found, "a folder that exists"));
        }
        images.push(Image { digest: image.digest.clone(), rootfs });
    }
    let internal_host = |entry: &String| {
        let host = entry.trim().parse();
        host.map_err(|why| check.refuse("sandbox.internal_hosts", format!("`{entry}`: {why}")))
    };
    Ok(Sandbox {
        engines,
        first_uid: check.number("sandbox.first_uid", &raw.first_uid, 65_537..=4_000_000_000)?,
        uids: check.number("sandbox.uids", &raw.uids, 1..=65_536)?,
        read_only: raw.read_only.iter().map(PathBuf::from).collect(),
        images,
        internal_hosts: raw.internal_hosts.iter().map(internal_host).collect::<Result<_, Error>>()?,
    })
}
