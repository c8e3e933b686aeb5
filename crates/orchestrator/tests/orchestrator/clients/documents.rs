//! The examples of docs/chat-api.md, as they stand there.

use std::fs;

use testkit::workspace;

use super::{ANSWER, ClientStage, Language};

/// Returns the blocks of a language in the guide.
fn examples(fence: &str) -> Vec<String> {
    let guide = fs::read_to_string(workspace().join("docs/chat-api.md")).unwrap();
    let opening = format!("```{fence}\n");
    guide
        .split(&opening)
        .skip(1)
        .filter_map(|after| Some(after.split_once("\n```")?.0.to_owned()))
        // Others start the orchestrator.
        .filter(|block| block.contains("cynodeai.pm"))
        .collect()
}

/// Runs all examples of a language: each prints the answer of the project manager.
async fn assert_examples_work(fence: &str, language: Language, file: &str, count: usize) {
    let clients = ClientStage::start().await;
    let url = clients.stage.orchestrator.url();
    let examples = examples(fence);
    assert_eq!(examples.len(), count, "{examples:#?}");
    // In JSON, the answer is escaped.
    let in_json = serde_json::to_string(ANSWER).unwrap();
    for example in examples {
        let text = example.replace("http://127.0.0.1:8780/v1", &url);
        assert!(text.contains(&url), "{example}");
        let printed = clients.run_text(language, file, &text, &[]).await;
        assert!(printed.contains(ANSWER) || printed.contains(&in_json), "{example}\n{printed}");
    }
}

#[tokio::test]
async fn the_documented_examples_of_a_curl_client_work() {
    assert_examples_work("sh", Language::Shell, "example.sh", 1).await;
}

#[tokio::test]
async fn the_documented_examples_of_a_python_client_work() {
    assert_examples_work("python", Language::Python, "example.py", 2).await;
}

#[tokio::test]
async fn the_documented_examples_of_a_node_client_work() {
    assert_examples_work("js", Language::Node, "example.mjs", 2).await;
}
