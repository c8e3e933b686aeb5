//! Calls to external providers at the running gateway: whom the audit names, and what is shown of them.

use access::tokens;
use serde_json::{Value, json};
use testkit::{GatewayProcess, Postgres, TestClock};

use crate::administration::support::ctl;

const ALLOWED: &str = "agents.project_manager.model_routing.allowed_external_providers";

/// A manager with a lease of Ada for a task, and the orchestrator that calls for it.
struct Stage {
    gateway: GatewayProcess,
    orchestrator: mcp::Client,
    /// What the orchestrator says about the call.
    call: Value,
    manager_id: String,
    lease_id: String,
}

impl Stage {
    async fn start(settings: &[(&str, &str)]) -> Self {
        Self::with(GatewayProcess::start_with(settings).await).await
    }

    async fn with(gateway: GatewayProcess) -> Self {
        let new = json!({ "label": "pm", "agent": "project_manager" });
        let (manager_id, secret) = gateway.issue(new).await;
        let lease =
            json!({ "agent": "project_manager", "user_id": "ada", "task_id": "t-1", "run_id": "r-1" });
        let (lease_id, lease) = gateway.lease(lease).await;
        let orchestrator = gateway.agent(&gateway.unbound("orchestrator").await);
        let call = json!({ "token_hash": tokens::hash(&secret), "lease": lease, "provider": "openai",
            "model": "gpt-5", "max_seconds": 60 });
        Self { gateway, orchestrator, call, manager_id, lease_id }
    }

    async fn allow(&self) {
        let preference = json!({ "scope": "user", "scope_id": "ada", "key": ALLOWED, "value": ["openai"] });
        self.gateway.must("PUT", "/api/v1/preferences", Some(preference)).await;
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.gateway.call(&self.orchestrator, tool, arguments).await.unwrap();
        assert!(!reply.is_error, "{tool}: {}", reply.text);
        reply.structured.unwrap()
    }

    async fn begin(&self) -> Value {
        self.call("egress.begin", self.call.clone()).await
    }

    /// The newest audit row of a tool.
    async fn row(&self, tool: &str) -> Value {
        self.gateway.audit(&format!("tool={tool}")).await.first().cloned().unwrap_or_default()
    }
}

/// P15, P21: the row of a call names the agent, its lease, user and task, not the orchestrator. That of its
/// end names the orchestrator, and whom the call was for.
#[tokio::test]
async fn audit_names_the_agent_and_the_user_of_a_call_to_a_provider() {
    let stage = Stage::start(&[]).await;
    let denied = stage.begin().await;
    assert_eq!(denied["denial"]["code"], "provider_not_allowed");
    let row = stage.row("egress.openai").await;
    let fields = ["agent", "user_id", "task_id", "run_id", "decision", "status", "error_type"];
    let shown = |row: &Value| fields.map(|field| row[field].as_str().unwrap_or("-").to_owned());
    let expected = ["project_manager", "ada", "t-1", "r-1", "deny", "denied", "provider_not_allowed"];
    assert_eq!(shown(&row), expected, "{row}");
    assert_eq!((&row["subject"], &row["lease_id"]), (&json!(stage.manager_id), &json!(stage.lease_id)));

    stage.allow().await;
    let begun = stage.begin().await;
    let row = stage.row("egress.openai").await;
    assert_eq!(shown(&row)[4..], ["allow", "success", "-"], "{row}");
    assert_eq!((&row["subject"], &row["call_id"]), (&json!(stage.manager_id), &begun["call"]["call_id"]));
    let end = json!({ "call_id": begun["call"]["call_id"], "outcome": "failed" });
    assert_eq!(stage.call("egress.end", end).await["ended"], true);
    let row = stage.row("egress.end").await;
    let expected = ["orchestrator", "ada", "t-1", "r-1", "allow", "failure", "provider_failed"];
    assert_eq!(shown(&row), expected, "{row}");
    assert_eq!(row["lease_id"], json!(stage.lease_id));
    assert!(stage.gateway.audit("tool=egress.begin").await.is_empty());

    let unknown = json!({ "token_hash": "0".repeat(64), "provider": "openai", "max_seconds": 60 });
    assert_eq!(stage.call("egress.begin", unknown).await["denial"]["code"], "unknown_token");
    let row = stage.row("egress.openai").await;
    assert_eq!(shown(&row)[..2], ["orchestrator", "-"], "{row}");
    let checked = stage.gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!(checked["ok"], true, "{checked}");
}

/// Agents cannot open calls themselves, nor see what others used.
#[tokio::test]
async fn tools_of_the_egress_are_for_orchestrators_only() {
    let stage = Stage::start(&[]).await;
    for agent in ["project_manager", "project_analyst", "sandbox"] {
        let client = stage.gateway.agent(&stage.gateway.unbound(agent).await);
        for tool in ["egress.begin", "egress.end", "egress.usage"] {
            assert!(stage.gateway.call(&client, tool, json!({})).await.is_err(), "{agent} {tool}");
        }
    }
}

