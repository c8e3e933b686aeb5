//! One of the two gateways that are compared, with upstreams of its own.

use std::{fs, time::Duration};

use reqwest::{StatusCode, header::HeaderValue};
use sea_orm::{Database, EntityTrait, QueryOrder};
use serde_json::{Map, Value, json};
use store::entity::audit;
use testkit::{Answer, Finished, Gateway, GatewayProcess, ScriptedServer, Tool, binary, run};

use super::request::{Caller, Request};

/// An answer without what differs by nature: the date, generated ids and times.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    status: StatusCode,
    headers: Vec<(String, String)>,
    body: String,
}

impl Seen {
    pub(crate) fn is_result(&self) -> bool {
        self.body.contains(r#""result":{"#)
    }
}

pub(crate) struct Side {
    gateway: GatewayProcess,
    echo: Gateway,
    slow: ScriptedServer,
    manager: String,
    analyst: String,
}

impl Side {
    /// Starts a gateway with one setting and with two upstreams.
    pub(crate) async fn start(setting: &str, value: &str) -> Self {
        let level = ("telemetry.log_level", "info,cynode_gateway=debug");
        let gateway = GatewayProcess::start_with(&[(setting, value), level]).await;
        let echo = Gateway::start(echo_tools()).await;
        let slow = ScriptedServer::start(true, slow_tools).await;
        // Its time is not what is compared.
        gateway.install_within("echo", &echo.url(), "30s").await;
        gateway.install_within("slow", &slow.url(), "30s").await;
        let manager = gateway.manager().await;
        let analyst = gateway.bound("project_analyst", "ada", "task-1").await;
        Self { gateway, echo, slow, manager, analyst }
    }

    pub(crate) async fn send(&self, request: &Request) -> Seen {
        let mut sent = self.gateway.http().post(self.gateway.url()).body(request.body.clone());
        for (name, value) in &request.headers {
            // Names of tools may have other letters than ASCII.
            sent = sent.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        sent = match request.caller {
            Caller::Manager => sent.bearer_auth(&self.manager),
            Caller::Analyst => sent.bearer_auth(&self.analyst),
            Caller::Unknown => sent.bearer_auth("cyn_nobody"),
            Caller::Nobody => sent,
        };
        let response = sent.send().await.unwrap();
        let differs = |name: &str| matches!(name, "date" | "content-length");
        let headers = response.headers().iter().filter(|(name, _)| !differs(name.as_str()));
        let mut headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        headers.sort();
        Seen { status: response.status(), headers, body: normalized(&response.text().await.unwrap()) }
    }

    /// Returns the audit rows of all calls in order, without ids, times and hashes.
    pub(crate) async fn rows(&self) -> Vec<String> {
        let store = Database::connect(self.gateway.store_url()).await.unwrap();
        let rows = audit::Entity::find().order_by_asc(audit::Column::Seq).all(&store).await.unwrap();
        store.close().await.unwrap();
        // Administrators' rows are of the set-up, and differ in the addresses of upstreams.
        let rows = rows.into_iter().filter(|row| row.agent != "admin");
        let described = rows.map(|row| {
            let by = (row.agent, row.user_id, row.task_id, row.project_id, row.run_id, row.job_id);
            let what = (row.tool, row.decision, row.status, row.error_type);
            // A call without a trace of its caller has one of its own.
            let trace = row.trace_id.filter(|trace| *trace != row.call_id.replace('-', ""));
            format!("{what:?} {by:?} {:?} {trace:?} {:?}", row.arguments_digest, row.profile)
        });
        described.collect()
    }

    /// Returns the calls that reached the tools of an upstream.
    pub(crate) fn upstream_calls(&self) -> Vec<(String, Map<String, Value>)> {
        self.echo.calls().into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    /// Returns the largest request id that an upstream has received.
    pub(crate) fn largest_upstream_id(&self) -> i64 {
        self.slow.seen().iter().filter_map(|message| message["id"].as_i64()).max().unwrap_or_default()
    }

    pub(crate) fn log_lines(&self, text: &str) -> usize {
        self.gateway.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Returns how often the gateway has its database file open.
    pub(crate) fn store_connections(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.gateway.process.id());
        let files = fs::read_dir(folder).unwrap().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.filter(|file| *file == self.gateway.database()).count()
    }

    pub(crate) fn stop(&mut self) {
        self.gateway.process.terminate();
        assert!(self.gateway.process.wait(Duration::from_secs(20)).success());
    }

    /// Verifies the hash chain of the stopped gateway.
    pub(crate) fn check(&self) -> Finished {
        let folder = self.gateway.folder();
        run(&binary("cynode-gateway"), folder, &["check", "--data", &folder.display().to_string()], &[])
    }
}

fn echo_tools() -> Vec<Tool> {
    let schema = || json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let placed = json!({ "type": "object", "properties": { "region": region } });
    vec![
        Tool::new("say", "Says it.", schema(), |_| Answer::text("said")),
        Tool::new("back", "Gives it back.", schema(), |arguments| {
            Answer::structured(Value::Object(arguments.clone()))
        }),
        Tool::new("fail", "Fails.", schema(), |_| Answer::error("broken")),
        Tool::new("reject", "Says no.", schema(), |_| Answer::rejected(-32602, "no")),
        Tool::new("place", "Wants a header.", placed, |_| Answer::text("placed")),
    ]
}

/// Lists one tool, and reports as much progress as a call of it asks for.
fn slow_tools(request: &Value) -> Value {
    if request["method"] == "tools/list" {
        let tool = json!({ "name": "work", "description": "", "inputSchema": { "type": "object" } });
        return json!({ "tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
    }
    let token = &request["params"]["_meta"]["progressToken"];
    let step = |step: i64| {
        let params = json!({ "progressToken": token, "progress": step, "message": "\u{202e}so\u{1b} far" });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    };
    let steps = request["params"]["arguments"]["steps"].as_i64().unwrap_or_default();
    let steps: Vec<Value> = (1..=steps).map(step).collect();
    json!({ "before": steps, "content": [], "resultType": "complete" })
}

/// Replaces generated ids and times.
fn normalized(text: &str) -> String {
    let mut normalized = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = id_length(rest).or_else(|| time_length(rest));
        normalized.push(if length.is_some() { '#' } else { next });
        rest = &rest[length.unwrap_or(next.len_utf8())..];
    }
    normalized
}

/// Returns the length of the UUID at the start of a text.
fn id_length(text: &str) -> Option<usize> {
    let start = text.as_bytes().get(..36)?;
    let fits = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    start.iter().enumerate().all(fits).then_some(36)
}

/// Returns the length of the time at the start of a text, such as `2026-07-28T09:30:00.5Z`.
fn time_length(text: &str) -> Option<usize> {
    let length = text.bytes().take(30).position(|byte| byte == b'Z').filter(|end| *end >= 19)?;
    let fits = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        _ => byte.is_ascii_digit() || b":.".contains(&byte),
    };
    text.bytes().take(length).enumerate().all(fits).then_some(length + 1)
}
