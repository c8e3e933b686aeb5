//! Handoffs and dead letters in Chromium.

use std::{path::PathBuf, time::Duration};

use subjects::{Kind, streams};
use testkit::{Browser, Errands, Nats, Orchestrator, Worker, chat, eventually};

use super::{
    browser::{assert_no_faults, enter},
    work::{gateway_with_nats, hostile_entry, letters, worker_that_requires_signatures},
};

const EVIL: &str = "<script>document.title = 'taken'</script>";

/// A worker that never finishes its first turn, so that there is time to look at it and to kill it.
async fn stuck_worker(nats: &Nats) -> Worker {
    Worker::manager(nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(600)).start().await
}

#[tokio::test]
async fn browser_follows_a_handoff_through_the_death_of_its_worker_to_its_answer() {
    let mut nats = Nats::start();
    let mut doomed = stuck_worker(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let gateway = gateway_with_nats(&nats.url()).await;
    let browser = Browser::start().await;
    enter(&browser, &gateway).await;
    browser.open(&gateway.url("/console/handoffs")).await;
    browser.wait_for_text("#in-work", "No handoffs in progress").await;
    browser.wait_for_text("#instances", "Ready").await;
    browser.wait_for_text("#live-said", "Live").await;
    browser.script("window.here = true", vec![]).await;

    let id = orchestrator.publish(&chat(EVIL)).await;
    browser.wait_for("#in-work a").await;
    browser.wait_for_text("#queues", "1 in flight").await;
    browser.wait_for_text("#instances", "1 of").await;
    assert_eq!(
        browser.script("return window.here", vec![]).await,
        true,
        "the page was updated without a reload"
    );

    browser.click("#in-work a").await;
    browser.wait_for_text("#life", "Attempt 1").await;
    assert!(browser.url().await.ends_with(&format!("/console/handoffs/{id}")));
    browser.wait_for_text("#life .facts", "In progress").await;
    browser.script("window.here = true", vec![]).await;
    doomed.process.kill();
    let _healthy = Worker::manager(&nats).set("worker.ack_wait", "1s").start().await;
    browser.wait_for_text("#life", "Attempt 2").await;
    browser.wait_for_text("#life .facts", "Completed").await;
    let life = browser.text("#life").await;
    assert!(life.contains("lost") && life.contains("Answer"), "{life}");
    assert_eq!(browser.count(".spans .attempt").await, 2);
    browser.wait_for_text("#live-said", "Answered").await;
    assert_eq!(
        browser.script("return window.here", vec![]).await,
        true,
        "the page was updated without a reload"
    );

    browser.open(&gateway.url("/console/handoffs")).await;
    browser.wait_for_text("#answered", "Completed").await;
    browser.wait_for_text("#answered", "attempt 2").await;

    // The last state stays while NATS is down, and the page continues by itself.
    nats.kill();
    browser.wait_for_text("#away", "NATS is not available").await;
    browser.wait_for_text("#answered", "Completed").await;
    nats.start_again();
    browser.wait_for_no("#away .flash").await;
    browser.wait_for_text("#answered", "Completed").await;
    assert_no_faults(&browser).await;
}

#[tokio::test]
async fn browser_replays_a_dead_letter_and_sees_its_answer() {
    let nats = Nats::start();
    let strict_worker = worker_that_requires_signatures(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("nobody signed this")).await;
    letters(&orchestrator, 1).await;
    orchestrator.publish(&chat("nor this")).await;
    letters(&orchestrator, 2).await;
    drop(strict_worker);
    let _worker = Worker::manager(&nats).start().await;
    let gateway = gateway_with_nats(&nats.url()).await;
    let browser = Browser::start().await;
    enter(&browser, &gateway).await;

    browser.open(&gateway.url("/console/dead")).await;
    browser.wait_for_text("main", "2 letters").await;
    browser.click("tbody tr:last-child a").await;
    browser.wait_for_text("h1", "Dead letter 1").await;
    browser.wait_for_text("pre", "nobody signed this").await;
    browser.click(".title details.confirm summary").await;
    browser.click("form[action$=replay] button").await;
    browser.wait_for_text(".flash", "Letter 1 replayed").await;
    assert!(browser.url().await.ends_with(&format!("/console/handoffs/{id}")));
    browser.wait_for_text("#life .facts", "Completed").await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;

    browser.open(&gateway.url("/console/dead")).await;
    browser.wait_for_text("main", "1 letter").await;
    browser.click("td.does details.confirm:last-child summary").await;
    browser.click("form[action$=drop] button").await;
    browser.wait_for_text(".flash", "Letter 2 dropped").await;
    browser.wait_for_text(".empty", "No dead letters").await;
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    browser.open(&gateway.url("/console/audit?tool=admin.dead.*")).await;
    browser.wait_for_text("#rows", "admin.dead.replay").await;
    assert_no_faults(&browser).await;
}

/// All states at once: answered after a crash, in progress, waiting, dead-lettered.
#[tokio::test]
async fn browser_finds_no_faults_on_handoff_pages_at_any_width() {
    let nats = Nats::start();
    let strict_worker = worker_that_requires_signatures(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for text in [EVIL, "another", "a third"] {
        orchestrator.publish(&chat(text)).await;
    }
    letters(&orchestrator, 3).await;
    drop(strict_worker);
    let errands = Errands::start(|| Duration::from_millis(300)).await;
    let worker = errands.worker(&nats).set("worker.ack_wait", "1s");
    let mut first = worker.clone().stopping_at("BeforeTool#2").start().await;
    let id = orchestrator.publish(&Errands::handoff("a-very-long-name-without-a-place-to-break-it")).await;
    eventually("the worker to reach its crash point", async || {
        first.log().contains("\"stops\":true").then_some(())
    })
    .await;
    first.process.kill();
    let mut second = worker.start().await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    second.process.terminate();
    second.process.wait(Duration::from_secs(20));
    let holding = Worker::manager(&nats)
        .thinking(Duration::from_secs(600))
        .set("worker.ack_wait", "1s")
        .set("worker.concurrency.chat", "3")
        .start()
        .await;
    let _analyst = Worker::analyst(&nats).start().await;
    let in_work = orchestrator.publish(&chat("work")).await;
    holding.wait_for_in_flight(Kind::Chat, 1).await;
    let mut waiting = in_work;
    for number in 0..7 {
        waiting = orchestrator.publish(&chat(&format!("work {number}"))).await;
    }
    holding.wait_for_in_flight(Kind::Chat, 3).await;

    let strange = chat("written by hand").id;
    orchestrator.write_journal(strange, hostile_entry()).await;

    let gateway = gateway_with_nats(&nats.url()).await;
    let browser = Browser::start().await;
    enter(&browser, &gateway).await;
    let pages = [
        ("work", "/console/handoffs".to_owned()),
        ("handoff", format!("/console/handoffs/{id}")),
        ("in-work", format!("/console/handoffs/{in_work}")),
        ("strange", format!("/console/handoffs/{strange}")),
        ("waiting", format!("/console/handoffs/{waiting}")),
        ("dead", "/console/dead".to_owned()),
        ("letter", "/console/dead/letter?number=1".to_owned()),
    ];
    for (name, path) in pages {
        for (width, height) in [(1280, 900), (768, 1024), (390, 844), (360, 740)] {
            browser.resize(width, height).await;
            browser.open(&gateway.url(&path)).await;
            browser.wait_for("h1").await;
            shoot(&browser, &format!("{name}-{width}"), width).await;
            assert!(!browser.overflows().await, "{path} at {width}");
            let wide = "return [...document.querySelectorAll('main *')].filter(it =>
                it.getBoundingClientRect().right > document.documentElement.clientWidth + 1
                && !it.closest('pre, .unseen, caption, thead, details:not([open])'))
                .map(it => it.outerHTML.slice(0, 80))";
            assert_eq!(browser.script(wide, vec![]).await, serde_json::json!([]), "{path} at {width}");
        }
        let unnamed = "return [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
            .filter(field => field.labels.length === 0).map(field => field.outerHTML)";
        assert_eq!(browser.script(unnamed, vec![]).await, serde_json::json!([]), "{path}");
        assert_eq!(browser.count("h1").await, 1, "{path}");
        assert_ne!(browser.client().title().await.unwrap(), "taken");
    }
    browser.open(&gateway.url(&format!("/console/handoffs/{id}"))).await;
    assert_eq!(browser.count(".spans .attempt").await, 2);
    let tools = "return [...document.querySelectorAll('.spans .step')]
        .filter(it => it.textContent.includes('Tool')).length";
    let calls = browser.script(tools, vec![]).await;
    assert!(calls.as_u64() > Some(Errands::EFFECTS as u64), "one call was interrupted and repeated: {calls}");
    assert_no_faults(&browser).await;
}

/// Takes screenshots if a folder for them is set.
async fn shoot(browser: &Browser, name: &str, width: u32) {
    let Some(folder) = std::env::var_os("CONSOLE_SHOTS").map(PathBuf::from) else { return };
    let height = browser.script("return document.documentElement.scrollHeight", vec![]).await;
    browser.resize(width, u32::try_from(height.as_u64().unwrap_or(900)).unwrap_or(900).max(700)).await;
    for dark in [false, true] {
        browser.prefer_dark(dark).await;
        let scheme = if dark { "dark" } else { "light" };
        browser.screenshot(&folder.join(format!("{name}-{scheme}.png"))).await;
    }
    browser.prefer_dark(false).await;
}
