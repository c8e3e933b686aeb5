//! Composes the handoff of a stored turn. Pure, so that every orchestrator composes the same.

use std::{num::NonZeroU32, time::Duration};

use contract::thread::Turn;
use subjects::{
    Chat, ChatMessage, ChatRole, Context, Continue, Handoff, HandoffId, IdError, Kind, MODEL_ID, Scope,
    Timestamp, TimestampError, Work, streams::ANSWER_RETENTION,
};

use crate::joined_text::join_redacted;

/// A question older than this is not answered but asked again: its conversation may be gone from the stream
/// before a worker reads it.
const MAX_QUESTION_AGE: Duration = ANSWER_RETENTION.saturating_sub(Duration::from_secs(24 * 3_600));

/// A stored turn that is no valid handoff.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    #[error("its user or thread is not valid")]
    Id(#[from] IdError),
    #[error("its time is not valid")]
    Time(#[from] TimestampError),
    #[error("it has no message of the user")]
    NoMessage,
}

/// Composes the handoff of a turn: a chat, or the continuation of one that asked a question.
pub(crate) fn compose(turn: &Turn) -> Result<Handoff, ComposeError> {
    let max_tokens = turn.options.max_tokens.and_then(NonZeroU32::new);
    let work = match question_of(turn) {
        Some(continues) => Work::Continue(Continue {
            // As below.
            stream: true,
            instructions: join_texts(&turn.messages, ChatRole::System),
            temperature: turn.options.temperature,
            max_tokens,
            ..Continue::new(continues, answer_of(turn)?)
        }),
        None => Work::Chat(Chat {
            model: MODEL_ID.to_owned(),
            messages: turn.messages.clone(),
            // Whether a client listens is not known here: it may join later.
            stream: true,
            temperature: turn.options.temperature,
            max_tokens,
        }),
    };
    let issued_at: Timestamp = turn.created_at.parse()?;
    Ok(Handoff {
        id: turn.handoff_id,
        issued_at,
        deadline: None,
        reply_to: None,
        scope: Scope {
            user_id: Some(turn.user_id.parse()?),
            project_id: turn.options.project_id.clone(),
            thread_id: Some(turn.thread_id.parse()?),
            ..Scope::default()
        },
        context: Context::default(),
        replays: Vec::new(),
        work,
    })
}

/// Returns the kind of the handoff of a turn.
pub(crate) fn kind_of(turn: &Turn) -> Kind {
    if question_of(turn).is_some() { Kind::Continue } else { Kind::Chat }
}

/// Returns the handoff whose question a turn answers; `None` if that is too long ago. Then the turn is a chat
/// with the whole conversation.
fn question_of(turn: &Turn) -> Option<HandoffId> {
    let continues = turn.continues?;
    let Some(asked_at) = continues.issued_at() else { return Some(continues) };
    let created_at = turn.created_at.parse::<Timestamp>().ok()?.at().unix_timestamp();
    let age = Duration::from_secs(u64::try_from(created_at).unwrap_or_default()).saturating_sub(asked_at);
    (age <= MAX_QUESTION_AGE).then_some(continues)
}

/// Returns what the user says after the question, which may be several messages.
fn answer_of(turn: &Turn) -> Result<String, ComposeError> {
    let is_question = |message: &ChatMessage| message.role == ChatRole::Assistant;
    let after = turn.messages.iter().rposition(is_question).map_or(0, |at| at + 1);
    join_texts(&turn.messages[after..], ChatRole::User).ok_or(ComposeError::NoMessage)
}

/// Joins the messages of a role; `None` if there are none.
fn join_texts(messages: &[ChatMessage], role: ChatRole) -> Option<String> {
    let texts = messages.iter().filter(|message| message.role == role);
    let texts: Vec<&str> = texts.map(|message| message.content.as_str()).collect();
    (!texts.is_empty()).then(|| join_redacted(&texts))
}

#[cfg(test)]
mod tests {
    use contract::thread::TurnOptions;
    use subjects::Encoding;

    use super::*;

    /// Issued an hour before the turn.
    const ASKED: &str = "01a1d948-f680-7000-8000-00000000beef";
    /// Issued a little more than six days before the turn.
    const ASKED_LONG_AGO: &str = "01a1ba62-ce80-7000-8000-00000000beef";

    fn message(role: ChatRole, content: &str) -> ChatMessage {
        ChatMessage { role, content: content.to_owned() }
    }

    fn turn(continues: Option<HandoffId>) -> Turn {
        Turn {
            handoff_id: "0193f2c0-5a00-7000-8000-00000000c0de".parse().unwrap(),
            thread_id: "thread-1".to_owned(),
            user_id: "alice".to_owned(),
            key_id: "key-1".to_owned(),
            position: 0,
            continues,
            messages: vec![message(ChatRole::System, "Be brief."), message(ChatRole::User, "hello")],
            options: TurnOptions { temperature: Some(0.2), max_tokens: Some(0), ..TurnOptions::default() },
            created_at: "2026-11-14T10:00:00Z".to_owned(),
            sent_at: None,
            ended_at: None,
            answer: None,
        }
    }

    /// P14: the model id of the manager is in every chat, and nothing else of the client's request.
    #[test]
    fn a_turn_becomes_a_chat_of_its_user() {
        let handoff = compose(&turn(None)).unwrap();
        assert_eq!(handoff.kind(), Kind::Chat);
        assert_eq!(handoff.scope.user_id.as_ref().map(|user| user.as_str()), Some("alice"));
        assert_eq!(handoff.scope.thread_id.as_ref().map(|thread| thread.as_str()), Some("thread-1"));
        let Work::Chat(chat) = &handoff.work else { panic!("a chat") };
        assert_eq!((chat.model.as_str(), chat.messages.len(), chat.max_tokens), (MODEL_ID, 2, None));
        let bytes = |turn: &Turn| compose(turn).unwrap().encode(Encoding::Json).unwrap();
        let sent = Turn { sent_at: Some("2026-11-14T10:00:01Z".to_owned()), ..turn(None) };
        assert_eq!(bytes(&turn(None)), bytes(&sent), "it does not depend on when it is published");
    }

    #[test]
    fn a_turn_after_a_question_continues() {
        let asked: HandoffId = ASKED.parse().unwrap();
        let mut turn = turn(Some(asked));
        turn.options.max_tokens = Some(7);
        let handoff = compose(&turn).unwrap();
        let expected = Continue {
            stream: true,
            instructions: Some("Be brief.".to_owned()),
            temperature: Some(0.2),
            max_tokens: NonZeroU32::new(7),
            ..Continue::new(asked, "hello")
        };
        assert_eq!((kind_of(&turn), handoff.work), (Kind::Continue, Work::Continue(expected)));
    }

    #[test]
    fn an_answer_is_all_that_the_user_says_after_the_question() {
        use ChatRole::{Assistant, System, User};
        let said =
            [(User, "Deploy."), (Assistant, "Where?"), (User, "Staging."), (System, "Hm."), (User, "Now.")];
        let messages = said.map(|(role, content)| message(role, content)).to_vec();
        let handoff = compose(&Turn { messages, ..turn(ASKED.parse().ok()) }).unwrap();
        let Work::Continue(answer) = handoff.work else { panic!("a continuation") };
        assert_eq!(answer.input, "Staging.\nNow.");
        assert_eq!(answer.instructions.as_deref(), Some("Hm."));
        // G11: a secret that is split over two messages.
        let messages = vec![message(User, "Password"), message(User, "hunter2")];
        let handoff = compose(&Turn { messages, ..turn(ASKED.parse().ok()) }).unwrap();
        let Work::Continue(answer) = handoff.work else { panic!("a continuation") };
        assert_eq!(answer.input, "Password\n[redacted:secret]");
    }

    #[test]
    fn a_turn_long_after_a_question_is_a_chat() {
        let late = turn(ASKED_LONG_AGO.parse().ok());
        assert_eq!(kind_of(&late), Kind::Chat);
        assert_eq!(compose(&late).unwrap().work, compose(&turn(None)).unwrap().work);
        // An id that does not tell its time.
        let unknown = ASKED.parse::<HandoffId>().unwrap().replay_id();
        assert_eq!(kind_of(&turn(Some(unknown))), Kind::Continue);
    }

    #[test]
    fn an_invalid_row_is_an_error() {
        assert!(compose(&Turn { user_id: String::new(), ..turn(None) }).is_err());
        assert!(compose(&Turn { created_at: "now".to_owned(), ..turn(None) }).is_err());
        assert!(compose(&Turn { messages: Vec::new(), ..turn(ASKED.parse().ok()) }).is_err());
    }
}
