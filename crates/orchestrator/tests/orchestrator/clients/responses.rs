//! Clients of `/v1/responses`.

use super::{ClientStage, Language};

#[tokio::test]
async fn responses_of_openais_sdk_as_a_python_client() {
    let clients = ClientStage::start().await;
    clients.run(Language::Python, "responses_python.py").await;
    clients.assert_asked_once();
}

#[tokio::test]
async fn responses_of_openais_sdk_and_the_ai_sdk_as_a_node_client() {
    let clients = ClientStage::start().await;
    clients.run(Language::Node, "responses_node.mjs").await;
    clients.assert_asked_once();
}
