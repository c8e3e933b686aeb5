//! OpenAI's SDKs, LangChain and the AI SDK.

use super::{ClientStage, Language};

#[tokio::test]
async fn openais_sdk_as_a_python_client() {
    let clients = ClientStage::start().await;
    clients.run(Language::Python, "openai_python.py").await;
    clients.assert_asked_once();
}

#[tokio::test]
async fn openais_sdk_as_a_node_client() {
    let clients = ClientStage::start().await;
    clients.run(Language::Node, "openai_node.mjs").await;
    clients.assert_asked_once();
}

#[tokio::test]
async fn langchain_as_a_python_client() {
    let clients = ClientStage::start().await;
    clients.run(Language::Python, "langchain_python.py").await;
    clients.assert_asked_once();
}

#[tokio::test]
async fn the_ai_sdk_as_a_node_client() {
    let clients = ClientStage::start().await;
    clients.run(Language::Node, "ai_sdk.mjs").await;
    clients.assert_asked_once();
}
