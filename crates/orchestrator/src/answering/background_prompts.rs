//! Prompts that front ends make for themselves: titles, tags, follow-up questions and the like. They go to
//! the model of the chat, but are no work for a project manager: they are answered by rule, in the form that
//! each asks for, or by `chat.task_model`.

use http::HeaderMap;
use serde_json::{Value, json};
use subjects::{ChatMessage, ChatRole};

use super::ask::THREAD;
use crate::{caller::header, error::ApiError};

const TASK: &str = "x-cynode-task";
/// How the prompts of Open WebUI begin.
const MARK: &str = "### Task:";
/// How its prompt begins with which it lets a model choose tools that it cannot call by itself, …
const TOOLS_MARK: &str = "Available Tools: ";
/// … how it goes on, whatever the tools are, …
const TOOLS_TASK: &str = "Your task is to choose and return the correct tool(s) from the list of available \
    tools based on the query. Follow these guidelines:";
/// … and how the message of the user in it begins.
const TOOLS_QUERY: &str = "Query: ";
const MAX_TITLE_WORDS: usize = 6;
const MAX_TITLE_CHARS: usize = 60;

/// The kind of text that a front end asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundPrompt {
    Title,
    Tags,
    FollowUps,
    Queries,
    Completion,
    ImagePrompt,
    ToolCalls,
    Emoji,
    /// An unknown one. It gets an empty answer.
    Other,
}

/// How a request came, which tells prompts of front ends from chats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) is_stream: bool,
    /// Whether it may be a choice of tools: Open WebUI asks for one with a chat completion, and names no
    /// thread.
    pub(crate) may_choose_tools: bool,
}

/// Recognizes such a prompt: by the header `X-Cynode-Task`, or else by its form.
pub(crate) fn recognize(
    headers: &HeaderMap,
    messages: &[ChatMessage],
    form: Form,
) -> Result<Option<BackgroundPrompt>, ApiError> {
    if let Some(task) = header(headers, TASK)? {
        return Ok(Some(by_name(task)));
    }
    let found = if form.is_stream { None } else { by_form(messages) };
    let names_thread = headers.contains_key(THREAD);
    let may_choose_tools = form.may_choose_tools && !names_thread;
    // A prompt of one message is marked as a task.
    Ok(found.filter(|_| may_choose_tools || messages.len() == 1))
}

fn by_form(messages: &[ChatMessage]) -> Option<BackgroundPrompt> {
    let begins = |message: &ChatMessage, mark| message.content.trim_start().starts_with(mark);
    match messages {
        [only] if only.role == ChatRole::User && begins(only, MARK) => Some(by_text(&only.content)),
        [first, query]
            if first.role == ChatRole::System
                && begins(first, TOOLS_MARK)
                && first.content.contains(TOOLS_TASK)
                && query.role == ChatRole::User
                && begins(query, TOOLS_QUERY) =>
        {
            Some(BackgroundPrompt::ToolCalls)
        }
        _ => None,
    }
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
pub(crate) fn answer(prompt: BackgroundPrompt, messages: &[ChatMessage]) -> String {
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

    const PLAIN: Form = Form { is_stream: false, may_choose_tools: true };
    const STREAM: Form = Form { is_stream: true, ..PLAIN };

    fn messages(contents: &[(ChatRole, &str)]) -> Vec<ChatMessage> {
        let message =
            |(role, content): &(ChatRole, &str)| ChatMessage { role: *role, content: (*content).to_owned() };
        contents.iter().map(message).collect()
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
            let messages = messages(&[(ChatRole::User, &prompt(asks))]);
            let recognized = recognize(&HeaderMap::new(), &messages, PLAIN).unwrap().expect(asks);
            assert_eq!(answer(recognized, &messages), expected, "{asks}");
        }
    }

    #[test]
    fn the_header_decides_before_the_form() {
        let mut headers = HeaderMap::new();
        headers.insert(TASK, "title_generation".parse().unwrap());
        let chat = messages(&[(ChatRole::User, "Paint the fence.")]);
        let recognized = recognize(&headers, &chat, STREAM).unwrap().unwrap();
        assert_eq!(answer(recognized, &chat), r#"{"title":"Paint the fence"}"#);
        // Open WebUI sends an empty one for chats.
        headers.insert(TASK, "".parse().unwrap());
        assert_eq!(recognize(&headers, &chat, STREAM).unwrap(), None);
    }

    #[test]
    fn chats_are_not_taken_for_prompts_of_front_ends() {
        let none = HeaderMap::new();
        let marked = prompt("{ \"title\": \"\" }");
        for (is_stream, chat) in [
            (false, messages(&[(ChatRole::User, "What does ### Task: mean?")])),
            (true, messages(&[(ChatRole::User, &marked)])),
            (false, messages(&[(ChatRole::System, "Be brief."), (ChatRole::User, &marked)])),
        ] {
            let form = if is_stream { STREAM } else { PLAIN };
            assert_eq!(recognize(&none, &chat, form).unwrap(), None, "{chat:?}");
        }
    }

    #[test]
    fn only_open_webuis_choice_of_tools_is_one() {
        let system = format!("{TOOLS_MARK}[{{\"name\": \"hammer\"}}]\n\n{TOOLS_TASK}\n\n- Return only JSON.");
        let choice = messages(&[(ChatRole::System, &system), (ChatRole::User, "Query: Paint the fence.")]);
        let none = HeaderMap::new();
        assert_eq!(recognize(&none, &choice, PLAIN).unwrap(), Some(BackgroundPrompt::ToolCalls));
        let mut named = HeaderMap::new();
        named.insert(THREAD, "fence".parse().unwrap());
        assert_eq!(recognize(&named, &choice, PLAIN).unwrap(), None);
        let other = Form { may_choose_tools: false, ..PLAIN };
        assert_eq!(recognize(&none, &choice, other).unwrap(), None);
        let hammer = (ChatRole::System, "Available Tools: hammer, saw. Be brief.");
        for chat in [
            messages(&[hammer, (ChatRole::User, "Query: Paint the fence.")]),
            messages(&[(ChatRole::System, &system), (ChatRole::User, "Paint the fence.")]),
        ] {
            assert_eq!(recognize(&none, &chat, PLAIN).unwrap(), None, "{chat:?}");
        }
    }

    #[test]
    fn titles_are_short() {
        assert_eq!(title(""), "New chat");
        assert_eq!(title("\n\nHello!"), "Hello");
        assert!(title(&"x".repeat(500)).chars().count() <= MAX_TITLE_CHARS);
    }
}
