//! Commands to the gateway's admin API. The gateway decides and records; this module sends requests and
//! prints the responses.

mod audit;
mod client;
mod preferences;
mod rules;
mod settings;
mod tokens;
mod tools;
mod upstreams;
mod verify;

pub(crate) use client::{ApiRequest, Gateway};
use serde_json::Value;
pub(crate) use tokens::create_private_file;

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

/// Prints a list: one line of JSON for each item, or a table, or the text `none` if it is empty.
fn print_list(
    items: &[Value],
    json: bool,
    none: &str,
    head: &[&str],
    row: impl Fn(&Value) -> Vec<String>,
) -> Exit {
    if json {
        items.iter().for_each(print::json);
    } else if items.is_empty() {
        print::line(none);
    } else {
        print::table(head, items.iter().map(row).collect());
    }
    Exit::Done
}

/// Returns a member of a JSON object as text; `-` if it is null.
fn field(value: &Value, member: &str) -> String {
    match &value[member] {
        Value::Null => "-".to_owned(),
        Value::String(text) => print::sanitize(text),
        other => print::sanitize(&other.to_string()),
    }
}

/// Prints the members that are not null, one per line.
fn print_fields(value: &Value, members: &[&str]) {
    for member in members {
        if !value[member].is_null() {
            print::line(&format!("{:14}{}", member.replace('_', " "), field(value, member)));
        }
    }
}
