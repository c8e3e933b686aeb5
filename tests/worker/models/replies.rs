//! Replies that say nothing, and servers that refuse what was not meant.

use serde_json::{Value, json};
use subjects::{Act, Completion, ErrorCode, FinishReason, Status, StepOutcome};
use testkit::{Model, ModelRequest, Script};

use super::{Stage, content, details};

/// A server that works and a model that says nothing: it is asked again, and the server does not count as
/// away.
#[tokio::test]
async fn empty_reply_is_asked_for_again() {
    let stage = Stage::native([Script::say(" \n"), Script::say("Hello.")]).await;
    let answer = stage.ask("Hello").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Hello."));
    assert!(details(&answer).contains("was empty"), "{:?}", answer.trace.steps);
    assert_eq!(answer.usage.prompt_tokens, 200, "both replies are paid for");

    let mute = Stage::native([Script::say("<think>Well.</think>")]).await;
    let answer = mute.ask("Hello").await;
    assert_eq!((answer.status, mute.model.asked().len()), (Status::Failed, 2), "{answer:?}");
    assert_ne!(answer.error.as_ref().unwrap().code, ErrorCode::InferenceUnavailable, "{answer:?}");
}

/// A model that thinks until its limit is told so.
#[tokio::test]
async fn reply_without_an_answer_before_the_limit_is_asked_for_again() {
    let turns = [Script::TooLong("<think>Let me see, and see".to_owned()), Script::say("Hello.")];
    let stage = Stage::native(turns).await;
    assert_eq!(content(&stage.ask("Hello").await), "Hello.");
    let second = stage.model.turns().pop().unwrap();
    let told = second.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("cut off"), "{told}");
}

/// The half of an answer is one only if the model cannot do better.
#[tokio::test]
async fn broken_answer_is_asked_for_again() {
    let model = Model::start_answering(
        |_| Script::Hang,
        |asked: &ModelRequest| match asked.messages().iter().any(|it| it.to_string().contains("one step")) {
            false => Script::say("{\"answer\": \"It is \" and more}"),
            true => Script::Say(json!({ "answer": "It is done." }).to_string()),
        },
    )
    .await;
    let stage = Stage::around(model, |worker| worker.set("inference.tool_mode", "typed")).await;
    assert_eq!(content(&stage.ask("Hello").await), "It is done.");
}

/// A server that wants the newer name of `max_tokens` refuses only the tool that it refuses.
#[tokio::test]
async fn tools_are_tried_in_the_way_that_the_server_wants() {
    let refuse = |asked: &ModelRequest| {
        if asked.body.get("max_tokens").is_some() {
            let why = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.";
            return Script::Refuse(400, why.to_owned());
        }
        if asked.offered().contains(&"db__task__list") {
            return Script::Refuse(400, "Invalid schema for function 'db__task__list'".to_owned());
        }
        Script::say("Nothing is open.")
    };
    let stage = Stage::around(Model::start_answering(refuse, refuse).await, |worker| worker).await;
    let answer = stage.ask("List the tasks").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Nothing is open."), "{answer:?}");
    assert!(details(&answer).contains("db__task__list"), "{:?}", answer.trace.steps);
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }).to_string()
}

fn call_of(arguments: &str) -> Value {
    let function = json!({ "name": "db__task__create", "arguments": arguments });
    json!({ "content": "I create it.", "tool_calls": [{ "index": 0, "id": "c1", "function": function }] })
}

/// A call that a reply ends with for this reason.
fn ending_call(arguments: &str, finish: &str) -> Script {
    Script::Raw(vec![event(&call_of(arguments), None), event(&json!({}), Some(finish))])
}

fn refused_calls(answer: &Completion) -> usize {
    let is_refused = |step: &&subjects::Step| {
        (step.act, step.outcome, step.name.as_str()) == (Act::Tool, StepOutcome::Failed, "db__task__create")
    };
    answer.trace.steps.iter().filter(is_refused).count()
}

/// A typed model that says these texts.
async fn saying(texts: &'static [&'static str]) -> Stage {
    let steps = std::sync::Mutex::new(texts.iter());
    let next = move |_: &ModelRequest| {
        let mut steps = steps.lock().unwrap();
        let text = steps.next().copied().unwrap_or(texts[texts.len() - 1]);
        Script::say(text)
    };
    let model = Model::start_answering(|_| Script::Hang, next).await;
    Stage::around(model, |worker| worker.set("inference.tool_mode", "typed")).await
}

/// A server that reports the usage in every event reports it also before the reply is whole.
#[tokio::test]
async fn usage_beside_a_choice_does_not_end_a_reply() {
    let mut half: Value = serde_json::from_str(&event(&call_of("{\"name\":\"half\"}"), None)).unwrap();
    half["usage"] = json!({ "prompt_tokens": 5, "completion_tokens": 1 });
    let unended = Script::Closed(vec![half.to_string()]);
    let stage = Stage::native([unended, Script::say("Nothing was done.")]).await;
    let answer = stage.ask("Create a task called half").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Nothing was done."), "{answer:?}");
    assert!(stage.names_of_tasks().await.is_empty());
}