/// A call with the same idempotency key is the same call, also after the gateway was killed.
#[tokio::test]
async fn repeated_begin_with_a_key_opens_one_call() {
    let mut stage = Stage::start(&[]).await;
    stage.allow().await;
    let begin = async |stage: &Stage| {
        let arguments = stage.call.as_object().unwrap().clone();
        let key = Some("request-1");
        let call = mcp::Call {
            name: "egress.begin",
            arguments,
            idempotency_key: key,
            traceparent: None,
            lease: None,
        };
        stage.orchestrator.call(call).await.unwrap().structured.unwrap()["call"]["call_id"].clone()
    };
    let first = begin(&stage).await;
    stage.gateway.kill();
    stage.gateway.start_again().await;
    assert_eq!(begin(&stage).await, first);
    // Both rows name whom the call was for.
    let rows = stage.gateway.audit("tool=egress.openai&user_id=ada").await;
    let statuses: Vec<&str> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["replayed", "success"], "the newest first");
    assert!(rows.iter().all(|row| row["lease_id"] == json!(stage.lease_id)), "{rows:?}");
}

/// A clock that is set back revives no lease: the gateway goes by the latest time that it has seen.
#[tokio::test]
async fn clock_that_is_set_back_revives_no_lease_at_the_egress() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let stage = Stage::with(GatewayProcess::start_with_variables(&[], &[clock.variable()]).await).await;
    stage.allow().await;
    assert!(stage.begin().await["call"].is_object());
    clock.set("2026-11-20T10:00:00Z");
    let late = stage.begin().await["denial"]["code"].clone();
    assert!(late.is_string(), "the lease has ended");
    clock.set("2026-11-18T10:00:00Z");
    assert_eq!(stage.begin().await["denial"]["code"], late);
}

/// Operators see what was used by REST, on the command line and in the console.
#[tokio::test]
async fn usage_is_shown_to_operators() {
    let stage = Stage::start(&[]).await;
    let none = ctl(&stage.gateway, &["egress", "usage"]).await;
    assert!(none.stdout.contains("no calls to external providers"), "{none:?}");
    stage.allow().await;
    let begun = stage.begin().await;
    let used = json!({ "prompt_tokens": 1200, "completion_tokens": 34, "usd": 0.5 });
    let end = json!({ "call_id": begun["call"]["call_id"], "outcome": "completed", "used": used });
    stage.call("egress.end", end).await;
    let listed = stage.gateway.must("GET", "/api/v1/egress/usage?user_id=ada", None).await;
    assert_eq!((&listed[0]["prompt_tokens"], &listed[0]["usd"]), (&json!(1200), &json!(0.5)), "{listed}");
    assert_eq!(stage.gateway.must("GET", "/api/v1/egress/usage?user_id=eve", None).await, json!([]));
    let (_, user) = stage.gateway.issue(json!({ "label": "u", "agent": "user", "user_id": "ada" })).await;
    let refused = stage.gateway.ask_as(&user, "GET", "/api/v1/egress/usage", None).await;
    assert_eq!(refused.status, 403, "a user does not see what others used");
    let table = ctl(&stage.gateway, &["egress", "usage", "--user", "ada"]).await;
    assert!(
        ["ada", "openai", "1200", "34", "0.5"].iter().all(|cell| table.stdout.contains(cell)),
        "{table:?}"
    );
}

/// Two gateways on one database: their open calls count together.
#[tokio::test]
async fn budget_holds_across_gateways_on_postgres() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let mut stage = Stage::start(&[("store.url", &database)]).await;
    stage.allow().await;
    stage.call["limits"] = json!({ "tokens_per_day": 1000 });
    stage.call["expected"] = json!({ "prompt_tokens": 200 });
    let second = GatewayProcess::start_with(&[("store.url", &database)]).await;
    let other = second.agent(&stage.gateway.unbound("orchestrator").await);
    let calls = (0..20).map(|at| {
        let client = if at % 2 == 0 { &stage.orchestrator } else { &other };
        stage.gateway.call(client, "egress.begin", stage.call.clone())
    });
    let begun = futures_util::future::join_all(calls).await;
    let open = |reply: &Result<mcp::Reply, mcp::Error>| {
        let reply = reply.as_ref().unwrap();
        assert!(!reply.is_error, "{}", reply.text);
        reply.structured.as_ref().is_some_and(|begun| begun.get("call").is_some())
    };
    assert_eq!(begun.iter().filter(|reply| open(reply)).count(), 5);
}
