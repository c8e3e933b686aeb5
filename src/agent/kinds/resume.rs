use subjects::{Answer, Completion, Continue, Kind, Message, Role, Status, journal::Origin};

use super::plan;
use crate::{
    agent::{Broken, Outcome, session::Session},
    context::message_text,
    journal, reply,
};

/// Goes on where an earlier handoff asked a question, or ended.
pub(in crate::agent) async fn work(session: &mut Session<'_>, input: &Continue) -> Result<Outcome, Broken> {
    let answered = Message::user(message_text(&input.input));
    let Some((kind, mut messages)) = earlier(session, input).await? else {
        let question = format!(
            "There is nothing to go on from: handoff {} has no answer here, or it came to nothing. Please say again \
             what is wanted.",
            input.continues
        );
        return Ok(Outcome::asks(Kind::Chat, question, &[answered]));
    };
    messages.push(answered);
    match kind {
        Kind::Plan => plan::from_messages(session, messages).await,
        Kind::Chat | Kind::Schedule | Kind::Continue | Kind::Verify => {
            // What is wanted stands in the first request as much as in the answer to the question.
            let asked = messages.iter().filter(|message| matches!(message, Message::User { .. }));
            let goal = asked.map(Message::content).collect::<Vec<_>>().join("\n");
            session.converse(&goal, messages).await
        }
    }
}

async fn earlier(session: &Session<'_>, input: &Continue) -> Result<Option<(Kind, Vec<Message>)>, Broken> {
    let (storage, role) = (&session.bench.storage, Role::ProjectManager);
    let stored = reply::stored(storage, role, input.continues).await;
    let stored = stored.map_err(|error| Broken::EarlierAnswer(error.to_string()))?;
    let Some(Answer::Completion(completion)) = stored else { return Ok(None) };
    // A handoff that names an id must not get what was said to another user.
    let origin = journal::origin(storage, role, input.continues).await;
    if origin.as_ref() != Some(&Origin::from(&session.handoff.scope)) {
        return Err(Broken::Foreign(input.continues));
    }
    let Completion { resumes_as, status, message, transcript, .. } = completion;
    Ok(match (status, message) {
        (Status::NeedsClarification, _) if !transcript.is_empty() => {
            Some((resumes_as.unwrap_or(Kind::Chat), transcript))
        }
        (Status::NeedsClarification | Status::Completed, Some(said)) => {
            Some((Kind::Chat, vec![Message::Assistant { content: said.content, calls: Vec::new() }]))
        }
        _ => None,
    })
}
