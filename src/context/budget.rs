//! Fits a conversation into the token budget of a request.

use std::borrow::Cow;

use subjects::Message;

use super::note_text;

/// Tokens that a message costs beyond its text, for its role and framing.
const TOKENS_PER_MESSAGE: usize = 4;
/// Length of a shortened tool result.
const SHORTENED_CHARS: usize = 400;
const SHORTENED_MARK: &str = "\n[cut: there was no room for the rest]";

/// How many tokens a request may have. Tokens are estimated on the high side, since the model's tokeniser is
/// not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) tokens: usize,
}

/// The part of a conversation that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitted<'m> {
    pub(crate) messages: Cow<'m, [Message]>,
    /// How many of the oldest messages were left out.
    pub(crate) left_out: usize,
    /// How many tool results were shortened.
    pub(crate) shortened: usize,
    /// The tokens of the request, as estimated.
    pub(crate) tokens: usize,
}

/// The request exceeds the budget even though everything that may be left out was: layers 1 to 5 and the last
/// request are never cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has about {needed} tokens after leaving out all that may be left out; {allowed} are \
     allowed, by `agent.context_tokens` or by the model server if its context is shorter"
)]
pub(crate) struct TooLarge {
    pub(crate) needed: usize,
    pub(crate) allowed: usize,
}

/// Estimates the tokens in a text as one for 3.5 bytes: a little more than English takes, far fewer than
/// base64 does.
pub(crate) fn estimate_tokens(text: &str) -> usize {
    text.len() * 2 / 7 + 1
}

/// Estimates the bytes of text in so many tokens.
pub(crate) fn estimate_bytes(tokens: usize) -> usize {
    tokens.saturating_mul(7) / 2
}

impl Budget {
    /// Leaves out the oldest turns, then shortens the oldest results, until the rest fits beside `fixed`
    /// tokens. A turn is left out with its calls and their results, since servers refuse a result without its
    /// call. What the caller's system says is kept: it holds for the whole conversation.
    pub(crate) fn fit<'m>(self, fixed: usize, messages: &'m [Message]) -> Result<Fitted<'m>, TooLarge> {
        let mut needed = fixed + messages.iter().map(message_tokens).sum::<usize>();
        let mut from = 0;
        while needed > self.tokens
            && let Some(next) = next_turn(messages, from)
        {
            let left_out = messages[from..next].iter().filter(|message| note_text(message).is_none());
            needed -= left_out.map(message_tokens).sum::<usize>();
            from = next;
        }
        let (before, rest) = messages.split_at(from);
        let notes: Vec<&Message> = before.iter().filter(|message| note_text(message).is_some()).collect();
        let left_out = before.len() - notes.len();
        let messages = match notes.is_empty() {
            true => Cow::Borrowed(rest),
            false => Cow::Owned(notes.into_iter().chain(rest).cloned().collect()),
        };
        let mut fitted = Fitted { messages, left_out, shortened: 0, tokens: needed };
        if needed > self.tokens {
            needed -= fitted.shorten(needed - self.tokens);
            fitted.tokens = needed;
        }
        if needed > self.tokens { Err(TooLarge { needed, allowed: self.tokens }) } else { Ok(fitted) }
    }

    /// Checks that all messages fit beside `fixed` tokens, for requests of which nothing may be left out.
    pub(crate) fn check_fits(self, fixed: usize, messages: &[Message]) -> Result<(), TooLarge> {
        let needed = fixed + messages.iter().map(message_tokens).sum::<usize>();
        if needed > self.tokens { Err(TooLarge { needed, allowed: self.tokens }) } else { Ok(()) }
    }
}

impl Fitted<'_> {
    /// Shortens results, the oldest first, until `wanted` tokens are saved. Returns how many were saved.
    fn shorten(&mut self, wanted: usize) -> usize {
        let mut saved = 0;
        for index in 0..self.messages.len() {
            if saved >= wanted {
                break;
            }
            let Message::Tool { content, .. } = &self.messages[index] else { continue };
            let short: String = content.chars().take(SHORTENED_CHARS).collect();
            if short.len() + SHORTENED_MARK.len() >= content.len() {
                continue;
            }
            let before = message_tokens(&self.messages[index]);
            if let Message::Tool { content, .. } = &mut self.messages.to_mut()[index] {
                *content = short + SHORTENED_MARK;
            }
            saved += before - message_tokens(&self.messages[index]);
            self.shortened += 1;
        }
        saved
    }
}

/// Returns the index of the next user message after `from`.
fn next_turn(messages: &[Message], from: usize) -> Option<usize> {
    let later = messages.get(from + 1..)?;
    later.iter().position(|message| matches!(message, Message::User { .. })).map(|offset| from + 1 + offset)
}

fn message_tokens(message: &Message) -> usize {
    let calls = match message {
        Message::Assistant { calls, .. } => {
            calls.iter().map(|call| estimate_tokens(&call.name) + estimate_tokens(&call.arguments)).sum()
        }
        Message::User { .. } | Message::Tool { .. } => 0,
    };
    TOKENS_PER_MESSAGE + estimate_tokens(message.content()) + calls
}
