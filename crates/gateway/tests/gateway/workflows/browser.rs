//! Workflows in Chromium: pages follow what happens, and leave alone what a person does with them.

use serde_json::json;
use testkit::Browser;

use super::support::World;
use crate::console::{
    browser::{assert_no_faults, enter},
    support::Gateway,
};

#[tokio::test]
async fn browser_watches_a_workflow_and_answers_its_question() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let browser = Browser::start().await;
    enter(&browser, &console).await;
    let task = world.task_with(json!({ "name": "build", "user_id": "ada" })).await;
    browser.open(&console.url(&format!("/console/tasks/{task}"))).await;
    browser.click("form[action$=start] button").await;
    browser.wait_for_text(".flash", "The workflow is started").await;
    browser.wait_for_text("#live-said", "Live").await;
    browser.script("window.here = true", vec![]).await;

    // An open confirmation stays open while the rest of the page changes.
    browser.click("#steering details.confirm summary").await;
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    browser.wait_for_text("#facts", "runner-1").await;
    world.put_plan(&task, epoch).await;
    browser.wait_for_text("#graph .now", "Now: dispatch step (convert).").await;
    browser.wait_for_text("#steps", "convert").await;
    assert_eq!(browser.count("#graph .is-present").await, 1);
    assert_eq!(browser.count("#steering details[open]").await, 1);

    let asked = json!({ "waiting": { "for": "question", "question": "Which file?", "interrupt_id": "i-1" } });
    world.release(&task, epoch, asked).await;
    browser.wait_for_text("#steering", "Which file?").await;
    browser.fill("#input", "the second").await;
    // Something else happens; what is typed stays.
    let finding = json!({
        "task_id": task, "criterion": "it is blue", "verdict": "met", "severity": "info", "evidence": "seen",
    });
    world.ok("db.finding.create", finding).await;
    browser.wait_for_text("#findings", "it is blue").await;
    assert_eq!(browser.script("return window.here", vec![]).await, true, "without a reload");
    assert_eq!(browser.script("return document.querySelector('#input').value", vec![]).await, "the second");
    browser.click("#steering form[action$=resume] button[type=submit]").await;
    browser.wait_for_text(".flash", "Answered").await;
    let taken = world.acquire(&task, 2).await;
    assert_eq!(taken["input"], "the second");
    let epoch = taken["epoch"].as_i64().expect("an epoch");
    world.release(&task, epoch, json!({ "done": { "summary": "It is built." } })).await;
    browser.wait_for_text("#live-said", "Ended").await;
    browser.wait_for_text("#facts", "It is built.").await;

    let other = json!({ "name": "ship", "user_id": "ada", "depends_on": ["build"] });
    world.task_with(other).await;
    let (task, _) = world.taken("a-very-long-name-of-a-task-without-a-place-to-break-it-anywhere").await;
    for path in [
        "/console/workflows".to_owned(),
        format!("/console/workflows/{task}"),
        "/console/tasks?view=board".to_owned(),
        "/console/tasks?view=graph".to_owned(),
        format!("/console/tasks/{task}"),
    ] {
        for (width, height) in [(1280, 900), (768, 1024), (360, 740)] {
            browser.resize(width, height).await;
            browser.open(&console.url(&path)).await;
            browser.wait_for("h1").await;
            assert!(!browser.overflows().await, "{path} at {width}");
        }
    }
    assert_no_faults(&browser).await;
}
