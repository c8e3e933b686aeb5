use subjects::{Chat, ChatRole, Message};

use crate::{
    agent::{Broken, Outcome, ledger::Lane, session::Session, think::Manner, thoughts::ASSESS},
    context::request_messages,
    inference::Hint,
};

/// A conversation that waits for its next message.
pub(in crate::agent) async fn work(session: &mut Session<'_>, chat: &Chat) -> Result<Outcome, Broken> {
    session.temperature = chat.temperature.unwrap_or(session.temperature);
    session.max_tokens = chat.max_tokens.map(std::num::NonZeroU32::get);
    let messages = request_messages(&chat.messages);
    let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
    let goal = last.or(chat.messages.last()).map_or("", |message| message.content.as_str());
    let session = &*session;
    // What kind of input this is does not change the answer, so the answer does not wait for it.
    let (outcome, ()) = tokio::join!(session.converse(goal, messages.clone()), session.assess(&messages));
    outcome
}

impl Session<'_> {
    /// O2, O3: the input's type and scope, for the trace. That they are not known is in the trace too.
    pub(in crate::agent) async fn assess(&self, messages: &[Message]) {
        // The last of it: an assessment of the whole conversation is not worth its price.
        const MOST_MESSAGES: usize = 6;
        let recent = messages[messages.len().saturating_sub(MOST_MESSAGES)..].to_vec();
        let manner =
            Manner { hint: Hint::Fast, within: self.bench.settings.think_timeout, lane: Lane::ASIDE };
        if let Ok(assessment) = self.think(recent, ASSESS, manner).await {
            self.ledger.assessed(assessment);
        }
    }
}
