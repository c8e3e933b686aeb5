//! Checks the settings and converts them into a [`Config`].

use std::path::PathBuf;

use settings::{Checker, Error, NatsConnection, Text, nats_options};
use subjects::MODEL_ID;

use super::{
    Admin, Api, Chat, Config, Direct, DirectModel, Drafts, Gateway, Nats, RateLimits,
    raw::{self, Raw},
};

const MAX_BYTES: usize = 64 << 20;
const MAX_RATE: u32 = 10_000_000;

pub(super) fn check(check: &Checker<'_>, raw: &Raw) -> Result<Config, Error> {
    Ok(Config {
        api: api(check, &raw.api)?,
        admin: Admin { listen: check.address("admin.listen", &raw.admin.listen)? },
        nats: nats(check, &raw.nats)?,
        gateway: gateway(check, &raw.gateway)?,
        chat: chat(check, &raw.chat)?,
        direct: direct(check, &raw.direct)?,
        egress: super::egress::check(check, &raw.egress)?,
        rate_limits: RateLimits {
            requests_per_minute: check.number(
                "rate_limits.requests_per_minute",
                &raw.rate_limits.requests_per_minute,
                1..=MAX_RATE,
            )?,
            concurrent_turns: check.number(
                "rate_limits.concurrent_turns",
                &raw.rate_limits.concurrent_turns,
                1..=1_000_000,
            )?,
            unauthenticated_per_second: check.number(
                "unauthenticated.per_second",
                &raw.unauthenticated.per_second,
                1..=MAX_RATE,
            )?,
        },
        connections: connections(check, &raw.connections)?,
        grace: check.positive_duration("grace", &raw.grace)?,
        telemetry: raw.telemetry.check(check)?,
    })
}

fn api(check: &Checker<'_>, raw: &raw::Api) -> Result<Api, Error> {
    if raw.hosts.is_empty() || raw.hosts.iter().any(|host| host.trim().is_empty()) {
        return Err(check.refuse("api.hosts", "name at least one host, as in [\"chat.internal\"]"));
    }
    let is_origin = |origin: &&String| {
        origin.parse::<url::Url>().is_ok_and(|url| url.origin().ascii_serialization() == **origin)
    };
    if let Some(wrong) = raw.origins.iter().find(|origin| !is_origin(origin)) {
        return Err(check.wrong("api.origins", wrong, "an origin, as in https://chat.internal:8443"));
    }
    Ok(Api {
        listen: check.address("api.listen", &raw.listen)?,
        hosts: raw.hosts.clone(),
        origins: raw.origins.clone(),
        max_body_bytes: check.number("api.max_body_bytes", &raw.max_body_bytes, 1024..=MAX_BYTES)?,
        read_timeout: check.positive_duration("api.read_timeout", &raw.read_timeout)?,
    })
}

fn nats(check: &Checker<'_>, raw: &raw::Nats) -> Result<Nats, Error> {
    let connection = NatsConnection {
        url: &raw.url,
        creds_file: raw.creds_file.as_ref(),
        nkey_file: raw.nkey_file.as_ref(),
        inbox_prefix: &raw.inbox_prefix,
        layout: &raw.layout,
        tls: &raw.tls,
    };
    Ok(Nats {
        options: nats_options(check, connection, super::PROGRAM.name.to_owned())?,
        signing_key_file: check.optional_file("nats.signing_key_file", raw.signing_key_file.as_ref())?,
    })
}

fn gateway(check: &Checker<'_>, raw: &raw::Gateway) -> Result<Gateway, Error> {
    let url = raw.url.as_str().trim();
    if !is_http(url) {
        return Err(check.wrong("gateway.url", url, "an HTTP address, as in http://127.0.0.1:8790/mcp"));
    }
    Ok(Gateway {
        url: url.to_owned(),
        token_file: given(raw.token_file.as_ref()).map(PathBuf::from),
        timeout: check.positive_duration("gateway.timeout", &raw.timeout)?,
        fast_path: check.boolean("gateway.fast_path", &raw.fast_path)?,
    })
}

fn chat(check: &Checker<'_>, raw: &raw::Chat) -> Result<Chat, Error> {
    let drafts = [("content", Drafts::Content), ("reasoning", Drafts::Reasoning), ("off", Drafts::Off)];
    let task_model = given(raw.task_model.as_ref()).map(str::to_owned);
    if task_model.as_deref() == Some(MODEL_ID) {
        return Err(check.refuse("chat.task_model", format!("prompts of front ends never go to {MODEL_ID}")));
    }
    Ok(Chat {
        max_messages: check.number("chat.max_messages", &raw.max_messages, 1..=100_000)?,
        max_streams: check.number("chat.max_streams", &raw.max_streams, 1..=1_000_000)?,
        keep_alive: check.positive_duration("chat.keep_alive", &raw.keep_alive)?,
        drafts: check.choice("chat.drafts", &raw.drafts, &drafts)?,
        wait: check.positive_duration("chat.wait", &raw.wait)?,
        task_model,
        sweep_every: check.positive_duration("chat.sweep_every", &raw.sweep_every)?,
        resend_lost: check.boolean("chat.resend_lost", &raw.resend_lost)?,
        key_cache: check.positive_duration("chat.key_cache", &raw.key_cache)?,
    })
}

fn direct(check: &Checker<'_>, raw: &raw::Direct) -> Result<Direct, Error> {
    let mut models: Vec<DirectModel> = Vec::new();
    for model in &raw.models {
        let id = model.id.trim();
        if id.is_empty() || id == MODEL_ID || models.iter().any(|other| other.id == id) {
            let right = format!("an id of its own for each model, never {MODEL_ID}");
            return Err(check.wrong("direct.models", &model.id, &right));
        }
        if !is_http(&model.url) {
            let right = "for each model an HTTP address, as in http://127.0.0.1:11434/v1";
            return Err(check.wrong("direct.models", &model.url, right));
        }
        models.push(DirectModel {
            id: id.to_owned(),
            name: model.model.as_deref().unwrap_or(id).to_owned(),
            url: model.url.clone(),
            key_file: model.key_file.as_deref().filter(|file| !file.is_empty()).map(PathBuf::from),
        });
    }
    Ok(Direct {
        models,
        connect_timeout: check.positive_duration("direct.connect_timeout", &raw.connect_timeout)?,
        silence: check.positive_duration("direct.silence", &raw.silence)?,
    })
}

fn is_http(url: &str) -> bool {
    url.parse::<url::Url>().is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

fn connections(check: &Checker<'_>, raw: &raw::Connections) -> Result<listener::Limits, Error> {
    Ok(listener::Limits {
        max: check.number("connections.max", &raw.max, 8..=1_000_000)?,
        header_timeout: check.positive_duration("connections.header_timeout", &raw.header_timeout)?,
        idle_timeout: check.positive_duration("connections.idle_timeout", &raw.idle_timeout)?,
    })
}

/// An empty value is the same as none.
fn given(text: Option<&Text>) -> Option<&str> {
    text.map(|text| text.as_str().trim()).filter(|text| !text.is_empty())
}
