//! Threads: list, read, rename, export, delete.

use serde_json::json;
use testkit::Script;

use crate::stage::Stage;

#[tokio::test]
async fn threads_are_listed_read_renamed_exported_and_deleted() {
    let stage = Stage::start([Script::say("One."), Script::say("Two."), Script::say("Three.")]).await;
    let client = stage.client();
    let first = client.clone().with("x-cynode-thread", "a");
    first.ask("first question").await;
    first.ask("second question").await;
    client.clone().with("x-cynode-thread", "b").ask("another thread").await;

    let listed = client.send("GET", "/threads?limit=1", None).await;
    assert_eq!((&listed.body["object"], &listed.body["has_more"]), (&json!("list"), &json!(true)));
    assert_eq!(listed.body["data"][0]["name"], "b");
    let next = listed.body["next"].as_str().unwrap();
    let rest = client.send("GET", &format!("/threads?limit=1&after={next}"), None).await;
    assert_eq!((&rest.body["data"][0]["name"], &rest.body["has_more"]), (&json!("a"), &json!(false)));
    assert_eq!(client.send("GET", "/threads?after=nonsense", None).await.status, 400);

    let thread = client.send("GET", "/threads/a", None).await;
    assert_eq!((&thread.body["turns"], &thread.body["title"]), (&json!(2), &json!("first question")));
    let id = thread.body["id"].as_str().unwrap();
    assert_eq!(client.send("GET", &format!("/threads/{id}"), None).await.body, thread.body);
    let messages = client.send("GET", "/threads/a/messages?limit=100", None).await;
    let said: Vec<&str> =
        messages.body["data"].as_array().unwrap().iter().map(|it| it["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["first question", "One.", "second question", "Two."]);
    assert_eq!(messages.body["data"][1]["state"], "completed");

    let renamed = client.send("POST", "/threads/a", Some(json!({ "title": "The fence" }))).await;
    assert_eq!(renamed.body["title"], "The fence");
    for title in [json!(""), json!(7), json!("x".repeat(300)), json!("a\nb")] {
        let refused = client.send("POST", "/threads/a", Some(json!({ "title": title }))).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("title")));
    }
    let exported = client.send("GET", "/threads/a/export", None).await;
    assert_eq!(exported.body["messages"].as_array().unwrap().len(), 4);
    let markdown = client.send("GET", "/threads/a/export?format=markdown", None).await;
    let markdown = markdown.body.as_str().unwrap();
    assert!(markdown.starts_with("# The fence\n\n## User\n\nfirst question\n"), "{markdown}");
    assert_eq!(client.send("GET", "/threads/a/export?format=pdf", None).await.status, 400);

    let deleted = client.send("DELETE", "/threads/a", None).await;
    assert_eq!((deleted.status, &deleted.body["deleted"]), (200, &json!(true)));
    assert_eq!(client.send("GET", "/threads/a", None).await.code(), "thread_not_found");
    assert_eq!(client.send("DELETE", "/threads/a", None).await.code(), "thread_not_found");
}

#[tokio::test]
async fn deleting_a_thread_stops_its_work() {
    let stage = Stage::start([Script::Hang]).await;
    let client = stage.client().with("x-cynode-thread", "a");
    let mut stream = client.stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
    assert_eq!(client.send("DELETE", "/threads/a", None).await.status, 200);
    assert_eq!(stream.read().await.error.unwrap()["code"], "cancelled");
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 0).await;
}
