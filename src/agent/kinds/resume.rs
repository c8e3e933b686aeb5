//! `continue`: resumes an earlier handoff that asked a question or was completed.

use subjects::{
    Answer, ChatMessage, ChatRole, Completion, Continue, Kind, Message, Role, ScopeId, Status,
    journal::Origin,
};

use super::{plan, plan_steps};
use crate::{
    agent::{Outcome, WorkError, session::Session},
    context::{note_text, request_messages, sanitize_message},
    journal,
};

/// Resumes the earlier handoff with the new input. Asks the user to repeat the request if there is no answer
/// to resume.
pub(in crate::agent) async fn work(
    session: &mut Session<'_>,
    input: &Continue,
) -> Result<Outcome, WorkError> {
    session.set_options(input.temperature, input.max_tokens);
    let answered = Message::user(sanitize_message(&input.input));
    let Some(Earlier { kind, task, mut messages }) = load_earlier(session, input).await? else {
        let question = format!(
            "Handoff {} cannot be continued: it has no answer here, or it failed. Please say again what is \
             wanted.",
            input.continues
        );
        return Ok(Outcome::question(Kind::Chat, question, &[answered]));
    };
    // The goal is stated in the first request as well as in the answer to the question.
    let asked = messages.iter().chain([&answered]).filter(|it| matches!(it, Message::User { .. }));
    let goal = asked.map(Message::content).collect::<Vec<_>>().join("\n");
    messages.extend(new_instructions(input, &messages));
    messages.push(answered);
    match (kind, task) {
        (Kind::Plan, Some(task_id)) => plan_steps::from_messages(session, &task_id, messages).await,
        (Kind::Plan, None) => plan::from_messages(session, messages).await,
        (Kind::Chat | Kind::Schedule | Kind::Continue | Kind::Review | Kind::Verify, _) => {
            session.converse(&goal, messages).await
        }
    }
}

/// Returns the instructions of the request, unless the transcript ends with them. It has a note for each of
/// the system messages that the instructions join.
fn new_instructions(input: &Continue, transcript: &[Message]) -> Option<Message> {
    let content = input.instructions.clone().filter(|text| !text.trim().is_empty())?;
    let note = request_messages(&[ChatMessage { role: ChatRole::System, content }]).pop()?;
    let wanted = note_text(&note)?;
    let said = transcript.iter().filter_map(note_text).collect::<Vec<_>>().join("\n");
    let is_known = said == wanted || said.ends_with(&format!("\n{wanted}"));
    (!is_known).then_some(note)
}

/// The state that an earlier handoff left to resume.
struct Earlier {
    kind: Kind,
    /// The task whose steps are planned.
    task: Option<ScopeId>,
    messages: Vec<Message>,
}

/// Loads the kind and transcript of the earlier handoff. Returns `None` if it has no answer that can be
/// resumed, and [`WorkError::OtherScope`] if it belongs to another user or project.
async fn load_earlier(session: &Session<'_>, input: &Continue) -> Result<Option<Earlier>, WorkError> {
    let (storage, role) = (&session.resources.storage, Role::ProjectManager);
    let stored = storage.read_answer(role, input.continues).await;
    let stored = stored.map_err(|error| WorkError::EarlierAnswer(error.to_string()))?;
    let Some(Answer::Completion(completion)) = stored else { return Ok(None) };
    // A handoff must not read another user's conversation by naming its id.
    let origin = journal::read_origin(storage, role, input.continues).await;
    let own = Origin::new(&session.handoff.scope, false);
    if !origin.is_some_and(|origin| origin.has_same_owner(&own)) {
        return Err(WorkError::OtherScope(input.continues));
    }
    let Completion { resumes_as, resumes_task, status, message, transcript, .. } = completion;
    Ok(match (status, message) {
        (Status::NeedsClarification, _) if !transcript.is_empty() => {
            let kind = resumes_as.unwrap_or(Kind::Chat);
            Some(Earlier { kind, task: resumes_task, messages: transcript })
        }
        (Status::NeedsClarification | Status::Completed, Some(message)) => {
            let messages = vec![Message::Assistant { content: message.content, calls: Vec::new() }];
            Some(Earlier { kind: Kind::Chat, task: None, messages })
        }
        _ => None,
    })
}
