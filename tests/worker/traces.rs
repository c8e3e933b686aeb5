//! Traces as received by a collector: one per handoff, through worker, gateway and upstream, whichever
//! process dies.

use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};
use subjects::{Answer as Answered, Encoding, Handoff, HandoffId, Kind, headers};
use testkit::{
    Answer, Collector, Gateway, GatewayProcess, Model, Nats, Orchestrator, Script, Span, Tool, Worker,
    WorkerBuilder, chat, eventually, free_port, typical,
};

const WORKER: &str = "cynode-pma";
const GATEWAY: &str = "cynode-gateway";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const ORCHESTRATOR: &str = "00f067aa0ba902b7";
const STOPS_WITHIN: Duration = Duration::from_secs(15);
/// Occurs only in texts of user, model and tool.
const CONTENT: &str = "marmalade";

async fn publish_in_trace(orchestrator: &Orchestrator, handoff: &Handoff) -> HandoffId {
    let mut sent = HeaderMap::new();
    sent.insert(headers::MSG_ID, handoff.id.to_string());
    sent.insert(headers::TRACEPARENT, format!("00-{TRACE}-{ORCHESTRATOR}-01"));
    orchestrator.publish_raw(handoff.kind(), sent, handoff.encode(Encoding::Json).unwrap()).await;
    handoff.id
}

fn traced(worker: WorkerBuilder, collector: &Collector) -> WorkerBuilder {
    worker.set("telemetry.otlp_endpoint", collector.url())
}

fn trace_id(answer: &Answered) -> &str {
    match answer {
        Answered::Completion(completion) => &completion.trace.trace_id,
        Answered::Findings(findings) => &findings.trace.trace_id,
    }
}

#[track_caller]
fn under(parent: &Span, child: &Span, kind: SpanKind) {
    assert_eq!((&child.trace_id, &child.parent), (&parent.trace_id, &parent.span_id), "{child:#?}");
    assert_eq!(child.kind, kind, "{child:#?}");
}

