//! Reviews of steps: what an analyst finds and a manager decides, and the rules that hold whatever a model
//! says.

use serde_json::{Value, json};
use subjects::{
    Act, Completion, Encoding, ErrorCode, FindingsStatus, Handoff, Kind, Status, Stop, Work,
    job::End,
    workflow::{Decision, IssueSeverity, Outcome, Review, ReviewDecision},
};
use testkit::{
    Model, ModelRequest, Nats, Orchestrator, Script, Worker, WorkerBuilder, job_step, review, typical,
};

/// Returns the decision that the model makes about a step, by the step's name.
fn drafted(step: &str) -> Value {
    let issue = |severity: &str| {
        json!({ "severity": severity, "location": "Makefile:3", "problem": format!("a {severity} problem"),
            "fix": format!("the {severity} fix") })
    };
    let changed = json!({
        "name": "renamed", "description": "Publish the pages again.", "kind": "job",
        "script": "make publish RETRIES=3", "files": [], "outputs": [], "network": [], "seconds": null,
        "criteria": ["It is half published"], "depends_on": [], "needs_approval": false,
    });
    let decision = |decision: &str, issues: Value, step: Value, question: Value| {
        json!({ "decision": decision, "reasons": ["The model says so."], "issues": issues, "step": step,
            "question": question })
    };
    match step {
        "revise" | "last" => decision("revise", json!([issue("major")]), changed, Value::Null),
        "retry" => decision("retry", json!([issue("critical")]), Value::Null, Value::Null),
        "reduce" => decision("reduce_scope", json!([issue("major")]), changed, Value::Null),
        "escalate" => decision("escalate", json!([]), Value::Null, json!("Which site is meant?")),
        "blemished" => decision("revise", json!([issue("minor")]), changed, Value::Null),
        "careless" => decision("pass", json!([issue("minor"), issue("major")]), Value::Null, Value::Null),
        "overlooked" => decision("pass", json!([]), Value::Null, Value::Null),
        _ => typical("review"),
    }
}

/// The name of the step that a model is asked about.
fn step_of(asked: &ModelRequest) -> String {
    let material = asked.messages()[1]["content"].as_str().unwrap();
    let (_, rest) = material.split_once("\"name\": \"").expect("a step");
    rest.split('"').next().unwrap().to_owned()
}

fn decide(asked: &ModelRequest) -> Script {
    match asked.form() {
        Some("review") => Script::Say(drafted(&step_of(asked)).to_string()),
        form => Script::Say(typical(form.unwrap_or_default()).to_string()),
    }
}

/// The model of an analyst, which finds that `It was lost` is not met.
fn judge(asked: &ModelRequest) -> Script {
    let mut judgement = typical("judgement");
    if asked.messages().last().unwrap()["content"].as_str().unwrap().contains("It was lost") {
        judgement["verdict"] = json!("not_met");
        judgement["severity"] = json!("major");
    }
    Script::Say(judgement.to_string())
}

struct Stage {
    manager_model: Model,
    analyst_model: Model,
    orchestrator: Orchestrator,
    _workers: [Worker; 2],
    _nats: Nats,
}

impl Stage {
    async fn start() -> Self {
        Self::start_in("native").await
    }

    async fn start_in(tool_mode: &str) -> Self {
        let nats = Nats::start();
        let manager_model = Model::start_with_structured([Script::say("unused")], decide).await;
        let analyst_model = Model::start_with_structured([Script::say("unused")], judge).await;
        let with = |worker: WorkerBuilder, model: &Model| {
            worker.asking(model).set("inference.tool_mode", tool_mode).set("analysts.enabled", "true")
        };
        let workers = [
            with(Worker::manager(&nats), &manager_model).start().await,
            with(Worker::analyst(&nats), &analyst_model).start().await,
        ];
        let orchestrator = Orchestrator::connect(&nats).await;
        Self { manager_model, analyst_model, orchestrator, _workers: workers, _nats: nats }
    }

    async fn review(&self, handoff: &Handoff) -> (Completion, ReviewDecision) {
        self.orchestrator.publish(handoff).await;
        reviewed(&self.orchestrator, handoff).await
    }
}

async fn reviewed(orchestrator: &Orchestrator, handoff: &Handoff) -> (Completion, ReviewDecision) {
    let mut answer = orchestrator.completion(Kind::Review, handoff.id).await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Completed, Stop::GoalMet), "{answer:?}");
    let decision = answer.review.take().expect("a decision");
    (answer, *decision)
}

fn edit(handoff: &mut Handoff) -> &mut Review {
    let Work::Review(review) = &mut handoff.work else { panic!("a review") };
    review
}

/// A review of a step that failed with this code.
fn failed(step: &str, code: i32, iteration: u32) -> Handoff {
    let mut handoff = review("deploy", job_step(step));
    let payload = edit(&mut handoff);
    payload.result.outcome = Outcome::Failed;
    (payload.result.end, payload.result.exit_code) = (Some(End::Exited { code }), Some(code));
    payload.result.output_tail = Some("make: *** [publish] Error 2\n".to_owned());
    payload.iteration = iteration.try_into().unwrap();
    handoff
}

