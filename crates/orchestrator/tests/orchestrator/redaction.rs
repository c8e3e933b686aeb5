//! Secrets in messages: found nowhere.

use std::{fs, path::Path};

use serde_json::json;
use testkit::{Script, chat_body};

use crate::stage::{Stage, say_and_call};

/// Assembled at run time, so that no scanner takes this file for a leak.
const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// G11: a secret that a user or a model writes is in no handoff, no store, no log and no answer.
#[tokio::test]
async fn secrets_of_users_and_models_are_found_nowhere() {
    let secret = format!("sk-{BODY}");
    let stage = Stage::start([
        say_and_call(&format!("I found {secret} and {secret} here. "), "db__task__list", &json!({})),
        Script::say(&format!("The key is {secret}, the password = {BODY} is another.")),
    ])
    .await;
    let client = stage.client().with("x-cynode-thread", "secrets");
    let mut body = chat_body(&[
        ("system", &format!("The token is ghp_{BODY}.")),
        ("user", "hello"),
        ("assistant", &format!("Use {secret}.")),
    ]);
    let (first, second) = secret.split_at(9);
    let parts = json!([{ "type": "text", "text": format!("My key: {first}") },
                       { "type": "text", "text": format!("{second} please.") }]);
    body["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": parts }));
    body["stream"] = json!(true);
    let streamed = client.open("/chat/completions", &body).await.unwrap().read().await;
    assert_eq!(
        streamed.content,
        "I found [redacted:model_key] and [redacted:model_key] here. \n\n\
         The key is [redacted:model_key], the password = [redacted:secret] is another."
    );
    assert!(!streamed.reasoning.contains(BODY), "{}", streamed.reasoning);
    let exported = client.send("GET", "/threads/secrets/export", None).await.body.to_string();
    assert!(exported.contains("My key: [redacted:model_key] please."), "{exported}");
    assert!(!exported.contains(BODY));

    let asked = serde_json::to_string(&stage.model.turns()[0].body).unwrap();
    assert!(asked.contains("[redacted:github_token]") && !asked.contains(BODY), "{asked}");
    // The worker's journal has what its own model said; what users say is nowhere.
    assert_stores_nothing_of(&stage, BODY);
}

/// G11: a line break that joins the parts of a message may make a value of the second one.
#[tokio::test]
async fn secrets_over_the_seam_of_two_parts_are_found_nowhere() {
    const PASSWORD: &str = "hunter2-Q7rT2mZx9";
    let stage = Stage::start([Script::say("One."), Script::say("Two.")]).await;
    let client = stage.client();
    let parts =
        |kind: &str| json!([{ "type": kind, "text": "Password" }, { "type": kind, "text": PASSWORD }]);
    let mut chat = chat_body(&[("user", "x")]);
    chat["messages"][0]["content"] = parts("text");
    let completion = client.send("POST", "/chat/completions", Some(chat)).await;
    let input = json!([{ "role": "user", "content": parts("input_text") }]);
    let body = json!({ "model": "cynodeai.pm", "input": input });
    let response = client.send("POST", "/responses", Some(body)).await;
    assert_eq!((completion.status, response.status), (200, 200));
    for asked in stage.model.turns() {
        let asked = asked.body.to_string();
        assert!(asked.contains("[redacted:secret]") && !asked.contains(PASSWORD), "{asked}");
    }
    assert_stores_nothing_of(&stage, PASSWORD);
}

/// Names are stored as they are, so those with a secret are refused.
#[tokio::test]
async fn names_with_a_secret_are_refused_and_not_stored() {
    let stage = Stage::start([Script::say("Hello.")]).await;
    let front_end = stage.gateway.api_key_with("webui", &[("is_front_end", json!(true))]).await.1;
    let front_end = || stage.orchestrator.client(&front_end);
    let secret = format!("sk-{BODY}");
    for (client, header) in [
        (stage.client(), "idempotency-key"),
        (stage.client(), "x-cynode-thread"),
        (stage.client(), "x-cynode-project"),
        (front_end(), "x-cynode-user"),
        (front_end(), "x-openwebui-user-id"),
        (front_end(), "x-openwebui-chat-id"),
    ] {
        let refused = client.with(header, &secret).ask("hello").await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{header}: {refused:?}");
        let text = refused.body.to_string();
        assert!(text.contains("contains a secret (model_key)") && !text.contains(BODY), "{text}");
    }
    for field in ["thread_id", "project_id"] {
        let mut body = chat_body(&[("user", "hello")]);
        body["metadata"] = json!({ field: secret });
        let refused = stage.client().send("POST", "/chat/completions", Some(body)).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{refused:?}");
    }
    assert_eq!(stage.client().with("x-cynode-thread", "my thread").ask("hello").await.content(), "Hello.");
    assert_stores_nothing_of(&stage, BODY);
}

/// Checks that a text is in no log and no file of the gateway.
fn assert_stores_nothing_of(stage: &Stage, text: &str) {
    assert!(!stage.orchestrator.log().contains(text) && !stage.gateway.log().contains(text));
    let mut stored = Vec::new();
    files(stage.gateway.folder(), &mut stored);
    for file in stored {
        let bytes = fs::read(&file).unwrap_or_default();
        let needle = text.as_bytes();
        assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", file.display());
    }
}
