//! Commands to the gateway. It decides and records; this asks, and shows what it said.

mod audit; // tail, query, export
mod client; // the gateway over HTTP
mod preferences;
mod rules;
mod settings;
mod tokens;
mod tools;
mod upstreams;
mod verify; // the chain, followed here and not there

pub(crate) use client::{Ask, Gateway};
use serde_json::Value;

pub(crate) use tokens::create as keep_secret;

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

pub(crate) async fn tools(link: &cli::GatewayLink, command: cli::Tools, json: bool) -> Result<Exit, Error> {
    tools::run(&Gateway::open(link)?, command, json).await
}

pub(crate) async fn tokens(link: &cli::GatewayLink, command: cli::Tokens, json: bool) -> Result<Exit, Error> {
    tokens::run(&Gateway::open(link)?, command, json).await
}

pub(crate) async fn upstreams(
    link: &cli::GatewayLink,
    command: cli::Upstreams,
    json: bool,
) -> Result<Exit, Error> {
    upstreams::run(&Gateway::open(link)?, command, json).await
}

pub(crate) async fn rules(link: &cli::GatewayLink, command: cli::Rules, json: bool) -> Result<Exit, Error> {
    rules::run(&Gateway::open(link)?, command, json).await
}

pub(crate) async fn settings(
    link: &cli::GatewayLink,
    command: cli::Settings,
    json: bool,
) -> Result<Exit, Error> {
    settings::run(&Gateway::open(link)?, command, json).await
}

pub(crate) async fn preferences(
    link: &cli::GatewayLink,
    command: cli::Preferences,
    json: bool,
) -> Result<Exit, Error> {
    preferences::run(&Gateway::open(link)?, command, json).await
}

pub(crate) async fn audit(
    link: &cli::GatewayLink,
    nats: &cli::Link,
    command: cli::Audit,
    json: bool,
) -> Result<Exit, Error> {
    match command {
        cli::Audit::Tail { after, duration } => {
            audit::tail(&Gateway::open(link)?, after, duration, json).await
        }
        cli::Audit::Query(query) => audit::query(&Gateway::open(link)?, query, json).await,
        cli::Audit::Export { out } => audit::export(&Gateway::open(link)?, out).await,
        cli::Audit::Verify(verify) => Box::pin(verify::run(link, nats, &verify, json)).await,
    }
}

/// A list: a line of JSON for each, or a table, or the word that there are none.
fn list(items: &[Value], json: bool, none: &str, head: &[&str], row: impl Fn(&Value) -> Vec<String>) -> Exit {
    if json {
        items.iter().for_each(print::json);
    } else if items.is_empty() {
        print::line(none);
    } else {
        print::table(head, items.iter().map(row).collect());
    }
    Exit::Done
}

/// A member as it is shown: `-` for what is not there.
fn word(value: &Value, member: &str) -> String {
    match &value[member] {
        Value::Null => "-".to_owned(),
        Value::String(text) => print::safe(text),
        other => print::safe(&other.to_string()),
    }
}

/// Members that are there, one in a line.
fn lines(value: &Value, members: &[&str]) {
    for member in members {
        if !value[member].is_null() {
            print::line(&format!("{:14}{}", member.replace('_', " "), word(value, member)));
        }
    }
}
