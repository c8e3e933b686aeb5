//! Random requests to the MCP endpoint: half of them as clients send them, half with faults.

use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Value, json};

const NEWER: &str = "2026-07-28";
const OLDER: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const KEY: &str = "dev.cynode/idempotency-key";

/// Whose token a request carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    Manager,
    Analyst,
    Unknown,
    /// No token at all.
    Nobody,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) caller: Caller,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Request {
    /// Returns any request.
    pub(crate) fn random(rng: &mut SmallRng) -> Self {
        let caller = match rng.random_range(0..100) {
            0..78 => Caller::Manager,
            78..94 => Caller::Analyst,
            94..97 => Caller::Unknown,
            _ => Caller::Nobody,
        };
        let (name, arguments) = any_call(rng);
        let mut request = Draft::new(rng, &name, &arguments);
        let faults = pick(rng, &[0, 0, 0, 1, 1, 2]);
        (0..faults).for_each(|_| request.add_fault(rng));
        request.finish(rng, caller)
    }

    /// Returns a valid request that changes nothing, so that it may be sent in any order.
    pub(crate) fn read_only(rng: &mut SmallRng) -> Self {
        let calls = [
            ("db.project.list", json!({})),
            ("db.task.list", json!({})),
            ("echo.say", json!({ "text": "at the same time" })),
            ("echo.fail", json!({})),
            ("no.such", json!({})),
            ("db.task.get", json!({ "task_id": "no-such" })),
        ];
        let (name, arguments) = pick(rng, &calls);
        let caller = pick(rng, &[Caller::Manager, Caller::Analyst]);
        let mut request = Draft::new(rng, name, &arguments);
        // Of concurrent calls with one key, only one runs.
        if let Some(meta) = request.body["params"]["_meta"].as_object_mut() {
            meta.remove(KEY);
        }
        Self { caller, headers: request.headers, body: request.body.to_string() }
    }
}

fn pick<T: Clone>(rng: &mut SmallRng, from: &[T]) -> T {
    from.choose(rng).expect("not empty").clone()
}

fn text(rng: &mut SmallRng) -> String {
    let texts = [
        "",
        "hello",
        "\u{e9}\u{1f600}\u{202e}",
        "\"quoted\" \\ \u{7}\n",
        "null",
        "a\u{0}b",
        "\u{2028} <b>&amp;",
    ];
    pick(rng, &texts).repeat(pick(rng, &[1, 1, 1, 3, 4000]))
}

fn any_call(rng: &mut SmallRng) -> (String, Value) {
    let task = format!("task-{}", rng.random_range(0..6));
    let text = text(rng);
    let number: i64 = rng.random();
    let deep = json!({ "deep": [{ "a": 1.5, "b": 1e300, "c": u64::MAX, "d": text, "e": [[], {}, null] }] });
    let calls = [
        ("db.project.list", json!({})),
        ("db.task.list", json!({})),
        ("db.task.create", json!({ "name": task, "title": "A task", "description": text })),
        ("db.task.create", json!({ "name": task, "user_id": "ada" })),
        ("db.task.create", json!({ "title": number })),
        ("db.task.get", json!({ "task_id": task })),
        ("db.task.get", json!({ "task_id": text })),
        ("db.task.get", json!({})),
        ("db.task.update_status", json!({ "task_id": task, "status": "completed" })),
        ("echo.say", json!({ "text": text })),
        ("echo.say", json!({ "text": number })),
        ("echo.say", deep),
        ("echo.back", json!({ "text": text, "number": number })),
        ("echo.back", json!({ "\u{e9}": text })),
        ("echo.fail", json!({})),
        ("echo.reject", json!({})),
        ("echo.place", json!({ "region": "north" })),
        ("slow.work", json!({ "steps": rng.random_range(0..4) })),
        ("no.such", json!({ "text": text })),
        ("", json!({})),
        ("Echo.Say", json!({ "text": text })),
        ("echo.\u{e9}", json!({})),
    ];
    let (name, arguments) = pick(rng, &calls);
    (name.to_owned(), arguments)
}

