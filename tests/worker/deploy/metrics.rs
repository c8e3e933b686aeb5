//! Exported metrics match the documentation; the dashboard and the alerts use only documented metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use async_nats::HeaderMap;
use serde_json::{Value, json};
use subjects::{ErrorCode, Kind};
use testkit::{
    ChatClient, GatewayProcess, Model, ModelRequest, Nats, NodeBuilder, Orchestrator, OrchestratorBuilder,
    RunnerBuilder, Script, Worker, chat, chat_body, eventually, promtool, run, workspace,
};

/// By metric name as queried: type and labels.
type Vocabulary = BTreeMap<String, (String, BTreeSet<String>)>;

/// Parses a metrics page.
fn exported(text: &str) -> Vocabulary {
    let mut found = Vocabulary::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, kind) = line.split_once(' ').expect("a name and a type");
        let end = if kind == "counter" { "_total" } else { "" };
        let samples = text.lines().filter(|line| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            name.strip_prefix(family)
                .is_some_and(|end| ["", "_total", "_bucket", "_sum", "_count"].contains(&end))
        });
        let labels = samples.flat_map(labels_of).filter(|label| label != "le").collect();
        found.insert(format!("{family}{end}"), (kind.to_owned(), labels));
    }
    found
}

fn labels_of(line: &str) -> Vec<String> {
    let Some((_, rest)) = line.split_once('{') else { return Vec::new() };
    let (labels, _) = rest.split_once('}').expect("an end");
    labels.split(',').map(|label| label.split('=').next().unwrap_or_default().to_owned()).collect()
}

/// Metrics of a worker, a gateway and an orchestrator after everything has happened that creates a series.
async fn really_exported() -> Vocabulary {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let unfit = String::from_utf8(chat("x").encode(subjects::Encoding::Json).unwrap()).unwrap();
    let unfit = unfit.replace("cynodeai.pm", "cynodeai.xx");
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), unfit.into_bytes()).await;
    eventually("the handoff to be refused", async || (orchestrator.queued().await == 0).then_some(())).await;
    let (_, text) = worker.get("/metrics").await;
    let mut found = exported(&text);
    let refused = "pma_tools_refused_total";
    found.insert(
        refused.to_owned(),
        exported(&after_a_refused_tool().await).remove(refused).expect("it counts"),
    );
    let gateway = GatewayProcess::start().await;
    gateway.issue(json!({ "label": "pm", "agent": "project_manager" })).await;
    found.extend(exported(&gateway.metrics().await));
    let provider = Model::start([Script::Whole("hello".to_owned())]).await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("provider.key");
    fs::write(&key, "a-key\n").unwrap();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let entry = format!(
        "[{{ name = \"openai\", url = {:?}, key_file = {:?} }}]",
        provider.url(),
        key.display().to_string()
    );
    let door = OrchestratorBuilder::new(&nats, &gateway).await.with_providers(&entry).start().await;
    door.client("no key").send("GET", "/models", None).await;
    let allowed = "agents.project_manager.model_routing.allowed_external_providers";
    let preference = json!({ "scope": "system", "key": allowed, "value": ["openai"] });
    gateway.must("PUT", "/api/v1/preferences", Some(preference)).await;
    let lease = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await.1;
    let agent = ChatClient::new(&format!("{}/openai", door.egress_url()), &gateway.manager().await);
    let asked =
        agent.with("cynode-lease", &lease).send("POST", "/chat/completions", Some(chat_body(&[]))).await;
    assert_eq!(asked.status, 200, "{asked:?}");
    eventually("the call to be counted", async || {
        door.metrics().await.contains("orchestrator_egress_tokens_total{").then_some(())
    })
    .await;
    found.extend(exported(&door.metrics().await));
    found
}

/// Metrics of a worker whose model server refused the schema of a tool.
async fn after_a_refused_tool() -> String {
    let nats = Nats::start();
    let refuse = |asked: &ModelRequest| match asked.offered().contains(&"ask_user") {
        true => Script::Refuse(400, "JSON schema conversion failed".to_owned()),
        false => Script::say("Hello."),
    };
    let model = Model::start_answering(refuse, refuse).await;
    let worker = Worker::manager(&nats).asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("Hello")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    worker.get("/metrics").await.1
}

