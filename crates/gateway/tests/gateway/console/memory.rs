//! Memories in the console, and as agents find them.

use serde_json::{Value, json};

use super::support::{Agent, Gateway};

const EVIL: &str = "<script>alert(1)</script> zebra stripes";

async fn call(agent: &Agent, tool: &str, arguments: Value) -> Value {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let reply = agent.call_with(tool, arguments).await.unwrap();
    assert!(!reply.is_error, "{}", reply.text);
    reply.structured.unwrap()
}

/// What an agent keeps is listed, found, shown and deleted in the console; markup in it stays text.
#[tokio::test]
async fn memories_are_searched_shown_and_deleted() {
    let gateway = Gateway::start().await;
    let admin = gateway.administrator().await;
    let agent = gateway.agent(&admin.issue_manager().await);
    let empty = admin.get("/console/memory").await;
    assert!(empty.shows("No memories yet.") && empty.shows("cynodectl memory ingest"), "{}", empty.body);

    let kept = json!({ "path": "animals/zebra.md", "text": EVIL, "tags": ["africa"] });
    let kept = call(&agent, "memory.put", kept).await;
    let profile = kept["profile"].as_str().expect("a profile").to_owned();
    call(&agent, "memory.put", json!({ "path": "plants/oak.md", "text": "An oak is a tree." })).await;

    assert!(admin.get("/console/memory").await.shows(&profile), "its profile");
    let page = format!("/console/memory?profile={profile}");
    let listed = admin.get(&page).await;
    for text in ["animals/zebra.md", "plants/oak.md", "africa"] {
        assert!(listed.shows(text), "{text}: {}", listed.body);
    }
    let under = admin.get(&format!("{page}&prefix=plants/")).await;
    assert!(under.shows("plants/oak.md") && !under.shows("animals/zebra.md"), "{}", under.body);
    let found = admin.get(&format!("{page}&query=zebras")).await;
    assert!(found.shows("animals/zebra.md") && found.shows("zebra stripes"), "{}", found.body);
    assert!(!found.body.contains("<script>alert"), "{}", found.body);
    let elsewhere = admin.get(&format!("{page}&query=zebras&prefix=plants/")).await;
    assert!(!elsewhere.shows("animals/zebra.md"), "{}", elsewhere.body);
    assert!(admin.get(&format!("{page}&query=quixotic")).await.shows("Nothing was found."));

    let text = format!("/console/memory/text?profile={profile}&path=animals/zebra.md");
    let shown = admin.get(&text).await;
    assert!(shown.shows("Lines 1 to 1") && shown.shows("zebra stripes"), "{}", shown.body);
    assert!(!shown.body.contains("<script>alert"), "{}", shown.body);

    let fields = [("profile", profile.as_str()), ("path", "animals/zebra.md")];
    let deleted = admin.post("/console/memory/delete", &fields).await;
    assert_eq!((deleted.status, deleted.header("location")), (303, Some(&*page)), "{}", deleted.body);
    assert_eq!(admin.get(&text).await.status, 404);
    let searched = call(&agent, "memory.search", json!({ "query": "zebra" })).await;
    let paths: Vec<&Value> = searched["memories"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert!(!paths.contains(&&json!("animals/zebra.md")), "{searched}");
    assert!(admin.get("/console/memory?profile=No%20Such").await.status >= 400, "no name of a profile");
}
