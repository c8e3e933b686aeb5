//! A runner that is killed before or after any of its calls, on the real gateway.

use std::{collections::BTreeMap, env};

use serde_json::json;
use testkit::{Model, ModelRequest, Script, typical};

use crate::{pytest, stage::Stage};

const TEST: &str = "test_kills_on_gateway.py::test_kill_at_any_call_changes_nothing_on_a_real_gateway";
/// Kills in `make test`, spread evenly over all calls. `WORKFLOW_KILLS=all` kills before and after each.
const KILLS: &str = "20";
/// How often a model is asked in one workflow: for the plan, for the manager's own step, and about the two
/// steps with a criterion.
const TURNS: [(&str, usize); 4] = [("judgement", 2), ("review", 2), ("steps", 1), ("turn", 1)];

/// Each time the workflow ends as that of a runner that was not killed, with the same jobs and handoffs, and
/// no model turn is asked for twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_runner_killed_at_any_call_changes_nothing_and_no_turn_is_paid_twice() {
    let stage = Stage::start().await;
    let model = Model::start_answering(|_| Script::say("It was published in 212 s."), answer).await;
    // The model is asked again only by a worker that was killed, and none is.
    let (manager, analyst) = (stage.manager_worker().await, stage.analyst_worker().await);
    let [manager, analyst] = [manager, analyst].map(|worker| {
        let worker = worker.asking(&model).set("inference.timeout", "60s").set("agent.assess_input", "false");
        worker.set("worker.ack_wait", "60s")
    });
    let node = stage.node("node-1").await.set("node.ack_wait", "60s");
    let (_manager, _analyst) = (manager.start().await, analyst.start().await);
    let _node = node.start().await;

    let kills = env::var("WORKFLOW_KILLS").unwrap_or_else(|_| KILLS.to_owned());
    let variables = [("WORKFLOW_KILLS", kills), ("CYNODE_PLANS", "true".to_owned())];
    let said = pytest::run(&stage, TEST, &variables).await;
    println!("{said}");
    let workflows = said.lines().find_map(|line| line.strip_prefix("workflows: ")?.parse::<usize>().ok());
    let workflows = workflows.unwrap_or_else(|| panic!("no number of workflows: {said}"));

    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for request in model.asked() {
        *asked.entry(request.form().unwrap_or("turn").to_owned()).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> =
        TURNS.iter().map(|(form, times)| ((*form).to_owned(), times * workflows)).collect();
    assert_eq!(asked, expected, "turns in {workflows} workflows");
}

/// Plans the steps that the test in Python names, and lets every result pass.
fn answer(asked: &ModelRequest) -> Script {
    let form = asked.form().unwrap_or_default();
    let step = |name: &str, kind: &str, script: Option<&str>, after: &[&str]| {
        json!({
            "name": name, "description": "Publish the pages.", "kind": kind, "script": script, "files": [],
            "outputs": [], "network": [], "seconds": null, "criteria": [], "depends_on": after,
            "needs_approval": false,
        })
    };
    if form == "steps" {
        let published = "echo made > a.txt; echo published in 212 s";
        let mut steps = [
            step("a", "job", Some(published), &[]),
            step("b", "job", Some("echo made > b.txt; echo b"), &[]),
            step("c", "manager", None, &["a", "b"]),
            step("d", "job", Some("cat a.txt > d.txt; cat b.txt"), &["c"]),
        ];
        // Without names a job leaves all files that it finds, also those of others that ended before it.
        for (at, file) in [(0, "a.txt"), (1, "b.txt"), (3, "d.txt")] {
            steps[at]["outputs"] = json!([file]);
        }
        steps[0]["criteria"] = json!(["It was published"]);
        steps[2]["criteria"] = json!(["It was published"]);
        steps[3]["needs_approval"] = json!(true);
        let plan = json!({ "summary": "Publish, then look.", "steps": steps, "question": null });
        return Script::Say(plan.to_string());
    }
    Script::Say(typical(form).to_string())
}
