//! Prompts that front ends make for themselves: titles, tags, follow-up questions and the like. They go to
//! the model of the chat, but are no work for a project manager: they are answered by rule, in the form that
//! each asks for, or by `chat.task_model`.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use subjects::{ChatMessage, ChatRole};

use super::{
    completion::{ChunkWriter, Completion, CompletionId, Usage},
    request::ChatRequest,
    stream::event_stream,
};
use crate::{caller::header, error::ApiError, respond};

const TASK: &str = "x-cynode-task";
/// How the prompts of Open WebUI begin.
const MARK: &str = "### Task:";
const MAX_TITLE_WORDS: usize = 6;
const MAX_TITLE_CHARS: usize = 60;

/// What a front end asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundPrompt {
    Title,
    Tags,
    FollowUps,
    Queries,
    Completion,
    ImagePrompt,
    ToolCalls,
    Emoji,
    /// One that is not known. It is answered with nothing.
    Other,
}

/// Recognizes such a prompt: by the header `X-Cynode-Task`, or else by its form.
pub(super) fn recognize(
    headers: &HeaderMap,
    request: &ChatRequest,
) -> Result<Option<BackgroundPrompt>, ApiError> {
    if let Some(task) = header(headers, TASK)? {
        return Ok(Some(by_name(task)));
    }
    let has_form = match request.messages.as_slice() {
        [only] => !request.stream && only.role == ChatRole::User && is_marked(&only.content),
        _ => false,
    };
    Ok(has_form.then(|| by_text(&request.messages[0].content)))
}

fn is_marked(text: &str) -> bool {
    text.trim_start().starts_with(MARK)
}

/// The names are those of Open WebUI.
fn by_name(task: &str) -> BackgroundPrompt {
    match task {
        "title_generation" => BackgroundPrompt::Title,
        "tags_generation" => BackgroundPrompt::Tags,
        "follow_up_generation" => BackgroundPrompt::FollowUps,
        "query_generation" => BackgroundPrompt::Queries,
        "autocomplete_generation" => BackgroundPrompt::Completion,
        "image_prompt_generation" => BackgroundPrompt::ImagePrompt,
        "function_calling" => BackgroundPrompt::ToolCalls,
        "emoji_generation" => BackgroundPrompt::Emoji,
        _ => BackgroundPrompt::Other,
    }
}

/// Finds the kind by the JSON that is asked for, since people change the words. What the chat says comes
/// after the instructions and does not count.
fn by_text(prompt: &str) -> BackgroundPrompt {
    let instructions = prompt.split("<chat_history>").next().unwrap_or(prompt);
    let asked = [
        ("\"title\"", BackgroundPrompt::Title),
        ("\"follow_ups\"", BackgroundPrompt::FollowUps),
        ("\"tags\"", BackgroundPrompt::Tags),
        ("\"queries\"", BackgroundPrompt::Queries),
        ("\"text\"", BackgroundPrompt::Completion),
        ("\"prompt\"", BackgroundPrompt::ImagePrompt),
        ("\"tool_calls\"", BackgroundPrompt::ToolCalls),
    ];
    asked
        .iter()
        .filter_map(|(key, prompt)| Some((instructions.find(key)?, *prompt)))
        .min_by_key(|(at, _)| *at)
        .map_or(BackgroundPrompt::Other, |(_, prompt)| prompt)
}

/// Answers by rule.
pub(super) fn answer(prompt: BackgroundPrompt, request: &ChatRequest) -> Response {
    let content = content(prompt, &request.messages);
    let id = CompletionId::new(&request.model);
    if !request.stream {
        let completion = Completion::text(&id, &content, "stop");
        return respond::json(StatusCode::OK, &completion).into_response();
    }
    let writer = ChunkWriter { id, include_usage: request.include_usage };
    let mut out = BytesMut::new();
    writer.role(&mut out);
    writer.content(&mut out, &content);
    writer.finish(&mut out, "stop", Usage::new(0, 0));
    event_stream(Body::from(out.freeze()))
}

fn content(prompt: BackgroundPrompt, messages: &[ChatMessage]) -> String {
    let answer: Value = match prompt {
        BackgroundPrompt::Title => json!({ "title": title(&subject(messages)) }),
        BackgroundPrompt::Tags => json!({ "tags": ["General"] }),
        BackgroundPrompt::FollowUps => json!({ "follow_ups": [] }),
        BackgroundPrompt::Queries => json!({ "queries": [] }),
        BackgroundPrompt::Completion => json!({ "text": "" }),
        BackgroundPrompt::ImagePrompt => json!({ "prompt": subject(messages) }),
        BackgroundPrompt::ToolCalls => json!({ "tool_calls": [] }),
        BackgroundPrompt::Emoji => return "💬".to_owned(),
        BackgroundPrompt::Other => json!({}),
    };
    answer.to_string()
}