fn page() -> String {
    fs::read_to_string(workspace().join("docs/metrics.md")).unwrap()
}

/// Metrics in the tables of docs/metrics.md.
fn documented() -> Vocabulary {
    let quoted =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = quoted(cells[3]).into_iter().collect();
        (quoted(cells[1]).remove(0), (cells[2].to_owned(), labels))
    })
    .collect()
}

/// Metrics that the page lists as coming from other programs.
fn of_others() -> BTreeSet<String> {
    let page = page();
    let (_, others) = page.split_once("## From others").expect("a section");
    others.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn documented_metrics_are_the_exported_ones() {
    let of_others = |name: &str| name.starts_with("cynode_node_") || name.starts_with("workflow_");
    let documented: Vocabulary = documented().into_iter().filter(|(name, _)| !of_others(name)).collect();
    assert_eq!(documented, really_exported().await);
}

/// Of a node, after a job. A counter of what has not happened yet has no series: of such only the name is
/// checked.
#[tokio::test]
async fn documented_metrics_of_a_node_are_the_exported_ones() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let node = NodeBuilder::new("metered", &nats, &gateway).await.start().await;
    let manager = gateway.agent(&gateway.manager().await);
    let task = json!({ "title": "Run things", "user_id": "ada" });
    let task = gateway.call(&manager, "db.task.create", task).await.unwrap();
    let task = task.structured.unwrap()["task_id"].clone();
    let run = json!({ "task_id": task, "script": "echo done", "wait_seconds": 60 });
    let job = gateway.call(&manager, "sandbox.run", run).await.unwrap().structured.unwrap();
    assert_eq!(job["status"], "completed", "{job}");
    let exported = eventually("the job to be counted", async || {
        let text = node.metrics().await;
        text.contains("cynode_node_jobs_ended_total{").then(|| exported(&text))
    })
    .await;
    let mut documented = documented();
    documented.retain(|name, _| name.starts_with("cynode_node_"));
    for (name, found) in &exported {
        assert_eq!(documented.get(name), Some(found), "{name}");
    }
    let source = fs::read_to_string(workspace().join("crates/node/src/metrics.rs")).unwrap();
    for name in documented.keys().filter(|name| !exported.contains_key(*name)) {
        let registered = name.trim_start_matches("cynode_node_").trim_end_matches("_total");
        assert!(source.contains(&format!("\"{registered}\"")), "{name} is documented and not exported");
    }
}

/// Of a runner, after a workflow. Labels of what has not happened yet cannot be seen.
#[tokio::test]
async fn documented_metrics_of_a_workflow_runner_are_the_exported_ones() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let _manager = Worker::manager(&nats).calling_process(&gateway).await.start().await;
    let runner = RunnerBuilder::new(&nats.url(), &gateway).await.start().await;
    let manager = gateway.agent(&gateway.manager().await);
    let call = async |tool: &str, arguments: Value| {
        let reply = gateway.call(&manager, tool, arguments).await.expect(tool);
        assert!(!reply.is_error, "{tool}: {}", reply.text);
        reply.structured.unwrap()
    };
    let task = call("db.task.create", json!({ "title": "List tasks", "user_id": "ada" })).await;
    let task = json!({ "task_id": task["task_id"] });
    call("workflow.start", task.clone()).await;
    eventually("the workflow to end", async || {
        (call("workflow.get", task.clone()).await["status"] == "done").then_some(())
    })
    .await;
    let exported = eventually("the run to be counted", async || {
        let text = runner.metrics().await;
        text.contains("workflow_runs_total{").then(|| exported(&text))
    })
    .await;
    let mut documented = documented();
    documented.retain(|name, _| name.starts_with("workflow_"));
    let kinds = |metrics: &Vocabulary| -> BTreeMap<String, String> {
        metrics.iter().map(|(name, (kind, _))| (name.clone(), kind.clone())).collect()
    };
    assert_eq!(kinds(&documented), kinds(&exported));
    for (name, (_, labels)) in exported.iter().filter(|(_, (_, labels))| !labels.is_empty()) {
        assert_eq!(&documented[name].1, labels, "{name}");
    }
}