/// What is lost after the finish reason is not worth another reply. An error of the server is.
#[tokio::test]
async fn complete_reply_is_taken_however_its_stream_ends() {
    let whole = |more: &[String]| {
        let said = event(&json!({ "content": "Hello." }), None);
        let mut events = vec![said, event(&json!({}), Some("stop"))];
        events.extend_from_slice(more);
        events
    };
    let unreadable = whole(&["no JSON".to_owned()]);
    for turn in [Script::Broken(whole(&[])), Script::Stalled(whole(&[])), Script::Raw(unreadable)] {
        let stage = Stage::native([turn.clone()]).await;
        let answer = stage.ask("Hello").await;
        assert_eq!((answer.status, content(&answer)), (Status::Completed, "Hello."), "{answer:?}");
        assert_eq!(stage.model.asked().len(), 1, "{turn:?}");
    }
    let failed = whole(&[json!({ "error": { "message": "out of memory" } }).to_string()]);
    let stage = Stage::native([Script::Raw(failed), Script::say("Hello again.")]).await;
    assert_eq!(content(&stage.ask("Hello").await), "Hello again.");
}

/// What a provider filtered is no answer, and its calls are not made.
#[tokio::test]
async fn filtered_reply_fails_with_its_own_words() {
    let stage = Stage::native([ending_call("{\"name\":\"filtered\"}", "content_filter")]).await;
    let answer = stage.ask("Create a task called filtered").await;
    let error = answer.error.as_ref().expect("it failed");
    assert_eq!((answer.status, error.code), (Status::Failed, ErrorCode::InferenceFailed), "{answer:?}");
    assert!(error.message.contains("filter ended it"), "{error:?}");
    assert!(answer.message.is_none() && stage.names_of_tasks().await.is_empty());
    assert_eq!(stage.model.asked().len(), 1, "the same request would be filtered again");
}

/// A reply that an error of the server ended is asked for again.
#[tokio::test]
async fn reply_that_ended_with_an_error_is_asked_for_again() {
    let turns = [ending_call("{\"name\":\"broken\"}", "error"), Script::say("Nothing was done.")];
    let stage = Stage::native(turns).await;
    assert_eq!(content(&stage.ask("Create a task").await), "Nothing was done.");
    assert!(stage.names_of_tasks().await.is_empty());
}

/// The calls of a reply that is cut off in one are not made, but in the trace. The model is asked again.
#[tokio::test]
async fn call_that_is_cut_off_is_asked_for_again() {
    let cut = || ending_call("{\"name\":\"water-pl", "length");
    let whole = Script::call("db__task__create", &json!({ "name": "water-plants" }));
    let stage = Stage::native([cut(), whole, Script::say("`water-plants` is there.")]).await;
    let answer = stage.ask("Create a task called water-plants").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "`water-plants` is there."));
    assert_eq!((refused_calls(&answer), stage.names_of_tasks().await.len()), (1, 1), "{answer:?}");
    assert!(details(&answer).contains("cut off in its calls"), "{:?}", answer.trace.steps);
    let second = &stage.model.turns()[1];
    let told = second.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("nothing was called") && told.contains("called water-plants"), "{told}");

    let stage = Stage::native([cut()]).await;
    let answer = stage.ask("Create a task called water-plants").await;
    let error = answer.error.as_ref().expect("it failed");
    assert_eq!((answer.status, refused_calls(&answer)), (Status::Failed, 2), "{answer:?}");
    assert!(error.message.contains("cut off, twice; raise `max_tokens`"), "{error:?}");
}

/// An answer that is cut off says so, whatever the server says.
#[tokio::test]
async fn half_of_a_typed_answer_is_not_called_whole() {
    let stage = saying(&["{\"answer\": \"The list has three items: one, tw"]).await;
    let answer = stage.ask("What is on the list?").await;
    assert_eq!((answer.status, answer.finish_reason), (Status::Completed, FinishReason::Length));
    assert_eq!(content(&answer), "The list has three items: one, tw");
}

/// An answer that a sentence quotes may be what the model does not want to say.
#[tokio::test]
async fn quoted_answer_is_not_the_answer() {
    const QUOTED: &str = "I cannot do this because {\"answer\": \"it was done\"} would be a lie.";
    let stage = saying(&[QUOTED, "{\"answer\": \"I cannot do this.\"}"]).await;
    assert_eq!(content(&stage.ask("Do it").await), "I cannot do this.");
    assert_eq!(content(&saying(&[QUOTED]).await.ask("Do it").await), QUOTED, "a plain text in the end");
}

/// What stands beside an answer is not lost: the model says which of them it means.
#[tokio::test]
async fn answer_with_something_beside_it_is_asked_for_again() {
    const CREATE: &str = r#"{"tool": "db__task__create", "arguments": {"name": "a-b"}}"#;
    let stage = saying(&[
        r#"{"answer": "I do it now."} {"tool": "db__task__create", "arguments": {"name": "a-b"}}"#,
        CREATE,
        r#"{"answer": "`a-b` is there."}"#,
    ])
    .await;
    let answer = stage.ask("Create a task called a-b").await;
    assert_eq!((content(&answer), stage.names_of_tasks().await), ("`a-b` is there.", vec!["a-b".to_owned()]));

    const BOTH: &str = r#"{"answer": "It is all finished.", "ask": "Which task?"}"#;
    let stage = saying(&[BOTH, r#"{"ask": "Which task?"}"#]).await;
    let answer = stage.ask("Close the task").await;
    assert_eq!((answer.status, content(&answer)), (Status::NeedsClarification, "Which task?"));
    let answer = saying(&[BOTH]).await.ask("Close the task").await;
    assert_eq!(answer.status, Status::Failed, "{answer:?}");
}
