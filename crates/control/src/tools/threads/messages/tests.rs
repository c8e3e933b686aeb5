use contract::thread::AnswerState;

use super::*;

fn say(text: &str) -> Vec<ChatMessage> {
    let message = |line: &str| {
        let (role, content) = line.split_once(':').expect("role:content");
        let role = match role {
            "s" => ChatRole::System,
            "u" => ChatRole::User,
            _ => ChatRole::Assistant,
        };
        ChatMessage { role, content: content.to_owned() }
    };
    text.split_whitespace().map(message).collect()
}

fn answer(text: &str) -> TurnAnswer {
    TurnAnswer {
        state: AnswerState::Completed,
        text: text.to_owned(),
        error_code: None,
        is_cut: false,
        prompt_tokens: 0,
        completion_tokens: 0,
    }
}

#[test]
fn size_is_that_of_the_json() {
    for content in ["", "plain", "é日🦀", "\"quoted\" \\ \n\r\t\u{8}\u{c}", "\0\u{1}\u{1f}\u{7f}\u{2028}"]
    {
        for role in [ChatRole::User, ChatRole::Assistant, ChatRole::System] {
            let message = ChatMessage { role, content: content.to_owned() };
            let json = serde_json::to_string(&message).unwrap().len() + ",".len();
            assert!((json..=json + 5).contains(&message_size(&message)), "{content:?}: {json}");
        }
    }
}

#[test]
fn the_last_message_must_be_the_users() {
    assert!(checked(say("s:a u:b")).is_ok());
    for wrong in ["", "u:a a:b", "u:a s:b"] {
        assert!(matches!(checked(say(wrong)), Err(ToolError::Invalid(_))), "{wrong}");
    }
}

#[test]
fn too_many_and_too_large_messages_are_refused() {
    let many = vec![say("u:a").remove(0); MAX_MESSAGES];
    assert!(checked(many.clone()).is_ok());
    assert!(checked([many, say("u:b")].concat()).is_err());
    // A control character takes six bytes as JSON.
    for (content, fits) in [("a", true), ("\u{1}", false)] {
        let message = ChatMessage { role: ChatRole::User, content: content.repeat(MAX_MESSAGES_BYTES / 2) };
        let checked = checked(vec![message]);
        assert!(checked.is_ok() == fits && !matches!(checked, Err(ToolError::Invalid(_))), "{content:?}");
    }
}

/// The orchestrator replaces secrets first; this catches one that it overlooked, and changes nothing else.
#[test]
fn overlooked_secret_is_removed_and_redacted_text_stays() {
    let secret = format!("sk-{}", "A1b2C3d4E5f6G7h8I9j0K1l2");
    let with = |content: String| vec![ChatMessage { role: ChatRole::User, content }];
    let kept = checked(with(format!("my key is {secret}, use it"))).unwrap();
    assert!(!kept[0].content.contains(&secret) && kept[0].content.contains("use it"), "{kept:?}");
    assert!(!checked_answer(answer(&secret)).text.contains(&secret));
    for text in
        ["my key is [redacted:model_key]", "password: hunter2", "let token = next();", "a:b@c.example"]
    {
        assert_eq!(checked(with(text.to_owned())).unwrap()[0].content, text);
        assert_eq!(checked_answer(answer(text)).text, text);
    }
}

#[test]
fn long_answer_is_cut_at_a_character() {
    let short = checked_answer(answer("é"));
    assert_eq!((short.text.as_str(), short.is_cut), ("é", false));
    for unit in ["é", "\n", "x"] {
        let long = checked_answer(answer(&unit.repeat(MAX_ANSWER_BYTES + 1)));
        assert!(long.is_cut && long.text.len() <= MAX_ANSWER_BYTES, "{unit:?}");
        assert!(serde_json::to_string(&long.text).unwrap().len() <= MAX_ANSWER_BYTES + 2);
    }
    let exact = checked_answer(answer(&"x".repeat(MAX_ANSWER_BYTES)));
    assert!(!exact.is_cut && exact.text.len() == MAX_ANSWER_BYTES);
}

#[test]
fn title_is_the_beginning_of_the_first_message_in_one_line() {
    let titled = |content: &str| {
        let message = ChatMessage { role: ChatRole::User, content: content.to_owned() };
        title(&[say("s:prompt"), vec![message], say("u:later")].concat())
    };
    assert_eq!(titled("  Plan\n the\t\u{7}move "), "Plan the move");
    assert_eq!(titled(&"é".repeat(200)), "é".repeat(80));
    assert_eq!(titled(" \n "), "untitled");
}

#[test]
fn hash_covers_system_and_user_messages_in_order_but_no_answers() {
    let hash = |text: &str| history_hash(&say(text));
    assert_eq!(hash("s:a u:b a:c u:d"), hash("s:a u:b u:d"));
    let different = ["", "u:b", "s:b", "u:b u:d", "u:d u:b", "u:bd", "s:a u:b u:d"];
    for (at, one) in different.iter().enumerate() {
        for other in &different[at + 1..] {
            assert_ne!(hash(one), hash(other), "{one:?} {other:?}");
        }
    }
    assert_eq!(hash_before_last(&say("s:a u:b a:c u:d")), Some(hash("s:a u:b")));
    assert_eq!(hash_before_last(&say("s:a u:b")), None);
    assert_eq!(hash_before_last(&[]), None);
}

#[test]
fn new_is_what_the_user_said_since_the_last_answer_and_turn() {
    for (request, turn_before, new) in [
        ("u:1 a:2 u:3", "u:1", 1),
        ("s:0 u:1 a:2 u:3 u:4", "u:1", 2),
        // The turn before had no answer.
        ("u:1 a:2 u:3 u:4", "u:3", 1),
        ("u:1 u:3 u:4", "s:0 u:1 u:3", 1),
        ("u:1 u:2 u:3", "u:1", 2),
        // The user repeats what they said.
        ("u:1 a:2 u:1", "u:1", 1),
        ("u:1 u:1", "u:1", 1),
        ("u:1", "", 1),
    ] {
        assert_eq!(count_of_new(&say(request), &say(turn_before)), new, "{request} after {turn_before}");
    }
}