/// G4, G11: one trace from the orchestrator through worker and gateway to the upstream. It is complete once
/// the processes have ended, and contains no content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_is_one_trace_through_worker_gateway_and_upstream() {
    let (nats, collector) = (Nats::start(), Collector::start().await);
    let upstream = Gateway::start(vec![Tool::new(
        "status",
        "Shows the state of the git repository.",
        json!({ "type": "object", "properties": { "path": { "type": "string" } } }),
        |_| Answer::text(format!("{CONTENT} is clean")),
    )])
    .await;
    let mut gateway = GatewayProcess::start_with(&[("telemetry.otlp_endpoint", &collector.url())]).await;
    gateway.install("git", &upstream.url()).await;
    let token = gateway.folder().join("manager.token");
    std::fs::write(&token, gateway.manager().await).unwrap();
    let model = Model::start([
        Script::call("git__status", &json!({ "path": CONTENT })),
        Script::say(&format!("{CONTENT} is clean.")),
    ])
    .await;
    let worker = Worker::manager(&nats).asking(&model).set("gateway.url", gateway.url());
    let worker = worker.set("gateway.token_file", token.display().to_string());
    let mut worker = traced(worker, &collector).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = chat(&format!("Show the git status of {CONTENT}"));
    let id = publish_in_trace(&orchestrator, &asked).await;
    let answer = orchestrator.wait_for_answer(Kind::Chat, id).await;
    assert_eq!(trace_id(&answer), TRACE);
    worker.process.terminate();
    assert!(worker.process.wait(STOPS_WITHIN).success(), "{}", worker.log());
    gateway.process.terminate();
    assert!(gateway.process.wait(STOPS_WITHIN).success(), "{}", gateway.log());

    let found = |service: &str, name: &str| {
        let found = collector.find(service, name);
        found.unwrap_or_else(|| panic!("no {name} of {service} in {:#?}", collector.spans()))
    };
    let process = found(WORKER, "process pma.handoff.chat");
    assert_eq!((process.trace_id.as_str(), process.parent.as_str()), (TRACE, ORCHESTRATOR));
    assert_eq!(process.kind, SpanKind::Consumer);
    process.check("messaging.system", "nats");
    process.check("messaging.operation.name", "process");
    process.check("messaging.operation.type", "process");
    process.check("messaging.destination.name", "pma.handoff.chat");
    process.check("messaging.consumer.group.name", subjects::streams::consumer_name(Kind::Chat));
    process.check("messaging.message.id", id.to_string());
    process.check("messaging.message.body.size", asked.encode(Encoding::Json).unwrap().len());
    process.check("cynode.handoff.id", id.to_string());
    process.check("cynode.delivery.count", 1);
    process.check("cynode.attempt", 1);
    process.check("cynode.outcome", "answered");

    let spans = collector.spans();
    let chats: Vec<&Span> = spans.iter().filter(|span| span.name == "chat scripted").collect();
    assert_eq!(chats.len(), 2, "two turns: {chats:#?}");
    let carried: Vec<_> = model.asked().into_iter().filter_map(|asked| asked.traceparent).collect();
    for span in chats {
        under(&process, span, SpanKind::Client);
        span.check("gen_ai.operation.name", "chat");
        span.check("gen_ai.provider.name", "local");
        span.check("gen_ai.request.model", "scripted");
        span.check("gen_ai.usage.input_tokens", 100);
        span.check("gen_ai.usage.output_tokens", 10);
        assert!(
            carried.contains(&span.traceparent()),
            "the model server received the traceparent of {span:#?}: {carried:?}"
        );
    }
    let finished = |reason: &str| {
        spans
            .iter()
            .filter(|span| span.attributes.get("gen_ai.response.finish_reasons") == Some(&json!([reason])))
            .count()
    };
    assert_eq!((finished("tool_calls"), finished("stop")), (1, 1));

    let tool = found(WORKER, "execute_tool git.status");
    under(&process, &tool, SpanKind::Client);
    tool.check("gen_ai.operation.name", "execute_tool");
    tool.check("gen_ai.tool.name", "git.status");
    tool.check("mcp.method.name", "tools/call");
    let served = found(GATEWAY, "tools/call git.status");
    under(&tool, &served, SpanKind::Server);
    served.check("mcp.method.name", "tools/call");
    served.check("gen_ai.tool.name", "git.status");
    served.check("cynode.agent", "project_manager");
    let decided = spans.iter().find(|span| span.name == "decide" && span.parent == served.span_id).unwrap();
    under(&served, decided, SpanKind::Internal);
    decided.check("cynode.decision", "allow");
    let behind = found(GATEWAY, "tools/call status");
    under(&served, &behind, SpanKind::Client);
    behind.check("cynode.upstream", "git");
    assert_eq!(upstream.calls()[0].traceparent.as_deref(), Some(&*behind.traceparent()));

    let sent = found(WORKER, "send pma.run.{handoff_id}.completion");
    under(&process, &sent, SpanKind::Producer);
    sent.check("messaging.operation.type", "send");
    sent.check("messaging.destination.template", "pma.run.{handoff_id}.completion");
    let stored = orchestrator.answers().await;
    assert_eq!(stored[0].headers.get(headers::TRACEPARENT).unwrap().as_str(), sent.traceparent());
    let settled = found(WORKER, "settle pma.handoff.chat");
    under(&process, &settled, SpanKind::Client);
    settled.check("messaging.operation.name", "ack");

    for span in &spans {
        assert!(!span.failed, "{span:#?}");
        assert_eq!(span.trace_id, TRACE, "all spans are in one trace: {span:#?}");
        assert!(!format!("{span:?}").contains(CONTENT), "content in {span:#?}");
    }
}

/// G4: a verification, including the work of the analyst, is part of the trace of the handoff that requested
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verification_is_part_of_the_same_trace() {
    let (nats, collector) = (Nats::start(), Collector::start().await);
    let gateway = Gateway::start(Vec::new()).await;
    let turns =
        [Script::call("request_verification", &json!({ "task_id": "t-1" })), Script::say("Verified.")];
    let thinks = |asked: &testkit::ModelRequest| Script::Say(typical(asked.form().unwrap()).to_string());
    let model = Model::start_with_structured(turns, thinks).await;
    let manager = Worker::manager(&nats).set("analysts.enabled", "true").asking(&model).calling(&gateway);
    let _manager = traced(manager, &collector).start().await;
    let analyst = Worker::analyst(&nats).asking(&model).calling(&gateway);
    let _analyst = traced(analyst, &collector).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = publish_in_trace(&orchestrator, &chat("Is t-1 done?")).await;
    assert_eq!(trace_id(&orchestrator.wait_for_answer(Kind::Chat, id).await), TRACE);
    let span = async |name: &str| eventually(name, async || collector.find(WORKER, name)).await;
    let process = span("process pma.handoff.chat").await;
    let sent = span("send pa.verify").await;
    under(&process, &sent, SpanKind::Producer);
    let verified = span("process pa.verify").await;
    under(&sent, &verified, SpanKind::Consumer);
    let answered = span("send pa.run.{handoff_id}.findings").await;
    under(&verified, &answered, SpanKind::Producer);
}

