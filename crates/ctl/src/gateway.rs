//! Commands to the gateway's admin API. The gateway decides and records; this module sends requests and
//! prints the responses.

pub(crate) mod audit;
mod client;
pub(crate) mod egress;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod outbox;
pub(crate) mod preferences;
pub(crate) mod rules;
pub(crate) mod schedules;
pub(crate) mod settings;
pub(crate) mod skills;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod upstreams;
mod verify;
pub(crate) mod workflows;

pub(crate) use client::{ApiRequest, Gateway};
use serde::Serialize;
use serde_json::Value;

use crate::{error::Exit, print};

/// Prints a list: one line of JSON for each item, or a table, or the text `none` if it is empty.
fn print_list<T: Serialize>(
    items: &[T],
    json: bool,
    none: &str,
    head: &[&str],
    row: impl Fn(&T) -> Vec<String>,
) -> Exit {
    if json {
        items.iter().for_each(print_json);
    } else if items.is_empty() {
        print::line(none);
    } else {
        print::table(head, items.iter().map(row).collect());
    }
    Exit::Done
}

/// Prints a body as one line of JSON, with its members in alphabetical order.
fn print_json(body: &impl Serialize) {
    if let Ok(value) = serde_json::to_value(body) {
        print::json(&value);
    }
}

/// Prints the outcome of a command: a line of JSON, or one for people.
fn print_outcome(json: bool, body: &impl Serialize, text: &str) -> Exit {
    if json {
        print_json(body);
    } else {
        print::line(&print::sanitize(text));
    }
    Exit::Done
}

/// Returns a field of a body as text; `None` if it is null.
fn text(field: &impl Serialize) -> Option<String> {
    match serde_json::to_value(field).unwrap_or_default() {
        Value::Null => None,
        Value::String(text) => Some(print::sanitize(&text)),
        other => Some(print::sanitize(&other.to_string())),
    }
}

/// Returns a field of a body for a table; `-` if it is null.
fn cell(field: &impl Serialize) -> String {
    text(field).unwrap_or_else(|| "-".to_owned())
}

/// Prints a field of a body with its name, unless it is null.
fn print_field(name: &str, field: &impl Serialize) {
    if let Some(text) = text(field) {
        print::line(&format!("{:15} {text}", name.replace('_', " ")));
    }
}

fn on_off(enabled: bool) -> &'static str {
    if enabled { "on" } else { "off" }
}

/// Returns fields of a body as a row of a table.
macro_rules! cells {
    ($body:expr, $($field:ident),+) => { vec![$($crate::gateway::cell(&$body.$field)),+] };
}

/// Prints the fields of a body that are not null, one per line.
macro_rules! print_fields {
    ($body:expr, $($field:ident),+) => {
        $($crate::gateway::print_field(stringify!($field), &$body.$field);)+
    };
}

use {cells, print_fields};
