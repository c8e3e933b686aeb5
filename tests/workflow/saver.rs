//! LangGraph's conformance suite for savers, `langgraph-checkpoint-conformance`, on the real gateway.

use crate::{pytest, stage::Stage};

const TEST: &str = "test_saver.py::test_saver_conforms_on_a_real_gateway";

#[tokio::test]
async fn saver_of_the_workflow_runner_conforms_on_sqlite() {
    pytest::run(&Stage::start().await, TEST, &[]).await;
}

#[tokio::test]
async fn saver_of_the_workflow_runner_conforms_on_postgres() {
    pytest::run(&Stage::on_postgres().await, TEST, &[]).await;
}