/// The queries of the dashboard, by the title of their panel.
fn dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(workspace().join("deploy/grafana/cynode.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "panel ids are unique");
    let of = |panel: &Value| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    };
    panels.iter().flat_map(of).collect()
}

/// The queries of the alert rules, by their name.
fn alerts() -> Vec<(String, String)> {
    let text = fs::read_to_string(workspace().join("deploy/prometheus/alerts.yaml")).unwrap();
    let rules: Value = serde_yaml_ng::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let text = |rule: &Value, member: &str| rule[member].as_str().unwrap().to_owned();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect()
}

/// Metrics in a query. What is in quotes is the value of a label.
fn named(query: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query.split('"').step_by(2).flat_map(|part| part.split(|c| !is_part(c)));
    let ours = |word: &&str| {
        ["pma_", "gateway_", "orchestrator_", "cynode_node_", "workflow_", "jetstream_"]
            .iter()
            .any(|start| word.starts_with(start))
            || *word == "up"
    };
    words.filter(ours).map(str::to_owned).collect()
}

/// Values that a query requires of a label.
fn wanted<'q>(query: &'q str, label: &str) -> Vec<&'q str> {
    let of = |sign: &str| {
        let wanted = format!("{label}{sign}\"");
        query.match_indices(&wanted).map(|(at, _)| at + wanted.len()).collect::<Vec<_>>()
    };
    let starts = of("=").into_iter().chain(of("!="));
    starts.map(|at| query[at..].split('"').next().unwrap_or_default()).collect()
}

#[test]
fn dashboard_and_alerts_use_only_documented_metrics() {
    let mut known = of_others();
    for (name, (kind, _)) in documented() {
        if kind == "histogram" {
            known.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
        } else {
            known.insert(name);
        }
    }
    let codes: Vec<String> = ErrorCode::ALL.iter().map(ToString::to_string).collect();
    let mut used = BTreeSet::new();
    for (place, query) in dashboard().into_iter().chain(alerts()) {
        let names = named(&query);
        assert!(!names.is_empty(), "{place} uses no metric: {query}");
        let unknown: Vec<_> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{place} uses unknown metrics: {unknown:?}");
        for code in wanted(&query, "code") {
            assert!(codes.iter().any(|known| known == code), "{place}: no such code {code}");
        }
        used.extend(names);
    }
    // Every metric must be on a panel or in an alert.
    let stem = |name: &str| {
        name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned()
    };
    let shown: BTreeSet<String> = used.iter().map(|name| stem(name)).collect();
    let unseen: Vec<_> = documented().into_keys().filter(|name| !shown.contains(name)).collect();
    assert!(unseen.is_empty(), "on no panel and in no alert: {unseen:?}");
}

/// docs/operations.md describes every alert.
#[test]
fn operations_guide_describes_every_alert() {
    let guide = fs::read_to_string(workspace().join("docs/operations.md")).unwrap();
    let missing: Vec<_> =
        alerts().into_iter().map(|(name, _)| name).filter(|name| !guide.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// promtool accepts the rules and every query of the dashboard, and the rule tests pass.
#[test]
fn promtool_accepts_the_rules_and_every_query() {
    let folder = workspace().join("deploy/prometheus");
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let done = run(&promtool(), &folder, &arguments, &[]);
        assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    }
    let record = |(number, (_, query)): (usize, (String, String))| {
        json!({
            "record": format!("query_{number}"), "expr": query.replace("$__rate_interval", "5m"),
        })
    };
    let rules: Vec<_> = dashboard().into_iter().enumerate().map(record).collect();
    let rules = json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("dashboard.yaml"), rules.to_string()).unwrap();
    let done = run(&promtool(), place.path(), &["check", "rules", "dashboard.yaml"], &[]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
}
