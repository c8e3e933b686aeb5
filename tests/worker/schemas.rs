//! What models are constrained by is accepted by the engines that do it: every built-in tool, the tools of
//! servers of other makers, every structured output and every typed step.

use schema::{Form, Schema};
use serde_json::{Value, json};
use subjects::{Kind, Plan, Work};
use testkit::{
    GatewayProcess, Model, Nats, Orchestrator, RealModel, Script, Worker, chat, grammar_refusals, handoff,
    job_step, review, schedule, server_everything, server_filesystem, typical, verify,
};

const FORMS: [Form; 3] = [Form::TOOL, Form::GRAMMAR, Form::STRICT];

/// The schemas of all tools that a gateway serves with two real servers behind it, by name.
async fn tools() -> Vec<(String, Schema)> {
    let gateway = GatewayProcess::start().await;
    let (node, everything) = server_everything();
    let (_, filesystem) = server_filesystem();
    let text = |path: &std::path::Path| path.display().to_string();
    let servers = [
        ("everything", vec![text(&node), text(&everything), "stdio".to_owned()]),
        ("files", vec![text(&node), text(&filesystem), text(gateway.folder())]),
    ];
    for (namespace, argv) in servers {
        let new = json!({
            "namespace": namespace, "transport": { "stdio": { "argv": argv } }, "trust_first": true,
        });
        let added = gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
        assert!(added["problem"].is_null() && added["approved"].as_u64() > Some(0), "{added}");
    }
    let manager = gateway.manager().await;
    let listed = gateway.agent(&manager).tools().await.unwrap();
    let lowered = |tool: mcp::Tool| {
        let schema = Schema::read(&Value::Object(tool.input_schema));
        (tool.name, schema)
    };
    let tools: Vec<(String, Schema)> = listed.into_iter().map(lowered).collect();
    for name in ["db.task.create", "everything.echo", "files.read_text_file"] {
        assert!(tools.iter().any(|(known, _)| known == name), "{name}");
    }
    println!("{} tools", tools.len());
    tools
}

/// The schemas of structured outputs and typed steps, as a worker sends them.
async fn outputs() -> Vec<Value> {
    let nats = Nats::start();
    let model = Model::start_answering(
        |_| Script::say("not asked for"),
        |asked| match asked.form() {
            Some("step") => Script::Say(json!({ "answer": "Nothing to do." }).to_string()),
            form => Script::Say(typical(form.unwrap_or_default()).to_string()),
        },
    )
    .await;
    let gateway = GatewayProcess::start().await;
    let token = gateway.folder().join("manager.token");
    std::fs::write(&token, gateway.manager().await).unwrap();
    let typed = |worker: testkit::WorkerBuilder| {
        worker.asking(&model).set("inference.tool_mode", "typed").set("agent.offered_tools", "128")
    };
    let _manager = typed(Worker::manager(&nats))
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token.display().to_string())
        .start()
        .await;
    let _analyst = typed(Worker::analyst(&nats)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let plan =
        Plan { goal: "Publish".to_owned(), acceptance_criteria: vec![], constraints: vec![], task_id: None };
    let works = [
        (Kind::Chat, chat("What is there?")),
        (Kind::Plan, handoff(Work::Plan(plan.clone()))),
        (Kind::Schedule, schedule("Write the report")),
        (Kind::Verify, verify("t-1")),
        (Kind::Plan, handoff(Work::Plan(Plan { task_id: Some("t-1".parse().unwrap()), ..plan }))),
        (Kind::Review, review("t-1", job_step("build"))),
    ];
    for (kind, handoff) in works {
        let id = orchestrator.publish(&handoff).await;
        orchestrator.wait_for_answer(kind, id).await;
    }
    let asked = model.asked();
    let mut forms: Vec<&str> = asked.iter().filter_map(|asked| asked.form()).collect();
    forms.sort_unstable();
    forms.dedup();
    assert_eq!(forms, ["assessment", "judgement", "plan", "review", "scheduled_task", "step", "steps"]);
    let schema =
        |asked: &testkit::ModelRequest| asked.body.pointer("/response_format/json_schema/schema").cloned();
    asked.iter().filter_map(schema).collect()
}

async fn all() -> Vec<Value> {
    let tools = tools().await;
    let mut all: Vec<Value> =
        tools.iter().flat_map(|(_, schema)| FORMS.map(|form| schema.write(form))).collect();
    all.extend(outputs().await);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xgrammar_and_llguidance_accept_what_models_are_constrained_by_with_node_peer_tools() {
    assert_eq!(grammar_refusals(&all().await), Vec::<String>::new());
}

/// llama.cpp turns a schema into a grammar when it is asked, so each is sent, for the beginning of an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_model_accepts_what_it_is_constrained_by_with_node_peer_tools() {
    let model = RealModel::start().await;
    let ask = async |more: (&str, Value)| {
        let mut body = json!({
            "model": RealModel::NAME, "max_tokens": 8, "messages": [{ "role": "user", "content": "ok" }],
        });
        body[more.0] = more.1.clone();
        let (status, reply) = model.complete(&body).await;
        assert_eq!(status, 200, "{reply}\n{}", more.1);
        reply.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    for (name, schema) in tools().await {
        let function = json!({ "name": name.replace('.', "__"), "parameters": schema.write(Form::TOOL) });
        ask(("tools", json!([{ "type": "function", "function": function }]))).await;
    }
    for schema in outputs().await {
        let named = json!({ "name": "output", "strict": true, "schema": schema });
        let format = json!({ "type": "json_schema", "json_schema": &named });
        // A server that cannot read a schema answers without it: with text.
        let said = ask(("response_format", format)).await;
        assert!(said.trim_start().starts_with('{'), "{said}\n{named}");
    }
}
