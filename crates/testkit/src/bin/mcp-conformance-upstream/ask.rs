//! Tools that require input before they answer.

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
        InputRequiredResult,
    },
};
use serde_json::{Map, Value, json};

/// The input that a tool requests in one round, and the state that the next request must carry.
struct Round {
    questions: Vec<(&'static str, Value)>,
    /// A constant, so that a tampered state is detected.
    state: Option<&'static str>,
}

type Response = Result<CallToolResponse, ErrorData>;

/// Returns the answer of a tool that requires input, or `None` for other tools.
pub(crate) fn answer(
    request: &CallToolRequestParams,
    client: Option<&ClientCapabilities>,
) -> Option<Response> {
    let one = |key, question| vec![Round { questions: vec![(key, question)], state: None }];
    let held = |state, questions| Round { questions, state: Some(state) };
    let rounds = match request.name.as_ref() {
        "test_missing_capability" => return Some(needs_sampling(client)),
        "test_input_required_result_capabilities" => one("greeting", model("Say hello")),
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            one("user_name", user("What is your name?", "name", "string"))
        }
        "test_input_required_result_sampling" => {
            one("capital_question", model("What is the capital of France?"))
        }
        "test_input_required_result_list_roots" => one("client_roots", roots()),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            vec![held("confirmation", vec![("confirm", user("Please confirm", "ok", "boolean"))])]
        }
        "test_input_required_result_multiple_inputs" => vec![held(
            "everything",
            vec![
                ("user_name", user("What is your name?", "name", "string")),
                ("greeting", model("Generate a greeting")),
                ("client_roots", roots()),
            ],
        )],
        "test_input_required_result_multi_round" => vec![
            held("first", vec![("step1", user("Step 1: What is your name?", "name", "string"))]),
            held("second", vec![("step2", user("Step 2: What is your favorite color?", "color", "string"))]),
        ],
        _ => return None,
    };
    Some(next(request, &rounds))
}

/// Finds the answered round by the state and returns the next one, or the result after the last.
fn next(request: &CallToolRequestParams, rounds: &[Round]) -> Response {
    let Some(responses) = &request.input_responses else { return Ok(ask(&rounds[0])) };
    let state = request.request_state.as_deref();
    let Some(at) = rounds.iter().position(|round| round.state == state) else {
        return Err(ErrorData::invalid_params("this state is not one of ours", None));
    };
    let answered = |(key, _): &(&str, Value)| responses.get(*key).is_some_and(Value::is_object);
    if !rounds[at].questions.iter().all(answered) {
        return Ok(ask(&rounds[at]));
    }
    match rounds.get(at + 1) {
        Some(round) => Ok(ask(round)),
        None => Ok(done(&format!("state-ok: {}", json!(responses)))),
    }
}

fn ask(round: &Round) -> CallToolResponse {
    let questions: Map<_, _> =
        round.questions.iter().map(|(key, question)| ((*key).to_owned(), question.clone())).collect();
    let mut result = json!({"resultType": "input_required", "inputRequests": questions});
    if let Some(state) = round.state {
        result["requestState"] = json!(state);
    }
    serde_json::from_value::<InputRequiredResult>(result).expect("questions").into()
}

fn done(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

fn needs_sampling(client: Option<&ClientCapabilities>) -> Response {
    if client.is_some_and(|client| client.sampling.is_some()) {
        return Ok(done("The client can ask a model."));
    }
    let required = serde_json::from_value(json!({"sampling": {}})).expect("capabilities");
    Err(ErrorData::missing_required_client_capability(required))
}

fn user(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn model(text: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}