/// W6: an analyst verifies the result by its criteria, with the result as evidence; what it found and the
/// manager's decision are in the answer. In both encodings and both ways of asking a model.
#[tokio::test]
async fn step_that_meets_its_criteria_passes() {
    for (tool_mode, encoding) in [("native", Encoding::Json), ("typed", Encoding::MessagePack)] {
        let stage = Stage::start_in(tool_mode).await;
        let handoff = review("deploy", job_step("publish"));
        stage.orchestrator.publish_as(encoding, &handoff).await;
        let (answer, decision) = reviewed(&stage.orchestrator, &handoff).await;
        assert_eq!((decision.decision, answer.kind), (Decision::Pass, Kind::Review), "{decision:?}");
        let [verification] = &answer.verifications[..] else { panic!("{answer:?}") };
        assert_eq!(verification.status, Some(FindingsStatus::Pass), "{verification:?}");
        assert_eq!(verification.findings[0].criterion, "It was published");
        assert!(answer.message.unwrap().content.starts_with("The step `publish` passes."));
        let acts: Vec<Act> = answer.trace.steps.iter().map(|step| step.act).collect();
        assert_eq!(acts, [Act::Analyst, Act::Think]);
        let seen = stage.analyst_model.asked()[0].messages()[1]["content"].to_string();
        for evidence in ["published in 212 s", "Exit code: 0", "site/index.html"] {
            assert!(seen.contains(evidence), "{evidence}: {seen}");
        }
        let [asked] = &stage.manager_model.asked()[..] else { panic!("one turn of the manager") };
        let seen = asked.messages()[1]["content"].as_str().unwrap();
        assert!(seen.contains("> met: It was published Evidence: published in 212 s"), "{seen}");
        assert!(seen.starts_with("Review 1 of 3."), "{seen}");
        stage.orchestrator.wait_until_settled().await;
    }
}

/// O9, O10: a failure is thought about, without an analyst, who would have nothing to verify.
#[tokio::test]
async fn manager_decides_what_follows_from_a_failure() {
    let stage = Stage::start().await;
    let (answer, revised) = stage.review(&failed("revise", 2, 1)).await;
    assert_eq!(revised.decision, Decision::Revise);
    assert!(answer.verifications.is_empty() && stage.analyst_model.asked().is_empty());
    assert_eq!(
        (revised.issues[0].severity, revised.issues[0].location.as_deref()),
        (IssueSeverity::Major, Some("Makefile:3"))
    );
    let step = revised.step.unwrap();
    assert_eq!((step.name.as_str(), step.script.as_deref()), ("revise", Some("make publish RETRIES=3")));
    assert_eq!(step.criteria, ["It was published"], "a step that is revised keeps its criteria");
    assert_eq!((step.seconds, &step.outputs), (Some(60), &vec!["site/**".to_owned()]));

    let (_, retried) = stage.review(&failed("retry", 2, 1)).await;
    assert_eq!((retried.decision, retried.step), (Decision::Retry, None));

    let (_, reduced) = stage.review(&failed("reduce", 2, 3)).await;
    assert_eq!(reduced.decision, Decision::ReduceScope, "also at the last review");
    assert_eq!(reduced.step.unwrap().criteria, ["It is half published"]);

    let (answer, escalated) = stage.review(&failed("escalate", 2, 1)).await;
    assert_eq!(escalated.decision, Decision::Escalate);
    assert_eq!(escalated.question.as_deref(), Some("Which site is meant?"));
    assert!(answer.message.unwrap().content.ends_with("Which site is meant?"));

    let asked = stage.manager_model.asked();
    let prompts: Vec<bool> =
        asked.iter().map(|it| it.body.to_string().contains("This is the last review")).collect();
    assert_eq!(prompts, [false, false, true, false], "the model is told of the last review");
}

/// The rules hold whatever the model says.
#[tokio::test]
async fn model_cannot_overrule_the_rules_of_reviews() {
    let stage = Stage::start().await;
    let (_, last) = stage.review(&failed("last", 2, 3)).await;
    assert_eq!((last.decision, &last.step), (Decision::Escalate, &None), "the limit: {last:?}");
    assert!(last.question.unwrap().contains("a major problem"));

    let (_, blemished) = stage.review(&review("deploy", job_step("blemished"))).await;
    assert_eq!((blemished.decision, &blemished.step), (Decision::Pass, &None), "minor issues pass");
    assert_eq!(blemished.issues[0].severity, IssueSeverity::Minor, "and are in the answer for people");

    let (_, careless) = stage.review(&review("deploy", job_step("careless"))).await;
    assert_eq!(careless.decision, Decision::Revise, "a major issue does not pass: {careless:?}");
    let description = careless.step.unwrap().description;
    assert!(
        description.contains("the major fix") && !description.contains("minor"),
        "minor issues are withheld from the next attempt: {description}"
    );

    let mut overlooked = review("deploy", job_step("overlooked"));
    edit(&mut overlooked).criteria = vec!["It was lost".to_owned()];
    let (answer, overlooked) = stage.review(&overlooked).await;
    assert_eq!(answer.verifications[0].status, Some(FindingsStatus::Fail));
    assert_eq!(overlooked.decision, Decision::Revise, "nor does a criterion that is not met");
    assert!(overlooked.issues[0].problem.starts_with("Not met: It was lost"), "{overlooked:?}");

    let (_, passed) = stage.review(&failed("overlooked", 2, 1)).await;
    assert_eq!(passed.decision, Decision::Retry, "nor does a step that failed");
}

