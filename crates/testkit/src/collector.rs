//! A trace collector: receives OTLP over HTTP and stores the spans.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use axum::{
    Router, body::Bytes, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{self, span::SpanKind},
};
use prost::Message;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};

/// Collects spans until it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
    _serving: JoinSet<()>,
}

/// A received span.
#[derive(Clone, Debug)]
pub struct Span {
    pub service: String,
    pub name: String,
    pub kind: SpanKind,
    pub trace_id: String,
    pub span_id: String,
    /// The id of the parent span. Empty for a root span.
    pub parent: String,
    pub attributes: BTreeMap<String, Value>,
    pub failed: bool,
}

impl Span {
    /// Returns the `traceparent` that this span sends to callees.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }

    #[track_caller]
    pub fn check(&self, name: &str, expected: impl Into<Value>) {
        assert_eq!(self.attributes.get(name), Some(&expected.into()), "{name} of {self:#?}");
    }
}

impl Collector {
    pub async fn start() -> Self {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&spans));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.expect("serving ends with its task") });
        Self { address, spans, _serving: serving }
    }

    /// Returns the value for `telemetry.otlp_endpoint`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }

    /// Returns the span of this name, if it was received. Panics if there is more than one.
    #[track_caller]
    pub fn find(&self, service: &str, name: &str) -> Option<Span> {
        let mut found = self.spans();
        found.retain(|span| span.service == service && span.name == name);
        assert!(found.len() <= 1, "more than one {name}: {found:#?}");
        found.pop()
    }
}

async fn take(State(spans): State<Arc<Mutex<Vec<Span>>>>, body: Bytes) -> impl IntoResponse {
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
    let mut spans = spans.lock().unwrap();
    for of_resource in request.resource_spans {
        let about = attributes(of_resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        let service = about["service.name"].as_str().expect("a text").to_owned();
        let came = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(came.map(|came| span(&service, came)));
    }
    ([(CONTENT_TYPE, "application/x-protobuf")], Bytes::new())
}

fn span(service: &str, came: v1::Span) -> Span {
    assert!(came.events.is_empty(), "log lines stay out of traces: {came:?}");
    Span {
        service: service.to_owned(),
        kind: came.kind(),
        name: came.name,
        trace_id: hex(&came.trace_id),
        span_id: hex(&came.span_id),
        parent: hex(&came.parent_span_id),
        attributes: attributes(came.attributes),
        failed: came.status.is_some_and(|status| status.code() == v1::status::StatusCode::Error),
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, Value> {
    pairs.into_iter().map(|pair| (pair.key, pair.value.map_or(Value::Null, value))).collect()
}

fn value(any: AnyValue) -> Value {
    match any.value {
        Some(any_value::Value::StringValue(text)) => text.into(),
        Some(any_value::Value::BoolValue(truth)) => truth.into(),
        Some(any_value::Value::IntValue(number)) => number.into(),
        Some(any_value::Value::DoubleValue(number)) => number.into(),
        Some(any_value::Value::ArrayValue(list)) => list.values.into_iter().map(value).collect(),
        other => panic!("not expected in a span: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
