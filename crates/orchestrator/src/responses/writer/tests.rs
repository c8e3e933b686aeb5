use contract::thread::AnswerState;

use super::*;
use crate::{answering::Piece, responses::object::Echo};

fn content(boundary: Boundary, text: &str) -> Shown {
    Shown::Content(Piece { boundary, text: text.to_owned() })
}

fn answer(text: &str) -> TurnAnswer {
    TurnAnswer {
        state: AnswerState::Completed,
        text: text.to_owned(),
        error_code: None,
        is_cut: false,
        prompt_tokens: 3,
        completion_tokens: 4,
    }
}

/// Writes a whole stream and returns its events.
fn written(shown: &[Shown], answer: &TurnAnswer) -> Vec<Value> {
    let mut writer = ResponseWriter::new(Head::new(Echo::default()));
    let mut out = BytesMut::new();
    writer.begin(&mut out);
    for shown in shown {
        writer.show(&mut out, shown);
    }
    writer.end(&mut out, answer);
    let text = String::from_utf8(out.to_vec()).unwrap();
    let mut events = Vec::new();
    for event in text.split_terminator("\n\n") {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], events.len());
        events.push(data);
    }
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    kinds.map(|kind| kind.strip_prefix("response.").unwrap()).collect()
}

#[test]
fn text_is_one_message() {
    let shown = [content(Boundary::None, "All "), content(Boundary::None, "done.")];
    let events = written(&shown, &answer("All done."));
    assert_eq!(
        kinds(&events),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(events[6]["text"], "All done.");
    let response = &events[9]["response"];
    assert_eq!(response["output"][0]["content"][0]["text"], "All done.");
    assert_eq!(response["output"][0]["id"], events[2]["item"]["id"]);
    assert_eq!(response["usage"]["total_tokens"], 7);
}

/// Every turn of the model is a message, tool calls are reasoning, and the response has the answer alone.
#[test]
fn texts_of_other_turns_are_messages_of_their_own() {
    let shown = [
        content(Boundary::None, "Let me look."),
        Shown::Reasoning("→ db.task.list\n".to_owned()),
        Shown::Reasoning("→ db.task.get\n".to_owned()),
        content(Boundary::NextTurn, "None"),
        content(Boundary::Withdrawn, "Two."),
    ];
    let events = written(&shown, &answer("Two."));
    let done: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    let items: Vec<(&Value, &Value)> =
        done.iter().map(|event| (&event["item"]["type"], &event["item"]["status"])).collect();
    let (message, reasoning) = (json!("message"), json!("reasoning"));
    let (completed, incomplete) = (json!("completed"), json!("incomplete"));
    assert_eq!(
        items,
        [(&message, &completed), (&reasoning, &completed), (&message, &incomplete), (&message, &completed)]
    );
    let indexes: Vec<&Value> = done.iter().map(|event| &event["output_index"]).collect();
    assert_eq!(indexes, [&json!(0), &json!(1), &json!(2), &json!(3)]);
    assert_eq!(done[1]["item"]["summary"][0]["text"], "→ db.task.list\n→ db.task.get\n");
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"].as_array().unwrap().len(), 1);
    assert_eq!(last["output"][0]["content"][0]["text"], "Two.");
    assert_eq!(last["output"][0]["id"], done[3]["item"]["id"]);
}

#[test]
fn streams_end_as_their_turns_do() {
    let events = written(&[], &answer(""));
    assert_eq!(kinds(&events).last(), Some(&"completed"));
    assert!(kinds(&events).contains(&"output_item.done"), "an empty answer is a message");

    let cut = TurnAnswer { is_cut: true, ..answer("Too lo") };
    let events = written(&[content(Boundary::None, "Too lo")], &cut);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(last["response"]["status"], "incomplete");

    for (state, status, code) in
        [(AnswerState::Failed, "failed", "internal"), (AnswerState::Cancelled, "cancelled", "cancelled")]
    {
        let failed = TurnAnswer { state, ..answer("It broke.") };
        let events = written(&[content(Boundary::None, "Hel")], &failed);
        let last = events.last().unwrap();
        assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!(status)));
        assert_eq!(last["response"]["error"]["code"], code);
        assert_eq!(last["response"]["error"]["message"], "It broke.");
        assert_eq!(last["response"]["output"], json!([]));
    }
}
