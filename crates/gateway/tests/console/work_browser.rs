use std::{path::PathBuf, time::Duration};

use subjects::{Kind, streams};
use testkit::{Browser, Errands, Nats, Orchestrator, Worker, chat, eventually};

use super::{
    browser::{enter, no_fault},
    work::{distrustful, letters, seeing, strange_entry},
};

const EVIL: &str = "<script>document.title = 'taken'</script>";

/// A worker that never ends its first turn, so that there is time to look at it, and to kill it.
async fn stuck(nats: &Nats) -> Worker {
    Worker::manager(nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(600)).start().await
}

#[tokio::test]
async fn browser_follows_a_handoff_through_the_death_of_its_worker_to_its_answer() {
    let mut nats = Nats::start();
    let mut doomed = stuck(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let gateway = seeing(&nats.url()).await;
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
    assert_eq!(browser.script("return window.here", vec![]).await, true, "the page was not loaded again");

    browser.click("#in-work a").await;
    browser.wait_for_text("#life", "Attempt 1").await;
    assert!(browser.url().await.ends_with(&format!("/console/handoffs/{id}")));
    browser.wait_for_text("#life .facts", "In work").await;
    browser.script("window.here = true", vec![]).await;
    doomed.process.kill();
    let _healthy = Worker::manager(&nats).set("worker.ack_wait", "1s").start().await;
    browser.wait_for_text("#life", "Attempt 2").await;
    browser.wait_for_text("#life .facts", "Completed").await;
    let life = browser.text("#life").await;
    assert!(life.contains("fell silent") && life.contains("Answer"), "{life}");
    assert_eq!(browser.count(".spans .attempt").await, 2);
    browser.wait_for_text("#live-said", "Answered").await;
    assert_eq!(browser.script("return window.here", vec![]).await, true, "the page was not loaded again");

    browser.open(&gateway.url("/console/handoffs")).await;
    browser.wait_for_text("#answered", "Completed").await;
    browser.wait_for_text("#answered", "attempt 2").await;

    // What was seen last stays while NATS is away, and the page goes on by itself.
    nats.kill();
    browser.wait_for_text("#away", "NATS is not available").await;
    browser.wait_for_text("#answered", "Completed").await;
    nats.start_again();
    browser.wait_for_no("#away .flash").await;
    browser.wait_for_text("#answered", "Completed").await;
    no_fault(&browser).await;
}

#[tokio::test]
async fn browser_replays_a_dead_letter_and_sees_its_answer() {
    let nats = Nats::start();
    let distrustful = distrustful(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("nobody signed this")).await;
    letters(&orchestrator, 1).await;
    orchestrator.publish(&chat("nor this")).await;
    letters(&orchestrator, 2).await;
    drop(distrustful);
    let _worker = Worker::manager(&nats).start().await;
    let gateway = seeing(&nats.url()).await;
    let browser = Browser::start().await;
    enter(&browser, &gateway).await;

    browser.open(&gateway.url("/console/dead")).await;
    browser.wait_for_text("main", "2 letters").await;
    browser.click("tbody tr:last-child a").await;
    browser.wait_for_text("h1", "Dead letter 1").await;
    browser.wait_for_text("pre", "nobody signed this").await;
    browser.click(".title details.confirm summary").await;
    browser.click("form[action$=replay] button").await;
    browser.wait_for_text(".flash", "Letter 1 was handed off again").await;
    assert!(browser.url().await.ends_with(&format!("/console/handoffs/{id}")));
    browser.wait_for_text("#life .facts", "Completed").await;
    orchestrator.answered(Kind::Chat, id).await;

    browser.open(&gateway.url("/console/dead")).await;
    browser.wait_for_text("main", "1 letter").await;
    browser.click("td.does details.confirm:last-child summary").await;
    browser.click("form[action$=drop] button").await;
    browser.wait_for_text(".flash", "gone for good").await;
    browser.wait_for_text(".empty", "No dead letters").await;
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    browser.open(&gateway.url("/console/audit?tool=admin.dead.*")).await;
    browser.wait_for_text("#rows", "admin.dead.replay").await;
    no_fault(&browser).await;
}

/// Everything at once: answered after a death, in work, waiting, given up.
#[tokio::test]
async fn browser_finds_no_fault_with_pages_of_handoffs_on_any_screen() {
    let nats = Nats::start();
    let distrustful = distrustful(&nats).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for text in [EVIL, "another", "a third"] {
        orchestrator.publish(&chat(text)).await;
    }
    letters(&orchestrator, 3).await;
    drop(distrustful);
    let errands = Errands::start(|| Duration::from_millis(300)).await;
    let worker = errands.worker(&nats).set("worker.ack_wait", "1s");
    let mut first = worker.clone().stopping_at("BeforeTool#2").start().await;
    let id = orchestrator.publish(&Errands::handoff("a-very-long-name-without-a-place-to-break-it")).await;
    eventually("the worker to stop", async || first.log().contains("\"stops\":true").then_some(())).await;
    first.process.kill();
    let mut second = worker.start().await;
    orchestrator.answered(Kind::Chat, id).await;
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
    holding.holds(Kind::Chat, 1).await;
    let mut waiting = in_work;
    for number in 0..7 {
        waiting = orchestrator.publish(&chat(&format!("work {number}"))).await;
    }
    holding.holds(Kind::Chat, 3).await;

    let strange = chat("written by hand").id;
    orchestrator.write_journal(strange, strange_entry()).await;

    let gateway = seeing(&nats.url()).await;
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
            let wide = "return [...document.querySelectorAll('main *')].filter(it => it.getBoundingClientRect().right >
                document.documentElement.clientWidth + 1 && !it.closest('pre, .unseen, caption, thead, details:not([open])')).map(it => it.outerHTML.slice(0, 80))";
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
    let tools = "return [...document.querySelectorAll('.spans .step')].filter(it => it.textContent.includes('Tool')).length";
    let calls = browser.script(tools, vec![]).await;
    assert!(calls.as_u64() > Some(Errands::EFFECTS as u64), "one call was cut off and made again: {calls}");
    no_fault(&browser).await;
}

/// Pictures for people, where a folder is named for them.
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
