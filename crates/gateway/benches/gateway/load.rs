//! Generates load with the worker's MCP client, one connection per concurrent caller.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use mcp::{Call, Client, Options};
use serde_json::{Map, json};
use tokio::{sync::Barrier, task::JoinSet};

/// The tool to call, where, and whether the call must be denied.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) url: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) tool: &'static str,
    pub(crate) is_denied: bool,
    /// Whether the client calls without rmcp.
    pub(crate) fast_path: bool,
    pub(crate) lease: Option<String>,
}

/// Sorted latencies in milliseconds.
#[derive(Debug)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share) as usize]
    }
}

impl Calls {
    fn client(&self) -> Client {
        Client::new(Options {
            url: self.url.clone(),
            token_file: self.token_file.clone(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            max_result_bytes: 1 << 20,
            fast_path: self.fast_path,
            profile: None,
        })
        .unwrap()
    }

    async fn call(&self, client: &Client) {
        let mut arguments = Map::new();
        arguments.insert("message".to_owned(), json!("measure for measure"));
        let lease = self.lease.as_deref();
        let call = Call { name: self.tool, arguments, idempotency_key: None, traceparent: None, lease };
        match (client.call(call).await, self.is_denied) {
            (Ok(reply), false) if !reply.is_error => {}
            (Err(mcp::Error::Rejected { .. }), true) => {}
            (other, _) => panic!("{} at {}: {other:?}", self.tool, self.url),
        }
    }
}

/// Makes `count` calls one after the other, after a warm-up of a tenth as many.
pub(crate) async fn one_by_one(calls: &Calls, count: usize) -> Times {
    let client = calls.client();
    for _ in 0..count / 10 {
        calls.call(&client).await;
    }
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        calls.call(&client).await;
        times.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    times.sort_by(f64::total_cmp);
    Times(times)
}

/// Returns the calls per second with this many callers, each waiting for its answer before it calls again.
pub(crate) async fn calls_per_second(calls: &Calls, callers: usize, duration: Duration) -> f64 {
    let calls = Arc::new(calls.clone());
    let mut tasks = JoinSet::new();
    // All callers are connected and have had an answer before the measurement starts.
    let ready = Arc::new(Barrier::new(callers));
    for _ in 0..callers {
        let (calls, ready) = (calls.clone(), ready.clone());
        tasks.spawn(async move {
            let client = calls.client();
            for _ in 0..3 {
                calls.call(&client).await;
            }
            ready.wait().await;
            let (mut count, end) = (0_u64, Instant::now() + duration);
            while Instant::now() < end {
                calls.call(&client).await;
                count += 1;
            }
            count
        });
    }
    let counts = tasks.join_all().await;
    counts.iter().sum::<u64>() as f64 / duration.as_secs_f64()
}
