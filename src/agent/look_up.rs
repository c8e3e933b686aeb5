//! Lets the model look things up: a conversation with tools that only read, of which the results are kept.

use std::sync::Arc;

use subjects::Message;

use super::{
    WorkError,
    conversation::{Action, Conversation, Event, RequestedCall},
    session::Session,
};
use crate::tools::Offer;

/// Maximum number of times that the model is asked.
const MAX_TURNS: u32 = 4;

/// The result of a tool that the model called to look something up.
pub(super) struct LookedUp {
    pub(super) tool: String,
    pub(super) text: String,
}

impl Session<'_> {
    /// Asks the model to look up what it needs for a goal, with the tools that match the goal best and only
    /// read. Returns the results of its calls; what it says is not used.
    pub(super) async fn look_up(&self, goal: &str, question: String) -> Result<Vec<LookedUp>, WorkError> {
        let offer = self.offer_reads(goal);
        if offer.tools.is_empty() {
            return Ok(Vec::new());
        }
        self.ledger.set_offered_tools(&offer.tools, self.catalogue.matched_words(goal, &offer.tools));
        self.live.offered(&offer.tools);
        let messages = vec![Message::user(question)];
        let names = Arc::clone(&offer.names);
        let mut conversation = Conversation::new(self.resources.role, names, MAX_TURNS, messages);
        let (mut action, mut found) = (conversation.begin(), Vec::new());
        loop {
            let event = match action {
                Action::Ask { last } => Event::Replied(
                    self.ask(conversation.turns() - 1, conversation.messages(), &offer, !last, false).await?,
                ),
                Action::Execute(calls) => {
                    let calls: Vec<_> = calls.into_iter().map(|call| self.permit_read(call)).collect();
                    self.live.selected(calls.iter().filter_map(RequestedCall::tool_name).collect());
                    let executed = self.execute_all(calls.clone()).await?;
                    for (call, observed) in calls.into_iter().zip(&executed) {
                        if let RequestedCall::Tool { tool, .. } = call
                            && !observed.failed
                        {
                            found.push(LookedUp { tool, text: observed.text.clone() });
                        }
                    }
                    Event::Executed(executed)
                }
                // Whatever it says, the results decide. Nothing found is a result too.
                Action::Finish(_) => return Ok(found),
            };
            action = conversation.step(event);
        }
    }

    /// Refuses a call of a tool that may change something.
    fn permit_read(&self, call: RequestedCall) -> RequestedCall {
        match call {
            RequestedCall::Tool { tool, .. } if !self.catalogue.only_reads(&tool) => {
                let why = "not called: only tools that read may be called here".to_owned();
                RequestedCall::Refuse { name: tool, why }
            }
            call => call,
        }
    }

    /// Returns the tools that an earlier attempt offered, if there was one.
    fn offer_reads(&self, goal: &str) -> Offer {
        let (role, max_tools) = (self.resources.role, self.resources.settings.offered_tools);
        if let Some(tools) = self.journal.take_offered() {
            return self.catalogue.restore_offer(role, &tools);
        }
        let offer = self.catalogue.offer_reads(role, goal, max_tools);
        if !offer.tools.is_empty() {
            self.journal.record_offered(&offer.tools);
        }
        offer
    }
}
