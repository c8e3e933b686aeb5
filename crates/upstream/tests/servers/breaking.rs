use std::time::Duration;

use testkit::eventually;
use upstream::{Breaker, Error, Fate, Options, State};

use crate::support::{call, gateway, http, stdio, upstream};

fn soon_left_alone(options: Options) -> Options {
    Options { breaker: Breaker { failures: 3, open_for: Duration::from_millis(400) }, ..options }
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_left_alone_and_then_probed() {
    let mut gateway = gateway().await;
    let upstream = upstream(soon_left_alone(http(gateway.url())));
    call(&upstream, "echo").await.unwrap();
    gateway.kill();
    for _ in 0..3 {
        let failure = call(&upstream, "echo").await.unwrap_err();
        assert!(!matches!(failure.error, Error::LeftAlone), "{failure:?}");
    }
    let failure = call(&upstream, "echo").await.unwrap_err();
    assert!(matches!(failure.error, Error::LeftAlone), "{failure:?}");
    assert_eq!(failure.fate, Fate::NotRun);
    assert!(matches!(upstream.tools().await, Err(Error::LeftAlone)));
    let health = upstream.health();
    assert_eq!(health.state, State::Open);
    assert!(health.last_error.is_some_and(|error| error.contains("connect")), "of the failure itself");

    gateway.start_again();
    let calls = gateway.calls().len();
    eventually("one may find out", async || call(&upstream, "echo").await.ok()).await;
    assert_eq!(gateway.calls().len(), calls + 1);
    assert_eq!(upstream.health().state, State::Up);
}

#[tokio::test]
async fn what_a_server_answers_does_not_speak_against_it() {
    let gateway = gateway().await;
    let upstream = upstream(soon_left_alone(http(gateway.url())));
    for _ in 0..5 {
        let failure = call(&upstream, "reject").await.unwrap_err();
        assert!(matches!(failure.error, Error::Rejected { .. }), "{failure:?}");
    }
    assert_eq!(upstream.health().state, State::Up);
}

#[tokio::test]
async fn servers_that_are_not_there_did_not_run_the_call() {
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
async fn a_server_error_of_http_leaves_the_fate_unknown() {
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
async fn health_can_be_written() {
    let gateway = gateway().await;
    let upstream = upstream(http(gateway.url()));
    call(&upstream, "echo").await.unwrap();
    let written = serde_json::to_value(upstream.health()).unwrap();
    assert_eq!((&written["state"], &written["in_flight"]), (&"up".into(), &0.into()), "{written}");
    assert!(written["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{written}");
}