/// After a kill, the spans of both attempts are in one trace. A handoff without a `traceparent` gets a trace
/// id derived from its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_attempt_is_in_the_same_trace() {
    let (nats, collector) = (Nats::start(), Collector::start().await);
    let model = Model::start([Script::say("hello")]).await;
    let settings = traced(Worker::manager(&nats).asking(&model).set("worker.ack_wait", "1s"), &collector);
    let mut first = settings.clone().stopping_at("BeforeAnswer#1").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("hello")).await;
    let before = eventually("spans of the first attempt", async || {
        let spans = collector.spans();
        spans.into_iter().find(|span| span.name == "chat scripted")
    })
    .await;
    first.process.kill();
    let _second = settings.start().await;
    let answer = orchestrator.wait_for_answer(Kind::Chat, id).await;
    let process =
        eventually("the second attempt", async || collector.find(WORKER, "process pma.handoff.chat")).await;
    process.check("cynode.attempt", 2);
    process.check("cynode.delivery.count", 2);
    assert_eq!(process.trace_id, id.trace_id());
    assert_eq!((trace_id(&answer), before.trace_id.as_str()), (&*id.trace_id(), &*id.trace_id()));
    assert_eq!(process.parent, id.span_id(), "the parent is the handoff itself, whose span is never sent");
    assert_ne!(before.parent, process.span_id, "each attempt has its own span");
}

/// Failed spans have an error type; an unsampled trace is not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_spans_have_an_error_type_and_unsampled_traces_are_not_sent() {
    let (nats, collector) = (Nats::start(), Collector::start().await);
    let model = Model::start([Script::Status(500, None), Script::say("hello")]).await;
    let mut worker = traced(Worker::manager(&nats).asking(&model), &collector).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let unsampled = chat("not to be told of");
    let mut sent = HeaderMap::new();
    sent.insert(headers::MSG_ID, unsampled.id.to_string());
    sent.insert(headers::TRACEPARENT, format!("00-{TRACE}-{ORCHESTRATOR}-00"));
    let body = unsampled.encode(Encoding::Json).unwrap();
    orchestrator.publish_raw(Kind::Chat, sent, body).await;
    orchestrator.wait_for_answer(Kind::Chat, unsampled.id).await;
    let mut refused = HeaderMap::new();
    refused.insert(headers::MSG_ID, HandoffId::now().to_string());
    refused.insert(headers::TRACEPARENT, format!("00-{}-{ORCHESTRATOR}-01", TRACE.replace('4', "5")));
    orchestrator.publish_raw(Kind::Chat, refused, b"{}".to_vec()).await;
    orchestrator.wait_until_settled().await;
    worker.process.terminate();
    assert!(worker.process.wait(STOPS_WITHIN).success(), "{}", worker.log());
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace_id != TRACE), "{spans:#?}");
    let process =
        collector.find(WORKER, "process pma.handoff.chat").expect("the span of the refused handoff");
    assert!(process.failed);
    process.check("error.type", "invalid_handoff");
    process.check("cynode.outcome", "refused");
    let stored = orchestrator.answers().await;
    let unsampled = stored.iter().find(|it| it.subject.contains(&unsampled.id.to_string())).unwrap();
    let carried = unsampled.headers.get(headers::TRACEPARENT).unwrap().as_str();
    assert!(carried.starts_with(&format!("00-{TRACE}-")) && carried.ends_with("-00"), "{carried}");
}

/// A collector that is down, or that accepts data and never responds, affects neither answers nor shutdown,
/// and is logged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_collector_affects_nothing() {
    // The operating system accepts connections, but nothing reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let away = format!("http://127.0.0.1:{}", free_port());
    for (endpoint, tells) in [(away, true), (silent, false)] {
        let nats = Nats::start();
        let settings = Worker::manager(&nats).set("telemetry.otlp_endpoint", &endpoint);
        let mut worker = settings.start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let rounds = if tells { 3 } else { 1 };
        for _ in 0..rounds {
            let since = Instant::now();
            let ids = futures_util::future::join_all((0..50).map(|_| {
                let orchestrator = &orchestrator;
                async move { orchestrator.publish(&chat("hello")).await }
            }))
            .await;
            for id in ids {
                orchestrator.wait_for_answer(Kind::Chat, id).await;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
            if tells {
                eventually("a failed export", async || {
                    worker.log().contains("Trace collector not reachable").then_some(())
                })
                .await;
            }
        }
        let since = Instant::now();
        worker.process.terminate();
        assert!(worker.process.wait(STOPS_WITHIN).success(), "{}", worker.log());
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
        let log = worker.log();
        let told = log.lines().filter(|line| line.contains("Trace collector not reachable")).count();
        assert!(told <= 1, "{log}");
        let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let problems =
            lines.iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG").count();
        assert!(problems <= told, "{log}");
    }
}
