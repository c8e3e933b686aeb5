//! Upstreams that fail, and the circuit breaker.

use std::time::Duration;

use testkit::eventually;
use upstream::{Breaker, Error, Fate, Options, State};

use crate::support::{call, gateway, http, stdio, upstream};

fn with_breaker(options: Options) -> Options {
    Options { breaker: Breaker { failures: 3, open_for: Duration::from_secs(3) }, ..options }
}

#[tokio::test]
async fn repeated_failures_open_the_breaker_and_a_probe_closes_it() {
    let mut gateway = gateway().await;
    let upstream = upstream(with_breaker(http(gateway.url())));
    call(&upstream, "echo").await.unwrap();
    gateway.kill();
    for _ in 0..3 {
        let failure = call(&upstream, "echo").await.unwrap_err();
        assert!(!matches!(failure.error, Error::BreakerOpen), "{failure:?}");
    }
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert!(matches!(failure.error, Error::BreakerOpen), "{failure:?}");
    assert_eq!(failure.fate, Fate::NotRun);
    assert!(matches!(upstream.tools().await, Err(Error::BreakerOpen)));
    let health = upstream.health();
    assert_eq!(health.state, State::Open);
    assert!(
        health.last_error.is_some_and(|error| error.contains("connect")),
        "the error of the last sent call"
    );

    gateway.start_again();
    let calls = gateway.calls().len();
    eventually("a probe succeeds", async || call(&upstream, "echo").await.ok()).await;
    assert_eq!(gateway.calls().len(), calls + 1);
    assert_eq!(upstream.health().state, State::Up);
}

#[tokio::test]
async fn rejections_do_not_open_the_breaker() {
    let gateway = gateway().await;
    let upstream = upstream(with_breaker(http(gateway.url())));
    for _ in 0..5 {
        let failure = call(&upstream, "reject").await.unwrap_err();
        assert!(matches!(failure.error, Error::Rejected { .. }), "{failure:?}");
    }
    assert_eq!(upstream.health().state, State::Up);
}

#[tokio::test]
async fn a_call_to_a_missing_server_was_not_run() {
    let mut gateway = gateway().await;
    let url = gateway.url();
    gateway.kill();
    let missing = over_missing_program();
    for options in [http(url), missing, stdio(&["broken"])] {
        let upstream = upstream(options);
        let failure = call(&upstream, "echo").await.unwrap_err();
        assert_eq!(failure.fate, Fate::NotRun, "{failure:?}");
        assert!(matches!(failure.error, Error::Unavailable(_)), "{failure:?}");
        let health = upstream.health();
        assert_eq!(health.state, State::Down);
        assert_eq!(health.last_error, Some(failure.error.to_string()));
    }
}

fn over_missing_program() -> Options {
    let mut options = stdio(&[]);
    if let upstream::Transport::Stdio { argv, .. } = &mut options.transport {
        *argv = vec!["/nonexistent/server".to_owned()];
    }
    options
}

#[tokio::test]
async fn an_http_server_error_leaves_the_fate_unknown() {
    let gateway = gateway().await;
    let upstream = upstream(http(gateway.url()));
    call(&upstream, "echo").await.unwrap();
    gateway.fail_with(Some(502));
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert_eq!(failure.fate, Fate::Unknown, "{failure:?}");
    gateway.fail_with(Some(403));
    assert_eq!(call(&upstream, "echo").await.unwrap_err().fate, Fate::Answered);
    gateway.fail_with(None);
    call(&upstream, "echo").await.unwrap();
}

#[tokio::test]
async fn health_can_be_serialized() {
    let gateway = gateway().await;
    let upstream = upstream(http(gateway.url()));
    call(&upstream, "echo").await.unwrap();
    let written = serde_json::to_value(upstream.health()).unwrap();
    assert_eq!((&written["state"], &written["in_flight"]), (&"up".into(), &0.into()), "{written}");
    assert!(written["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{written}");
}
