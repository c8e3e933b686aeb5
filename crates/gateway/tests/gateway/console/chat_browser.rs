//! Chat in Chromium.

use std::{path::Path, time::Duration};

use serde_json::json;
use testkit::{Browser, Script, eventually};
use tokio::sync::watch;

use super::{
    browser::{assert_no_faults, enter},
    chat::{CHAT, ChatStack},
};

const ANSWER: &str = "# Two tasks\n\nThese are **left**, see [the site](https://example.org):\n\n\
    | task | state |\n|---|---|\n| paint the fence | pending |\n| mow the lawn | running |\n\n\
    ```sh\ncynodectl status\n```\n\n<script>document.title = 'taken'</script>\n\n\
    [bad](javascript:document.title='taken') ![x](https://evil.example/x.png)\n\n- one\n- two\n";

async fn send(browser: &Browser, text: &str) {
    browser.fill("#message", text).await;
    browser.click("#send").await;
}

/// Opens a page and waits until the field has the focus, which browsers give it after the page is loaded.
async fn open_to_type(browser: &Browser, url: &str) {
    browser.open(url).await;
    eventually("the field is ready to type", async || browser.has_focus("#message").await.then_some(()))
        .await;
}

async fn is_visible(browser: &Browser, css: &str) -> bool {
    let script = "return document.querySelector(arguments[0])?.checkVisibility() === true";
    browser.script(script, vec![json!(css)]).await == true
}

/// A message is typed, its tool calls and its text are streamed, and its answer is rendered.
#[tokio::test]
async fn browser_chats_with_the_project_manager() {
    let (release, answered) = watch::channel(0);
    let held = Script::Held { turn: 0, answered: answered.clone(), then: Box::new(Script::say(ANSWER)) };
    let text = "It is being written. ".repeat(5);
    let stack = ChatStack::start([
        Script::call("db__task__list", &json!({})),
        held,
        Script::HangAfter(text),
        Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        Script::say("Then it is published."),
    ])
    .await;
    let browser = Browser::start().await;
    enter(&browser, &stack.gateway).await;
    browser.open(&stack.gateway.url(CHAT)).await;
    screenshot(&browser, "chat-new").await;
    browser.script("window.here = true", vec![]).await;
    send(&browser, "What is left to do?").await;
    browser.wait_for_text(".bubble", "What is left to do?").await;
    browser.wait_for_text("#draft-steps", "task").await;
    browser.wait_for_text("#chat-said", "working").await;
    assert!(is_visible(&browser, "#stop").await && !is_visible(&browser, "#send").await);
    browser.wait_for_text("h1", "What is left to do?").await;
    screenshot(&browser, "chat-working").await;
    release.send(1).unwrap();
    browser.wait_for_text("#chat-said", "Answered").await;
    browser.wait_for_text(".markdown h3", "Two tasks").await;
    assert_eq!(browser.count(".markdown table tbody tr").await, 2);
    assert_eq!(browser.count(".markdown a").await, 2, "the link and the image");
    assert_eq!(browser.count("main script:not([src]), .markdown img").await, 0);
    assert_ne!(browser.client().title().await.unwrap(), "taken");
    assert!(is_visible(&browser, "#send").await && !is_visible(&browser, "#stop").await);
    assert!(browser.has_focus("#message").await, "the focus is back in the field");
    for (name, width, height) in [("wide", 1280, 900), ("narrow", 360, 740)] {
        for dark in [false, true] {
            browser.resize(width, height).await;
            browser.prefer_dark(dark).await;
            assert!(!browser.overflows().await, "{width}");
            screenshot(&browser, &format!("chat-{name}-{}", if dark { "dark" } else { "light" })).await;
        }
    }
    browser.prefer_dark(false).await;
    browser.resize(1280, 900).await;

    // The text is shown while it is written, and stopped with the button.
    send(&browser, "Write it down.").await;
    browser.wait_for_text("#draft-text", "It is being written.").await;
    browser.click("#stop").await;
    browser.wait_for_text(".turn:last-child", "You stopped this.").await;
    eventually("the form can be used", async || is_visible(&browser, "#send").await.then_some(())).await;

    // A question is answered by the next message.
    send(&browser, "Publish the site.").await;
    browser.wait_for_text(".turn:last-child .meta", "Question").await;
    send(&browser, "The new one.").await;
    browser.wait_for_text(".turn:last-child .markdown", "Then it is published.").await;
    assert_eq!(browser.count(".turn").await, 4);
    assert_eq!(browser.script("return window.here", vec![]).await, true, "the page was not reloaded");
    browser.open(&browser.url().await).await;
    assert_eq!(browser.count(".turn").await, 4, "the address names the thread");
    assert_no_faults(&browser).await;
}

/// After a connection that broke, the text may be changed although the first one was sent.
#[tokio::test]
async fn browser_sends_a_changed_text_under_a_new_name() {
    let stack = ChatStack::start([Script::say("First answer."), Script::say("Second answer.")]).await;
    let browser = Browser::start().await;
    enter(&browser, &stack.gateway).await;
    browser.open(&stack.gateway.url(CHAT)).await;
    let name = "document.querySelector('#composer').elements.request.value";
    browser.script(&format!("window.sent = {name}"), vec![]).await;
    send(&browser, "First").await;
    browser.wait_for_text(".turn .markdown", "First answer.").await;
    browser.script(&format!("{name} = window.sent"), vec![]).await;
    send(&browser, "Second").await;
    browser.wait_for_text("#chat-notice", "sent before with another text").await;
    browser.click("#send").await;
    browser.wait_for_text(".turn:last-child .markdown", "Second answer.").await;
    assert_eq!(browser.count(".turn").await, 2);
}

