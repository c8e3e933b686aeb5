//! Sends one request in one way, and asks again once if the reply cannot be used.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{
    Endpoint, Finish, Reply, Request, Tokens,
    assembly::{Assembled, Assembly, Pushed},
    request::Fault,
    service::Listener,
    steps,
    steps::{AnswerStream, Step},
    transport::{request_fault, silence_fault, stream_fault},
    wire::{Repair, Style, encode_body, is_typed},
};
use crate::context::estimate_tokens;

/// Longest wait for what follows a reply that is complete, such as its usage.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(5);
/// Asks again after a reply without text and calls.
const EMPTY: &str = "That reply was empty. Answer, or call a tool.";
const CUT_OFF: &str = "That was cut off before it was complete. Be brief: answer, or call a tool, at once.";

impl Endpoint {
    /// Sends a request and returns the reply; of a typed step, the call or the answer that it is.
    pub(super) async fn send(
        &self,
        request: &Request<'_>,
        style: &Style<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        if !is_typed(request, style.profile) {
            return self.send_plain(request, style, listener).await;
        }
        let mut paid = Tokens::default();
        let mut unusable: Option<Unusable> = None;
        loop {
            let repair = unusable.as_ref().map(|it| Repair { said: &it.said, why: it.why }).or(style.repair);
            let style = Style { repair, ..*style };
            let mut answer = AnswerStream::default();
            let on_text = |text: &str| {
                let new = answer.push(text);
                if !new.is_empty() {
                    listener.on_text(&new);
                }
            };
            let whole = self.exchange(request, encode_body(request, &style), on_text).await?;
            let mut reply = self.reply(request, whole);
            paid = add(paid, reply.tokens);
            reply.tokens = paid;
            let note = unusable.is_some().then(|| "the first reply was not a step; asked again".to_owned());
            match steps::parse(&reply.content, request, style.form()) {
                Ok(Step::Answer(answer)) => return Ok(Reply { content: answer, note, ..reply }),
                Ok(Step::Call(call)) => {
                    return Ok(Reply { content: String::new(), calls: vec![call], note, ..reply });
                }
                // An answer that was cut off is still an answer; its reader sees that it is not whole.
                Err(_)
                    if (reply.finish != Finish::Stop || unusable.is_some())
                        && let Some(answer) = partial_answer(&reply.content) =>
                {
                    return Ok(Reply { content: answer, note, ..reply });
                }
                Err(_) if unusable.is_none() => {
                    listener.on_try(2);
                    let why = if reply.finish == Finish::Stop { steps::REPAIR } else { steps::TOO_LONG };
                    unusable = Some(Unusable { said: reply.content, why });
                }
                // A server that ignores the schema: its text is the answer.
                Err(_) if steps::is_prose(&reply.content) => {
                    let note = Some("the reply was not a step, twice; taken as the answer".to_owned());
                    return Ok(Reply { note, ..reply });
                }
                // The half of the first reply is better than nothing.
                Err(_) if let Some(answer) = unusable.as_ref().and_then(|it| partial_answer(&it.said)) => {
                    return Ok(Reply { content: answer, note, ..reply });
                }
                Err(_) if reply.finish != Finish::Stop => {
                    return Err(Fault::Unusable(
                        "a step was cut off, twice; raise `max_tokens` in `inference.profiles`".to_owned(),
                    ));
                }
                Err(why) => return Err(Fault::Unusable(format!("the reply is not a step, twice: {why}"))),
            }
        }
    }

