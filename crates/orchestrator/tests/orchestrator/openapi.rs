//! The OpenAPI document is what the program does.

use serde_json::{Value, json};
use testkit::{Model, Script, run, schemathesis};

use crate::stage::Stage;

/// What must hold for every response to a request, right or wrong, that schemathesis makes of the document.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      ignored_auth,use_after_free";
/// Few, but for each operation, with wrong types and edges of all parameters besides.
const MAX_EXAMPLES: &str = "3";

async fn document(stage: &Stage) -> Value {
    let url = format!("http://{}/openapi.json", stage.orchestrator.address());
    let response = reqwest::get(url).await.expect("the orchestrator answers");
    assert_eq!(response.headers()["content-type"], "application/json");
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// Every method of every path is documented, and no other is served.
#[tokio::test]
async fn served_methods_are_the_documented_ones() {
    let stage = Stage::start([Script::say("hello")]).await;
    let document = document(&stage).await;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(path) = path.strip_prefix("/v1") else { continue };
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let is_documented = operations.get(method.to_lowercase()).is_some();
            let response = stage.client().send(method, &path.replace("{id}", "none"), Some(json!({}))).await;
            assert_eq!(response.status != 405, is_documented, "{method} {path}");
        }
    }
}

/// Names what is there, since no generated id is one. What is deleted is another thread than what is read.
async fn config(stage: &Stage) -> String {
    let client = stage.client();
    let answer = client.clone().with("x-cynode-thread", "kept").ask("hello").await;
    client.clone().with("x-cynode-thread", "deleted").ask("hello").await;
    let completion = answer.body["id"].as_str().expect("an id");
    let response = completion.replace("chatcmpl-", "resp_");
    let ids = [
        ("getModel", "cynodeai.pm"),
        ("getCompletion", completion),
        ("cancelCompletion", completion),
        ("getResponse", &response),
        ("deleteResponse", &response),
        ("cancelResponse", &response),
        ("listInputItems", &response),
        ("getThread", "kept"),
        ("renameThread", "kept"),
        ("listThreadMessages", "kept"),
        ("exportThread", "kept"),
        ("deleteThread", "deleted"),
    ];
    let named = ids.map(|(operation, id)| {
        let parameters = format!("parameters = {{ \"path.id\" = \"{id}\" }}");
        format!("[[operations]]\ninclude-operation-id = \"{operation}\"\n{parameters}\n")
    });
    named.concat()
}

#[tokio::test]
async fn schemathesis_finds_no_response_that_the_document_does_not_have() {
    let model = Model::start([Script::say("Nothing is left to do.")]).await;
    let stage = Stage::start_with(model, |builder| builder.set("unauthenticated.per_second", "100000")).await;
    let config = config(&stage).await;
    let url = format!("http://{}/openapi.json", stage.orchestrator.address());
    let authorization = format!("Authorization: Bearer {}", stage.key);
    let arguments = [
        "run",
        "--no-color",
        "--checks",
        CHECKS,
        "--max-examples",
        MAX_EXAMPLES,
        "--seed",
        "1",
        "--workers",
        // Python 3.11 cannot parse in several threads at once.
        "1",
        "--phases",
        "examples,coverage,fuzzing",
        "--suppress-health-check",
        "all",
        "--header",
        &authorization,
        &url,
    ]
    .map(str::to_owned);
    let finished = tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir().expect("a folder for its files");
        std::fs::write(folder.path().join("schemathesis.toml"), config).expect("the ids can be written");
        run(&schemathesis(), folder.path(), &arguments, &[("NO_PROXY", "127.0.0.1")])
    })
    .await
    .expect("it can be run");
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    // Otherwise only refusals were held against the document.
    assert!(!finished.stdout.contains("Missing test data"), "{}", finished.stdout);
    assert!(!stage.model.turns().is_empty());
}
