use subjects::Message;

/// What a message costs beyond its text: its role, its frame.
const PER_MESSAGE: usize = 4;

/// How many tokens a request may have. Counted without the model's own tokeniser, so on the safe side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) tokens: usize,
}

/// What is left of a conversation so that it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitted<'m> {
    pub(crate) messages: &'m [Message],
    /// How many of the oldest were left out.
    pub(crate) left_out: usize,
}

/// Layers 1 to 5 and the last request are never cut, and they alone are too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has about {needed} tokens where {allowed} are allowed, with all earlier messages left out"
)]
pub(crate) struct TooLarge {
    pub(crate) needed: usize,
    pub(crate) allowed: usize,
}

/// About a token for three and a half bytes: a little more than English takes, far less than base64 does.
pub(crate) fn tokens_in(text: &str) -> usize {
    text.len() * 2 / 7 + 1
}

impl Budget {
    /// Leaves out the oldest turns until the rest fits. A turn goes whole, with its calls and their results: servers
    /// refuse a result whose call they have not seen.
    pub(crate) fn fit<'m>(self, fixed: usize, messages: &'m [Message]) -> Result<Fitted<'m>, TooLarge> {
        let mut needed = fixed + messages.iter().map(cost).sum::<usize>();
        let mut from = 0;
        while needed > self.tokens {
            let Some(next) = next_turn(messages, from) else {
                return Err(TooLarge { needed, allowed: self.tokens });
            };
            needed -= messages[from..next].iter().map(cost).sum::<usize>();
            from = next;
        }
        Ok(Fitted { messages: &messages[from..], left_out: from })
    }
}

fn next_turn(messages: &[Message], from: usize) -> Option<usize> {
    let later = messages.get(from + 1..)?;
    later.iter().position(|message| matches!(message, Message::User { .. })).map(|offset| from + 1 + offset)
}

fn cost(message: &Message) -> usize {
    let calls = match message {
        Message::Assistant { calls, .. } => {
            calls.iter().map(|call| tokens_in(&call.name) + tokens_in(&call.arguments)).sum()
        }
        Message::User { .. } | Message::Tool { .. } => 0,
    };
    PER_MESSAGE + tokens_in(message.content()) + calls
}
