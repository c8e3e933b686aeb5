//! Limits on time, size and concurrency.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use testkit::{ScriptedServer, eventually};
use upstream::{Error, Fate, Options};

use crate::support::{call, call_with, gateway, http, legacy_gateway, stdio, text, upstream};

#[tokio::test]
async fn a_call_that_times_out_has_an_unknown_fate() {
    // Long enough for an `echo` on a busy machine; the three upstreams wait at the same time.
    let patient = |options: Options| Options { call_timeout: Duration::from_secs(5), ..options };
    let (newer, older) = (gateway().await, legacy_gateway().await);
    let servers = [http(newer.url()), http(older.url()), stdio(&["normal"])];
    join_all(servers.map(async |options| {
        let upstream = upstream(patient(options));
        call(&upstream, "echo").await.unwrap();
        let failure = call(&upstream, "hang").await.unwrap_err();
        assert!(matches!(failure.error, Error::TimedOut), "{failure:?}");
        assert_eq!(failure.fate, Fate::Unknown);
        call(&upstream, "echo").await.unwrap();
    }))
    .await;
    eventually("the call is cancelled", async || (newer.cancelled_calls() == 1).then_some(())).await;
}

#[tokio::test]
async fn sixty_four_calls_run_at_the_same_time() {
    let gateway = gateway().await;
    let upstream = upstream(http(gateway.url()));
    upstream.tools().await.unwrap();
    // None is answered, so all that arrive run at the same time.
    tokio::select! {
        results = join_all((0..64).map(|_| call(&upstream, "hang"))) => panic!("{results:?}"),
        () = eventually("all are running", async || (gateway.calls().len() == 64).then_some(())) => {}
    }
}

#[tokio::test]
async fn calls_beyond_the_limit_wait_for_a_slot_until_the_timeout() {
    let timeout = Duration::from_secs(2);
    let gateway = gateway().await;
    let upstream = upstream(Options { concurrency: 1, call_timeout: timeout, ..http(gateway.url()) });
    call(&upstream, "echo").await.unwrap();
    // Half of the timeout of a running call has passed, so that two timers never end together.
    let half_over = async |calls| {
        eventually("it runs", async || (gateway.calls().len() == calls).then_some(())).await;
        tokio::time::sleep(timeout / 2).await;
    };
    // The first call hangs; the second waits until the first times out, and then has its full time.
    let (hung, waited) = tokio::join!(call(&upstream, "hang"), async {
        half_over(2).await;
        call(&upstream, "echo").await
    });
    assert!(matches!(hung.unwrap_err().error, Error::TimedOut));
    assert_eq!(text(&waited.unwrap()), "{}");

    // The first call hangs, the second waits and hangs, and the third times out before the second ends.
    let (_, (_, waited)) = tokio::join!(call(&upstream, "hang"), async {
        half_over(4).await;
        // They queue in the order in which they are polled first.
        tokio::join!(call(&upstream, "hang"), call(&upstream, "echo"))
    });
    let busy = waited.unwrap_err();
    assert!(matches!(busy.error, Error::Busy), "{busy:?}");
    assert_eq!(busy.fate, Fate::NotRun);
    assert_eq!((gateway.calls().len(), upstream.health().in_flight), (5, 0));
}

#[tokio::test]
async fn a_result_beyond_the_size_limit_is_answered_but_not_returned() {
    let (newer, older) = (gateway().await, legacy_gateway().await);
    for gateway in [&newer, &older] {
        let failure = call(&upstream(http(gateway.url())), "large").await.unwrap_err();
        assert!(matches!(failure.error, Error::TooLarge(65536)), "{failure:?}");
        assert_eq!(failure.fate, Fate::Answered);
    }
    let upstream = upstream(stdio(&["normal"]));
    let failure = call_with(&upstream, "long", json!({"bytes": 70_000})).await.unwrap_err();
    assert!(matches!(failure.error, Error::TooLarge(65536)), "{failure:?}");
    // The line itself was within its limit, so the process goes on.
    assert_eq!(upstream.health().restarts, 0);
    call(&upstream, "echo").await.unwrap();
}

#[tokio::test]
async fn reading_a_message_stops_at_the_size_limit() {
    for streamed in [false, true] {
        let server = ScriptedServer::start(streamed, |request| match request["method"].as_str() {
            Some("tools/call") => json!({"content": [{"type": "text", "text": "x".repeat(5 << 20)}]}),
            _ => json!({"tools": []}),
        })
        .await;
        let failure = call(&upstream(http(server.url())), "anything").await.unwrap_err();
        assert_eq!(failure.fate, Fate::Unknown, "{failure:?}");
        assert!(matches!(failure.error, Error::Protocol(_) | Error::Unavailable(_)), "{failure:?}");
    }
}

#[tokio::test]
async fn a_line_beyond_the_size_limit_ends_the_process() {
    let upstream = upstream(stdio(&["normal"]));
    let before = crate::support::process_id(&upstream).await;
    let failure = call_with(&upstream, "long", json!({"bytes": 5 << 20})).await.unwrap_err();
    assert!(
        matches!(&failure.error, Error::Unavailable(words) if words.contains("4194304 bytes")),
        "{failure:?}"
    );
    assert_eq!(failure.fate, Fate::Unknown);
    crate::support::wait_until_ended(before).await;
    call(&upstream, "echo").await.unwrap();
    assert_eq!(upstream.health().restarts, 1);
}