/// A request whose parts can still be changed.
struct Draft {
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Draft {
    /// Returns the request as a client sends it.
    fn new(rng: &mut SmallRng, name: &str, arguments: &Value) -> Self {
        let is_newer = rng.random_bool(0.5);
        let version = if is_newer { NEWER } else { pick(rng, &OLDER) };
        let mut headers = vec![
            ("accept", "application/json, text/event-stream".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("mcp-protocol-version", version.to_owned()),
        ];
        let mut meta = json!({});
        if is_newer {
            headers.extend([("mcp-method", "tools/call".to_owned()), ("mcp-name", name.to_owned())]);
            meta["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
            if name == "echo.place" && rng.random_bool(0.5) {
                headers.push(("mcp-param-region", pick(rng, &["north", "south"]).to_string()));
            }
        }
        if rng.random_bool(0.3) {
            meta["progressToken"] = pick(rng, &[json!("mine"), json!(5)]);
        }
        if rng.random_bool(0.3) {
            meta["traceparent"] =
                json!(format!("00-{:032x}-00000000000000aa-01", rng.random_range(1..u128::MAX)));
        }
        if rng.random_bool(0.3) {
            // Few, so that they are repeated: with the same call and with others.
            meta[KEY] = json!(format!("key-{}", rng.random_range(0..8)));
        }
        let id = pick(rng, &[json!(7), json!(0), json!("seven"), json!("7"), json!(-7), json!(i64::MAX)]);
        let mut params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        if meta.as_object().is_some_and(|meta| meta.is_empty()) && rng.random_bool(0.5) {
            params.as_object_mut().expect("an object").remove("_meta");
        }
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        Self { headers, body }
    }

    fn add_fault(&mut self, rng: &mut SmallRng) {
        match rng.random_range(0..5) {
            0 => {
                let which = rng.random_range(0..self.headers.len());
                self.headers.remove(which);
                if self.headers.is_empty() {
                    self.headers.push(("accept", "*/*".to_owned()));
                }
            }
            1 => self.set_header(rng),
            2 => self.set_member(rng),
            3 => self.remove_member(rng),
            _ => self.set_meta(rng),
        }
    }

    fn set_header(&mut self, rng: &mut SmallRng) {
        let (name, value) = pick(
            rng,
            &[
                ("accept", "application/json"),
                ("accept", "*/*"),
                ("accept", "text/event-stream, application/json;q=0.5"),
                ("content-type", "text/plain"),
                ("content-type", "application/json; charset=utf-8"),
                ("mcp-protocol-version", "2027-01-01"),
                ("mcp-protocol-version", "2025-11-25"),
                ("mcp-protocol-version", NEWER),
                ("mcp-protocol-version", ""),
                ("mcp-method", "tools/call"),
                ("mcp-method", "tools/list"),
                ("mcp-name", "echo.say"),
                ("mcp-name", "=?base64?ZWNoby5zYXk=?="),
                ("mcp-param-region", "north"),
                ("mcp-session-id", "unknown"),
                ("mcp-new", "x"),
                ("host", "evil.example"),
                ("host", "LOCALHOST"),
                ("origin", "http://127.0.0.1"),
                ("cookie", "a=b"),
                ("cynode-profile", "default"),
                ("cynode-profile", "closed"),
                ("cynode-profile", "no profile"),
            ],
        );
        self.headers.retain(|(found, _)| *found != name);
        self.headers.push((name, value.to_owned()));
    }

    fn set_member(&mut self, rng: &mut SmallRng) {
        let (path, name, value) = pick(
            rng,
            &[
                ("", "jsonrpc", json!("1.0")),
                ("", "id", json!(null)),
                ("", "id", json!(1.5)),
                ("", "id", json!({})),
                ("", "id", json!(u64::MAX)),
                ("", "method", json!("tools/list")),
                ("", "method", json!("ping")),
                ("", "method", json!("no/such")),
                ("", "method", json!("notifications/cancelled")),
                ("", "method", json!(5)),
                ("", "params", json!([])),
                ("", "params", json!(null)),
                ("", "result", json!({})),
                ("", "extra", json!("x")),
                ("/params", "name", json!(5)),
                ("/params", "arguments", json!([])),
                ("/params", "arguments", json!(null)),
                ("/params", "arguments", json!("text")),
                ("/params", "_meta", json!(null)),
                ("/params", "_meta", json!([])),
                ("/params", "requestState", json!("s")),
                ("/params", "task", json!({ "ttl": 1 })),
                ("/params", "extra", json!({ "x": 1 })),
            ],
        );
        if let Some(Value::Object(object)) = self.body.pointer_mut(path) {
            object.insert(name.to_owned(), value);
        }
    }

    fn remove_member(&mut self, rng: &mut SmallRng) {
        let (path, name) = pick(
            rng,
            &[
                ("", "jsonrpc"),
                ("", "id"),
                ("", "method"),
                ("", "params"),
                ("/params", "name"),
                ("/params", "arguments"),
                ("/params", "_meta"),
                ("/params/_meta", "io.modelcontextprotocol/protocolVersion"),
                ("/params/_meta", "io.modelcontextprotocol/clientCapabilities"),
                ("/params/_meta", "io.modelcontextprotocol/clientInfo"),
            ],
        );
        if let Some(Value::Object(object)) = self.body.pointer_mut(path) {
            object.remove(name);
        }
    }

    fn set_meta(&mut self, rng: &mut SmallRng) {
        let (name, value) = pick(
            rng,
            &[
                (KEY, json!("")),
                (KEY, json!("k".repeat(256))),
                (KEY, json!("k".repeat(257))),
                (KEY, json!("a\nb")),
                (KEY, json!("\u{e9}")),
                (KEY, json!(5)),
                ("progressToken", json!({ "a": 1 })),
                ("progressToken", json!(1.5)),
                ("progressToken", json!(null)),
                ("traceparent", json!("00")),
                ("traceparent", json!(5)),
                ("io.modelcontextprotocol/protocolVersion", json!("2025-11-25")),
                ("io.modelcontextprotocol/clientCapabilities", json!(1)),
                ("io.modelcontextprotocol/clientInfo", json!("me")),
                ("io.modelcontextprotocol/logLevel", json!("info")),
                ("io.modelcontextprotocol/new", json!(1)),
                ("x", json!({ "y": [1, "\u{e9}"] })),
            ],
        );
        if let Some(Value::Object(meta)) = self.body.pointer_mut("/params/_meta") {
            meta.insert(name.to_owned(), value);
        }
    }

    fn finish(self, rng: &mut SmallRng, caller: Caller) -> Request {
        let text = self.body.to_string();
        let body = match rng.random_range(0..60) {
            0 => String::new(),
            1 => text.chars().take(text.chars().count() / 2).collect(),
            2 => format!("[{text}]"),
            3 => text.replacen('{', r#"{"id":1,"#, 1),
            4 => format!(" {text}\n"),
            _ => text,
        };
        Request { caller, headers: self.headers, body }
    }
}
