use std::borrow::Cow;

use subjects::Message;

/// What a message costs beyond its text: its role, its frame.
const PER_MESSAGE: usize = 4;
/// What is left of a tool's result that has to make room.
const SHORTENED_CHARS: usize = 400;
const SHORTENED: &str = "\n[cut: there was no room for the rest]";

/// How many tokens a request may have. Counted without the model's own tokeniser, so on the safe side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) tokens: usize,
}

/// What is left of a conversation so that it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitted<'m> {
    pub(crate) messages: Cow<'m, [Message]>,
    /// How many of the oldest were left out.
    pub(crate) left_out: usize,
    /// How many results were shortened.
    pub(crate) shortened: usize,
}

/// Layers 1 to 5 and the last request are never cut, and they alone are too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has about {needed} tokens where {allowed} are allowed, with all that can be left out left out"
)]
pub(crate) struct TooLarge {
    pub(crate) needed: usize,
    pub(crate) allowed: usize,
}

/// About a token for three and a half bytes: a little more than English takes, far less than base64 does.
pub(crate) fn tokens_in(text: &str) -> usize {
    text.len() * 2 / 7 + 1
}

/// About so many bytes are in so many tokens.
pub(crate) fn bytes_in(tokens: usize) -> usize {
    tokens.saturating_mul(7) / 2
}

impl Budget {
    /// Leaves out the oldest turns, then shortens the oldest results, until the rest fits. A turn goes whole, with its
    /// calls and their results: servers refuse a result whose call they have not seen.
    pub(crate) fn fit<'m>(self, fixed: usize, messages: &'m [Message]) -> Result<Fitted<'m>, TooLarge> {
        let mut needed = fixed + messages.iter().map(cost).sum::<usize>();
        let mut from = 0;
        while needed > self.tokens
            && let Some(next) = next_turn(messages, from)
        {
            needed -= messages[from..next].iter().map(cost).sum::<usize>();
            from = next;
        }
        let mut fitted = Fitted { messages: Cow::Borrowed(&messages[from..]), left_out: from, shortened: 0 };
        if needed > self.tokens {
            needed -= fitted.shorten(needed - self.tokens);
        }
        if needed > self.tokens { Err(TooLarge { needed, allowed: self.tokens }) } else { Ok(fitted) }
    }

    /// For what cannot do without any of it.
    pub(crate) fn fit_whole(self, fixed: usize, messages: &[Message]) -> Result<(), TooLarge> {
        let needed = fixed + messages.iter().map(cost).sum::<usize>();
        if needed > self.tokens { Err(TooLarge { needed, allowed: self.tokens }) } else { Ok(()) }
    }
}

impl Fitted<'_> {
    /// Shortens results, the oldest first, until so many tokens are saved; tells how many were.
    fn shorten(&mut self, wanted: usize) -> usize {
        let mut saved = 0;
        for index in 0..self.messages.len() {
            if saved >= wanted {
                break;
            }
            let Message::Tool { content, .. } = &self.messages[index] else { continue };
            let short: String = content.chars().take(SHORTENED_CHARS).collect();
            if short.len() + SHORTENED.len() >= content.len() {
                continue;
            }
            let before = cost(&self.messages[index]);
            if let Message::Tool { content, .. } = &mut self.messages.to_mut()[index] {
                *content = short + SHORTENED;
            }
            saved += before - cost(&self.messages[index]);
            self.shortened += 1;
        }
        saved
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