#[tokio::test]
async fn success_without_criteria_passes_without_a_model() {
    let stage = Stage::start().await;
    let mut handoff = review("deploy", job_step("publish"));
    edit(&mut handoff).step.criteria.clear();
    let (answer, decision) = stage.review(&handoff).await;
    assert_eq!((decision.decision, answer.usage.model_calls), (Decision::Pass, 0));
    assert!(stage.manager_model.asked().is_empty() && stage.analyst_model.asked().is_empty());

    let mut confused = review("deploy", job_step("publish"));
    confused.scope.task_id = Some("another".parse().unwrap());
    stage.orchestrator.publish(&confused).await;
    let answer = stage.orchestrator.completion(Kind::Review, confused.id).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::InvalidHandoff));
    assert_eq!(answer.review, None);
}

/// A decision that lacks what it needs is sent back once; then the worker makes the best of it.
#[tokio::test]
async fn incomplete_decision_is_sent_back_once() {
    let nats = Nats::start();
    let draft = json!({ "decision": "revise", "reasons": [], "issues": [{ "severity": "major",
        "location": null, "problem": "The upload fails.", "fix": "Upload twice." }], "step": null,
        "question": null });
    let answer = Script::Say(draft.to_string());
    let model = Model::start_with_structured([Script::say("unused")], move |_| answer.clone()).await;
    let _manager = Worker::manager(&nats).asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = failed("publish", 2, 1);
    orchestrator.publish(&handoff).await;
    let (answer, decision) = reviewed(&orchestrator, &handoff).await;
    let asked = model.asked();
    assert_eq!((asked.len(), answer.usage.model_calls), (2, 2));
    assert!(asked[1].body["messages"].to_string().contains("it has no changed step"));
    assert_eq!(decision.decision, Decision::Revise);
    assert!(decision.step.unwrap().description.contains("Fix: Upload twice."));
}

/// Without an analyst the manager decides alone and says so.
#[tokio::test]
async fn manager_decides_alone_if_no_analyst_is_there() {
    let nats = Nats::start();
    let model = Model::start_with_structured([Script::say("unused")], decide).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for (enabled, why) in [("true", "no analyst answered within 1s"), ("false", "disabled on this instance")]
    {
        let manager = Worker::manager(&nats).asking(&model).set("analysts.enabled", enabled);
        let _manager = manager.set("analysts.timeout", "1s").start().await;
        let handoff = review("deploy", job_step("publish"));
        orchestrator.publish(&handoff).await;
        let (answer, decision) = reviewed(&orchestrator, &handoff).await;
        assert_eq!(decision.decision, Decision::Pass);
        let said = decision.reasons.last().unwrap();
        assert!(said.contains(why) && said.contains("decided alone"), "{said}");
        assert_eq!(answer.verifications[0].status, None);
        let asked = model.asked().pop().unwrap();
        assert!(asked.messages()[1]["content"].as_str().unwrap().contains("> None: "), "{asked:?}");
    }
}

/// The offline model decides by rules on exit codes and criteria.
#[tokio::test]
async fn offline_model_decides_by_rules() {
    let nats = Nats::start();
    let _manager = Worker::manager(&nats).set("analysts.enabled", "true").start().await;
    let _analyst = Worker::analyst(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let decided = async |handoff: Handoff| {
        orchestrator.publish(&handoff).await;
        reviewed(&orchestrator, &handoff).await.1
    };
    assert_eq!(decided(failed("publish", 2, 1)).await.decision, Decision::Retry);
    let escalated = decided(failed("publish", 2, 3)).await;
    assert_eq!(escalated.decision, Decision::Escalate);
    assert!(escalated.question.unwrap().contains("exit code 2"));
    let about = |criterion: &str| {
        let mut handoff = review("deploy", job_step("publish"));
        edit(&mut handoff).criteria = vec![criterion.to_owned()];
        edit(&mut handoff).result.output_tail = Some("published in 212 s\nnot checked\n".to_owned());
        handoff
    };
    assert_eq!(decided(about("It was published")).await.decision, Decision::Pass, "met");
    assert_eq!(decided(about("Everybody likes it")).await.decision, Decision::Pass, "unclear");
    let revised = decided(about("It was checked")).await;
    assert_eq!(revised.decision, Decision::Revise, "not met: {revised:?}");
    let step = revised.step.unwrap();
    assert_eq!(step.script.as_deref(), Some("make publish"), "no command is made up");
    assert!(step.description.contains("Not met: It was checked"), "{step:?}");
}
