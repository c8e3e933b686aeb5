use subjects::{Answer, Completion, Continue, Kind, Message, Role, Status};

use super::plan;
use crate::{
    agent::{Broken, Outcome, session::Session},
    context::defused,
    reply,
};

/// Goes on where an earlier handoff asked a question.
pub(in crate::agent) async fn work(session: &mut Session<'_>, input: &Continue) -> Result<Outcome, Broken> {
    let earlier = earlier(session, input).await?;
    let mut messages = earlier.transcript;
    messages.push(Message::user(defused(&input.input)));
    match earlier.kind {
        Kind::Plan => plan::from_messages(session, messages).await,
        Kind::Chat | Kind::Schedule | Kind::Continue | Kind::Verify => {
            // What is wanted stands in the question before the answer as much as in the answer.
            let goal: Vec<&str> = messages
                .iter()
                .filter(|message| matches!(message, Message::User { .. }))
                .map(Message::content)
                .collect();
            let goal = goal.join("\n");
            session.converse(&goal, messages).await
        }
    }
}

async fn earlier(session: &Session<'_>, input: &Continue) -> Result<Completion, Broken> {
    let id = input.continues;
    let stored = reply::stored(&session.bench.broker, Role::ProjectManager, id).await;
    let senseless = |why: &str| Broken::Senseless(format!("handoff {id} cannot be continued: {why}"));
    match stored.map_err(|error| Broken::Lookup(broker::Chain(&error).to_string()))? {
        Some(Answer::Completion(completion)) if completion.status == Status::NeedsClarification => {
            Ok(completion)
        }
        Some(_) => Err(senseless("it did not ask for clarification")),
        None => Err(senseless("it has no answer here, or its answer is past its time")),
    }
}