/// Two threads by keyboard alone; each keeps its own text; a reload in the middle loses nothing.
#[tokio::test]
async fn browser_keeps_threads_apart_by_keyboard() {
    let (release, answered) = watch::channel(0);
    let held = Script::Held { turn: 0, answered, then: Box::new(Script::say("Late, but here.")) };
    let stack = ChatStack::start([Script::say("First answer."), held, Script::say("More.")]).await;
    let browser = Browser::start().await;
    enter(&browser, &stack.gateway).await;
    browser.resize(360, 740).await;
    open_to_type(&browser, &stack.gateway.url(CHAT)).await;
    browser.type_text("First").await;
    browser.press_enter().await;
    browser.wait_for_text(".turn .markdown", "First answer.").await;
    let first = browser.url().await;
    open_to_type(&browser, &stack.gateway.url(CHAT)).await;
    assert_eq!(browser.count(".turn").await, 0);
    browser.type_text("Second").await;
    browser.press_enter().await;
    browser.wait_for_text(".bubble", "Second").await;
    eventually("the address of the thread", async || browser.url().await.contains("thread=").then_some(()))
        .await;
    browser.type_text("typed meanwhile").await;
    let second = browser.url().await;
    open_to_type(&browser, &second).await;
    browser.wait_for_text("#chat-said", "working").await;
    let typed = "return document.querySelector('#message').value";
    assert_eq!(browser.script(typed, vec![]).await, "typed meanwhile");
    release.send(1).unwrap();
    browser.wait_for_text(".turn .markdown", "Late, but here.").await;
    browser.wait_for_text("#chat-said", "Answered").await;
    browser.press_enter().await;
    browser.wait_for_text(".turn:last-child .markdown", "More.").await;
    assert!(!browser.overflows().await);
    browser.click(".thread-list summary").await;
    screenshot(&browser, "chat-threads-narrow").await;
    assert_eq!(browser.count(".thread-list .narrow li").await, 2);
    browser.open(&first).await;
    browser.wait_for_text(".turn .markdown", "First answer.").await;
    assert_eq!(browser.count(".turn").await, 1);
    browser.resize(1280, 900).await;
    browser.open(&stack.gateway.url("/console/threads")).await;
    assert_eq!(browser.count("tbody tr").await, 2);
    screenshot(&browser, "threads-wide").await;
    browser.click("tbody a").await;
    browser.wait_for_text("h1", "Second").await;
    screenshot(&browser, "thread-wide").await;
    assert_no_faults(&browser).await;
}

#[tokio::test]
async fn browser_keeps_the_text_when_the_orchestrator_is_away() {
    let mut stack = ChatStack::start([Script::say("Here I am.")]).await;
    let browser = Browser::start().await;
    enter(&browser, &stack.gateway).await;
    browser.open(&stack.gateway.url(CHAT)).await;
    stack.orchestrator = None;
    send(&browser, "Is anyone there?").await;
    browser.wait_for_text("#chat-notice", "The orchestrator does not answer").await;
    screenshot(&browser, "chat-away").await;
    let typed = "return document.querySelector('#message').value";
    assert_eq!(browser.script(typed, vec![]).await, "Is anyone there?");
    assert_eq!(browser.count(".turn").await, 0);
    stack.start_orchestrator().await;
    browser.click("#send").await;
    browser.wait_for_text(".turn .markdown", "Here I am.").await;
    assert!(!is_visible(&browser, "#chat-notice").await);
    // A session that has ended is told, and the text is kept.
    browser.script("return document.querySelector('#message').focus()", vec![]).await;
    browser.client().delete_all_cookies().await.unwrap();
    send(&browser, "Still me?").await;
    browser.wait_for_text("#chat-notice", "Your session has ended").await;
    assert_eq!(browser.script(typed, vec![]).await, "Still me?");
    assert_no_faults(&browser).await;
}

/// An orchestrator that dies in the middle of an answer: the page waits for the stored answer.
#[tokio::test]
async fn browser_gets_the_answer_of_a_stream_that_broke() {
    let (release, answered) = watch::channel(0);
    let held = Script::Held { turn: 0, answered, then: Box::new(Script::say("It was worth the wait.")) };
    let mut stack = ChatStack::start([held]).await;
    let browser = Browser::start().await;
    enter(&browser, &stack.gateway).await;
    browser.open(&stack.gateway.url(CHAT)).await;
    send(&browser, "Take your time.").await;
    browser.wait_for_text("#chat-said", "working").await;
    stack.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
    stack.orchestrator = None;
    stack.start_orchestrator().await;
    release.send(1).unwrap();
    browser.wait_for_text(".turn .markdown", "It was worth the wait.").await;
    browser.wait_for_text("#chat-said", "Answered").await;
    assert_no_faults(&browser).await;
}

/// Keeps a picture for people where `SCREENSHOTS` names a folder.
async fn screenshot(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("SCREENSHOTS") {
        tokio::time::sleep(Duration::from_millis(300)).await;
        browser.screenshot(&Path::new(&folder).join(format!("{name}.png"))).await;
    }
}