/// Returns what the chat is about: the first thing that its user says in the history that the prompt quotes,
/// or what is said in the prompt itself.
fn subject(messages: &[ChatMessage]) -> String {
    let last = messages.last().map_or("", |message| message.content.as_str());
    let Some((_, history)) = last.split_once("<chat_history>") else {
        let first = messages.iter().find(|message| message.role == ChatRole::User);
        return first.map_or("", |message| message.content.as_str()).trim().to_owned();
    };
    let history = history.split("</chat_history>").next().unwrap_or(history).trim();
    let said = history.split_once("USER:").map_or(history, |(_, said)| said);
    said.split("\nASSISTANT:").next().unwrap_or(said).trim().to_owned()
}

/// Returns the first words of a text.
fn title(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let short = words.iter().take(MAX_TITLE_WORDS).copied().collect::<Vec<&str>>().join(" ");
    let short: String = short.chars().take(MAX_TITLE_CHARS).collect();
    let short = short.trim_end_matches(['.', ',', ':', ';', '!', '?', '-']).to_owned();
    match (short.is_empty(), words.len() > MAX_TITLE_WORDS) {
        (true, _) => "New chat".to_owned(),
        (false, true) => format!("{short}…"),
        (false, false) => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(stream: bool, contents: &[(ChatRole, &str)]) -> ChatRequest {
        let messages = contents
            .iter()
            .map(|(role, content)| ChatMessage { role: *role, content: (*content).to_owned() });
        ChatRequest {
            model: "cynodeai.pm".to_owned(),
            messages: messages.collect(),
            stream,
            include_usage: false,
            temperature: None,
            max_tokens: None,
            thread: None,
            project: None,
        }
    }

    fn prompt(asks: &str) -> String {
        format!(
            "### Task:\nDo it.\n### Output:\nJSON format: {asks}\n### Chat History:\n<chat_history>\nUSER: \
             Paint the old fence in the garden with blue colour\nASSISTANT: The \"queries\" are done.\n\
             </chat_history>"
        )
    }

    /// The forms are those that Open WebUI's prompts ask for.
    #[test]
    fn prompts_of_front_ends_are_recognized_by_form_and_answered_as_they_ask() {
        for (asks, expected) in [
            (r#"{ "title": "your concise title here" }"#, r#"{"title":"Paint the old fence in the…"}"#),
            (r#"{ "tags": ["tag1", "tag2"] }"#, r#"{"tags":["General"]}"#),
            (r#"{ "follow_ups": ["Question 1?"] }"#, r#"{"follow_ups":[]}"#),
            (r#"{ "queries": ["query1"] }"#, r#"{"queries":[]}"#),
            (r#"`{ "text": "<your_completion>" }`"#, r#"{"text":""}"#),
            (r#"{ "unheard": "of" }"#, "{}"),
        ] {
            let request = request(false, &[(ChatRole::User, &prompt(asks))]);
            let recognized = recognize(&HeaderMap::new(), &request).unwrap().expect(asks);
            assert_eq!(content(recognized, &request.messages), expected, "{asks}");
        }
    }

    #[test]
    fn the_header_decides_before_the_form() {
        let mut headers = HeaderMap::new();
        headers.insert(TASK, "title_generation".parse().unwrap());
        let chat = request(true, &[(ChatRole::User, "Paint the fence.")]);
        let recognized = recognize(&headers, &chat).unwrap().unwrap();
        assert_eq!(content(recognized, &chat.messages), r#"{"title":"Paint the fence"}"#);
        // Open WebUI sends an empty one for chats.
        headers.insert(TASK, "".parse().unwrap());
        assert_eq!(recognize(&headers, &chat).unwrap(), None);
    }

    #[test]
    fn chats_are_not_taken_for_prompts_of_front_ends() {
        let none = HeaderMap::new();
        let marked = prompt("{ \"title\": \"\" }");
        for chat in [
            request(false, &[(ChatRole::User, "What does ### Task: mean?")]),
            request(true, &[(ChatRole::User, &marked)]),
            request(false, &[(ChatRole::System, "Be brief."), (ChatRole::User, &marked)]),
        ] {
            assert_eq!(recognize(&none, &chat).unwrap(), None, "{chat:?}");
        }
    }

    #[test]
    fn titles_are_short() {
        assert_eq!(title(""), "New chat");
        assert_eq!(title("\n\nHello!"), "Hello");
        assert!(title(&"x".repeat(500)).chars().count() <= MAX_TITLE_CHARS);
    }
}
