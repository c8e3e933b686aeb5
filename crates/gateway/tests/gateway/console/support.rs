//! A gateway, signed-in visitors, agents and an upstream for the console tests.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp::{Call, Client, Options, Reply};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use testkit::{GatewayProcess, Process, ScriptedServer, binary, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use url::form_urlencoded::Serializer;

pub(crate) const PAGES: [&str; 27] = [
    "/console",
    "/console/chat",
    "/console/threads",
    "/console/handoffs",
    "/console/dead",
    "/console/projects",
    "/console/tasks",
    "/console/tasks?view=board",
    "/console/tasks?view=graph",
    "/console/workflows",
    "/console/jobs",
    "/console/nodes",
    "/console/memory",
    "/console/schedules",
    "/console/schedules/new",
    "/console/tools",
    "/console/quarantine",
    "/console/servers",
    "/console/servers/new",
    "/console/skills",
    "/console/skills/new",
    "/console/tokens",
    "/console/leases",
    "/console/egress",
    "/console/rules",
    "/console/settings",
    "/console/audit",
];

/// A gateway with its own data folder, removed on drop.
pub(crate) struct Gateway {
    pub(crate) admin: SocketAddr,
    pub(crate) mcp: SocketAddr,
    /// The first administrator's token.
    pub(crate) secret: String,
    /// `None` if another part of the test owns it.
    _process: Option<Process>,
    folder: TempDir,
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (data, log) = (folder.path().join("data"), folder.path().join("log"));
        let mut arguments: Vec<String> = [
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--set",
            "upstreams.refresh_every=1h",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend(["--data".to_owned(), data.display().to_string()]);
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let process = Process::start(&binary("cynode-gateway"), &arguments, &[], &log);
        let ready = eventually("the gateway to be ready", async || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            assert!(!said.starts_with("cynode-gateway: "), "the gateway ended: {said}");
            let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["message"] == "Ready.")
        })
        .await;
        let address = |name: &str| ready[name].as_str().unwrap().parse().unwrap();
        let secret = fs::read_to_string(data.join("admin.token")).unwrap().trim().to_owned();
        Self {
            admin: address("admin_address"),
            mcp: address("address"),
            secret,
            _process: Some(process),
            folder,
        }
    }

    /// Returns the console of a gateway that runs beside workers and an orchestrator.
    pub(crate) fn of(process: &GatewayProcess) -> Self {
        let address = |url: String| {
            let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
            address.parse().unwrap()
        };
        Self {
            admin: address(process.admin_url()),
            mcp: address(process.url()),
            secret: process.admin_token(),
            _process: None,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// Sends a request as a browser would; `headers` are additional header lines.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let host = self.admin.to_string();
        let mut lines = headers.to_vec();
        if headers.iter().all(|(name, _)| *name != "Host") {
            lines.push(("Host", &host));
        }
        for (name, value) in lines {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("Content-Type: application/x-www-form-urlencoded\r\n");
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        Answer::read(&answer)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn sign_in(&self, secret: &str) -> Visitor<'_> {
        let answer = self.send("POST", "/console/login", &[], &form(&[("token", secret)])).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let visitor = Visitor { gateway: self, cookie, csrf: String::new() };
        let page = visitor.get("/console").await;
        let csrf = page.body.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        Visitor { csrf: csrf.to_owned(), ..visitor }
    }

    pub(crate) async fn administrator(&self) -> Visitor<'_> {
        self.sign_in(&self.secret).await
    }

    pub(crate) fn agent(&self, secret: &str) -> Agent {
        let token_file = self.folder.path().join(&secret[..12]);
        fs::write(&token_file, secret).unwrap();
        Agent::new(self.mcp, token_file)
    }
}

/// A signed-in visitor.
pub(crate) struct Visitor<'g> {
    gateway: &'g Gateway,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Visitor<'_> {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.gateway.send("GET", path, &[("Cookie", &self.cookie)], "").await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut fields = fields.to_vec();
        fields.push(("csrf", &self.csrf));
        self.gateway.send("POST", path, &[("Cookie", &self.cookie)], &form(&fields)).await
    }

    /// Issues a token and returns its secret.
    pub(crate) async fn issue(&self, fields: &[(&str, &str)]) -> String {
        let answer = self.post("/console/tokens", fields).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let secret = answer.body.split("<code id=\"secret\">").nth(1).unwrap();
        secret.split('<').next().unwrap().to_owned()
    }

    pub(crate) async fn issue_manager(&self) -> String {
        self.issue(&[("agent", "project_manager"), ("label", "manager")]).await
    }

    pub(crate) async fn issue_user(&self, user: &str) -> String {
        self.issue(&[("agent", "user"), ("label", "a user"), ("user_id", user)]).await
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    headers: Vec<(String, String)>,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let pair = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_lowercase(), value.to_owned())
        };
        Self { status, body: body.to_owned(), headers: lines.map(pair).collect() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn shows(&self, text: &str) -> bool {
        self.body.contains(text)
    }
}

pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Calls tools with a token.
pub(crate) struct Agent(Client);

impl Agent {
    fn new(gateway: SocketAddr, token_file: PathBuf) -> Self {
        let second = Duration::from_secs(1);
        let options = Options {
            url: format!("http://{gateway}/mcp"),
            token_file: Some(token_file),
            connect_timeout: 5 * second,
            call_timeout: 20 * second,
            max_result_bytes: 1 << 20,
            fast_path: true,
            profile: None,
        };
        Self(Client::new(options).unwrap())
    }

    pub(crate) async fn call(&self, tool: &str) -> Result<String, mcp::Error> {
        self.call_with(tool, Map::new()).await.map(|reply| reply.text)
    }

    pub(crate) async fn call_with(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Reply, mcp::Error> {
        self.0
            .call(Call { name: tool, arguments, idempotency_key: None, traceparent: None, lease: None })
            .await
    }
}

/// An upstream with one tool, whose description can be changed.
pub(crate) struct Wiki {
    pub(crate) server: ScriptedServer,
    description: Arc<Mutex<String>>,
}

impl Wiki {
    pub(crate) async fn start(description: &str) -> Self {
        let description = Arc::new(Mutex::new(description.to_owned()));
        let said = description.clone();
        let script = move |request: &Value| match request["method"].as_str() {
            Some("tools/list") => json!({
                "tools": [{"name": "search", "title": "Search", "description": *said.lock().unwrap(),
                           "inputSchema": {"type": "object"}}],
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            }),
            _ => json!({"content": [{"type": "text", "text": "three pages"}], "resultType": "complete"}),
        };
        Self { server: ScriptedServer::start(false, script).await, description }
    }

    pub(crate) fn describe(&self, text: &str) {
        *self.description.lock().unwrap() = text.to_owned();
    }
}
