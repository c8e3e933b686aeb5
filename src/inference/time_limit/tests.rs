use std::sync::atomic::{AtomicU32, Ordering};

use intake::Gate;
use serde_json::json;
use subjects::Message;
use testkit::{Model, ModelRequest, Script};
use tokio::time::sleep;

use super::*;
use crate::{
    context::{Layers, Preamble, Routing},
    inference::{
        Backend, Endpoint, EndpointOptions, Hint, Inference, LOCAL, Limits, Listener, Models, OutputSchema,
        Purpose, Request, Route, Routes,
    },
    telemetry::{Blocker, Breaker, Health, Metrics},
};

/// Longer than any loaded machine takes for two replies.
const LIMIT: Duration = Duration::from_secs(4);

/// A permit that is there at once, but for the second time that it is acquired.
#[derive(Debug, Default)]
struct SlowPermit {
    acquired: AtomicU32,
}

impl Permit for SlowPermit {
    fn acquire(&self) -> BoxFuture<'_, ()> {
        let is_second = self.acquired.fetch_add(1, Ordering::SeqCst) == 1;
        Box::pin(async move {
            if is_second {
                sleep(3 * LIMIT).await;
            }
        })
    }

    fn lease(&self, _: bool) -> BoxFuture<'_, Result<Arc<str>, NoLease>> {
        Box::pin(async { Err(NoLease::Absent) })
    }
}

struct NullListener;

impl Listener for NullListener {
    fn on_try(&self, _: u32) {}
    fn on_text(&self, _: &str) {}
}

#[tokio::test(start_paused = true)]
async fn only_the_time_of_the_model_is_limited() {
    let slow = SlowPermit::default();
    let permit = CountedPermit::new(&slow);
    let mut limit = TimeLimit::new(Some(LIMIT));
    let asking = async {
        for _ in 0..3 {
            permit.acquire().await;
            sleep(LIMIT / 4).await;
        }
    };
    assert_eq!(limit.within(&permit, asking).await, Some(()));
    assert!(!limit.is_over());
    // A quarter is left, and begins when the permit is there.
    let slow = SlowPermit { acquired: AtomicU32::new(1) };
    let permit = CountedPermit::new(&slow);
    let started = Instant::now();
    let asking = async {
        permit.acquire().await;
        sleep(LIMIT / 2).await;
    };
    assert_eq!(limit.within(&permit, asking).await, None);
    assert!(limit.is_over());
    let took = started.elapsed();
    assert!((3 * LIMIT..3 * LIMIT + LIMIT / 2).contains(&took), "{took:?}");
}

/// A wait that is given up counts as long as it lasted.
#[tokio::test(start_paused = true)]
async fn dropped_wait_does_not_stop_the_clock() {
    let slow = SlowPermit { acquired: AtomicU32::new(1) };
    let permit = CountedPermit::new(&slow);
    let mut limit = TimeLimit::new(Some(LIMIT));
    let asking = async {
        assert!(tokio::time::timeout(LIMIT, permit.acquire()).await.is_err());
        sleep(2 * LIMIT).await;
    };
    assert_eq!(limit.within(&permit, asking).await, None);
}

/// NATS is away while the model is asked a second time, since its first reply was empty.
#[tokio::test]
async fn reply_is_not_given_up_while_a_permit_is_awaited() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let count = AtomicU32::new(0);
    let say = move |_: &ModelRequest| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Script::say(" "),
        _ => Script::say("{\"sum\": 5}"),
    };
    let model = Model::start_with_structured([], say).await;
    let metrics = Arc::new(Metrics::new());
    let options = EndpointOptions {
        silence: Duration::from_secs(30),
        max_bytes: 1 << 20,
        tool_mode: None,
        profiles: Vec::new(),
        metrics: Arc::clone(&metrics),
    };
    let models = Models { usual: "scripted".to_owned(), fast: None, strong: None };
    let endpoint = Endpoint::new(LOCAL, &model.url(), None, models, options).unwrap();
    let local = Some(Route { provider: LOCAL.to_owned(), endpoint });
    let (breakers, _) = Gate::new();
    let inference = Inference {
        backend: Backend::Routes(Box::new(Routes { local, external: Vec::new() })),
        limits: Limits { tries: 1, patience: Duration::ZERO, prices: None },
        breaker: Breaker::new(Blocker::Inference, breakers, Arc::new(Health::starting())),
        metrics,
    };
    let messages = [Message::user("What is two plus three?")];
    let request = Request {
        purpose: Purpose::Think("check"),
        system: Layers::default().compose(&Preamble::empty()),
        messages: &messages,
        tools: Arc::from([]),
        may_call: false,
        output_schema: Some(OutputSchema { name: "check", schema: Arc::new(json!({ "type": "object" })) }),
        temperature: 0.0,
        is_default_temperature: false,
        max_tokens: None,
        time_limit: Some(LIMIT),
        hint: Hint::Usual,
        lease: None,
        permit: None,
    };
    let permit = SlowPermit::default();
    let reply = inference.ask(&request, &Routing::default(), &NullListener, &permit).await.unwrap();
    assert_eq!((reply.content.as_str(), model.asked().len()), ("{\"sum\": 5}", 2));
    assert_eq!(permit.acquired.load(Ordering::SeqCst), 3, "once for the try, and once for each request");
}
