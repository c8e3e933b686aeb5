//! From a stored turn to its handoff. Pure, so that every orchestrator composes the same.

use std::num::NonZeroU32;

use contract::thread::Turn;
use subjects::{
    Chat, ChatRole, Context, Continue, Handoff, IdError, Kind, MODEL_ID, Scope, Timestamp, TimestampError,
    Work,
};

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
    let work = match turn.continues {
        Some(continues) => {
            let last = turn.messages.iter().rfind(|message| message.role == ChatRole::User);
            let input = last.ok_or(ComposeError::NoMessage)?.content.clone();
            // As below.
            Work::Continue(Continue { continues, input, stream: true })
        }
        None => Work::Chat(Chat {
            model: MODEL_ID.to_owned(),
            messages: turn.messages.clone(),
            // Whether a client listens is not known here: it may join later.
            stream: true,
            temperature: turn.options.temperature,
            max_tokens: turn.options.max_tokens.and_then(NonZeroU32::new),
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
    if turn.continues.is_some() { Kind::Continue } else { Kind::Chat }
}

#[cfg(test)]
mod tests {
    use contract::thread::TurnOptions;
    use subjects::{ChatMessage, Encoding, HandoffId};

    use super::*;

    fn turn(continues: Option<HandoffId>) -> Turn {
        let message = |role, content: &str| ChatMessage { role, content: content.to_owned() };
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
        let asked = HandoffId::now();
        let handoff = compose(&turn(Some(asked))).unwrap();
        let expected = Continue { continues: asked, input: "hello".to_owned(), stream: true };
        assert_eq!(handoff.work, Work::Continue(expected));
    }

    #[test]
    fn an_invalid_row_is_an_error() {
        assert!(compose(&Turn { user_id: String::new(), ..turn(None) }).is_err());
        assert!(compose(&Turn { created_at: "now".to_owned(), ..turn(None) }).is_err());
        assert!(compose(&Turn { messages: Vec::new(), ..turn(Some(HandoffId::now())) }).is_err());
    }
}