    /// Sends a request whose reply is a text or native calls. A server that replies with nothing works, so
    /// the model is asked again once.
    async fn send_plain(
        &self,
        request: &Request<'_>,
        style: &Style<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        let is_empty = |reply: &Reply| reply.calls.is_empty() && steps::says_nothing(&reply.content);
        let first = self.send_once(request, style, listener).await?;
        if !is_empty(&first) {
            return Ok(first);
        }
        listener.on_try(2);
        let why = if first.finish == Finish::Stop { EMPTY } else { CUT_OFF };
        let style = Style { repair: Some(Repair { said: "", why }), ..*style };
        let second = self.send_once(request, &style, listener).await?;
        if is_empty(&second) {
            return Err(Fault::Unusable(match second.finish {
                Finish::Stop => "the reply is empty, twice".to_owned(),
                Finish::Length | Finish::CutShort => {
                    "the reply was cut off before it said anything, twice; raise `max_tokens`".to_owned()
                }
            }));
        }
        let note = Some("the first reply was empty; asked again".to_owned());
        Ok(Reply { tokens: add(first.tokens, second.tokens), note, ..second })
    }

    async fn send_once(
        &self,
        request: &Request<'_>,
        style: &Style<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        let body = encode_body(request, style);
        let whole = self.exchange(request, body, |text| listener.on_text(text)).await?;
        Ok(self.reply(request, whole))
    }

    /// Sends one body and assembles the reply.
    async fn exchange(
        &self,
        request: &Request<'_>,
        body: Vec<u8>,
        mut on_text: impl FnMut(&str),
    ) -> Result<Assembled, Fault> {
        let (silence, permit) = (self.options.silence, request.wait_for_permit());
        let mut events = self.transport.ask(body, request.lease.as_deref(), permit, silence).await?;
        let mut assembly = Assembly::new(self.options.max_bytes);
        let mut heard_at = Instant::now();
        loop {
            let is_complete = assembly.is_complete();
            let longest = if is_complete { silence.min(TRAILER_TIMEOUT) } else { silence };
            let event = match timeout_at(heard_at + longest, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(None) => break,
                // All of the reply is there: what is lost after it is not worth another one.
                Ok(Some(Err(_))) | Err(_) if is_complete => break,
                Ok(Some(Err(fault))) => return Err(fault),
                Err(_) => return Err(silence_fault(silence)),
            };
            match assembly.push(&event).map_err(|why| stream_fault(&why))? {
                Pushed::Text(added) => {
                    heard_at = Instant::now();
                    let content = assembly.content();
                    on_text(&content[content.len() - added..]);
                }
                Pushed::Other => heard_at = Instant::now(),
                // An event without content does not reset the silence timeout.
                Pushed::Empty => {}
                Pushed::LimitReached => break,
            }
        }
        if events.is_done() {
            assembly.note_end();
        }
        assembly.finish().ok_or_else(|| request_fault("the stream broke off"))
    }

    fn reply(&self, request: &Request<'_>, whole: Assembled) -> Reply {
        let tokens = whole.tokens.unwrap_or_else(|| estimate_usage(request, &whole.content));
        Reply {
            content: whole.content,
            calls: whole.calls,
            finish: whole.finish,
            tokens,
            model: self.label(request.hint),
            tries: 1,
            cost_usd: None,
            note: None,
        }
    }
}

/// Estimates the tokens, for servers that do not report usage.
fn estimate_usage(request: &Request<'_>, content: &str) -> Tokens {
    Tokens { prompt: estimate_prompt(request) as u64, completion: estimate_tokens(content) as u64, cached: 0 }
}

fn estimate_prompt(request: &Request<'_>) -> usize {
    let asked = request.messages.iter().map(|message| estimate_tokens(message.content())).sum::<usize>();
    request.system.tokens() + asked
}

pub(super) fn add(one: Tokens, other: Tokens) -> Tokens {
    Tokens {
        prompt: one.prompt + other.prompt,
        completion: one.completion + other.completion,
        cached: one.cached + other.cached,
    }
}

/// Returns the answer in a step that is not whole, if it says something.
fn partial_answer(content: &str) -> Option<String> {
    steps::partial_answer(content).filter(|answer| !answer.trim().is_empty())
}

/// A reply that is no step, and what is said about it.
struct Unusable {
    said: String,
    why: &'static str,
}
