//! Client for an OpenAI-compatible server, over HTTP and server-sent events.

use std::time::Duration;

use mcp::Token;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use super::{
    Hint, LOCAL, Reply, Request, Tokens,
    assembly::{Assembly, Pushed},
    request::{Fault, FaultKind},
    service::Listener,
    spans,
    transport::{Transport, request_fault},
    wire::{SchemaMode, encode_body},
};
use crate::context::estimate_tokens;

/// Bytes of a stream per byte of content: the framing of a streamed token is many times its size.
const FRAME_BYTES_PER_BYTE: usize = 256;

/// A server and its models.
#[derive(Debug)]
pub(crate) struct Endpoint {
    name: String,
    transport: Transport,
    models: Models,
    /// Time limit for the next content of a stream.
    silence: Duration,
    max_bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Models {
    pub(crate) usual: String,
    pub(crate) fast: Option<String>,
    pub(crate) strong: Option<String>,
}

impl Models {
    fn for_hint(&self, hint: Hint) -> &str {
        let wanted = match hint {
            Hint::Usual => None,
            Hint::Fast => self.fast.as_deref(),
            Hint::Strong => self.strong.as_deref(),
        };
        wanted.unwrap_or(&self.usual)
    }
}

impl Endpoint {
    pub(crate) fn new(
        name: &str,
        base_url: &str,
        token: Option<Token>,
        models: Models,
        silence: Duration,
        max_bytes: usize,
    ) -> Result<Self, reqwest::Error> {
        let transport = Transport::new(base_url, token, max_bytes.saturating_mul(FRAME_BYTES_PER_BYTE))?;
        Ok(Self { name: name.to_owned(), transport, models, silence, max_bytes })
    }

    pub(crate) fn label(&self, hint: Hint) -> String {
        format!("{}/{}", self.name, self.models.for_hint(hint))
    }

    /// Makes one try. Text passed to `listener` before a fault is void.
    pub(super) async fn ask(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let asking = spans::chat(&self.name, self.models.for_hint(request.hint), "client", request);
        let asked = self.ask_with_schema(request, listener).instrument(asking.clone()).await;
        match &asked {
            Ok(reply) => spans::record_reply(&asking, reply),
            Err(Fault::Transient { kind: FaultKind::Outage, .. }) => {
                telemetry::mark_failed(&asking, "outage")
            }
            Err(Fault::Transient { kind: FaultKind::Request, .. }) => {
                telemetry::mark_failed(&asking, "stumble")
            }
            Err(Fault::Unauthorized(_)) => telemetry::mark_failed(&asking, "unauthorized"),
            Err(Fault::Permanent(_)) => telemetry::mark_failed(&asking, "refused"),
        }
        asked
    }

    /// Sends the request with the schema of its structured output, if it has one. If the server rejects that
    /// request, sends it again without the schema.
    async fn ask_with_schema(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let model = self.models.for_hint(request.hint);
        // Local servers support maximum lengths; external providers may not.
        let mode = if self.name == LOCAL { SchemaMode::Bounded } else { SchemaMode::Unbounded };
        match self.send(encode_body(request, model, mode), request, listener).await {
            // The server may not support schemas. The schema is part of the prompt too.
            Err(Fault::Permanent(_)) if request.output_schema.is_some() => {
                self.send(encode_body(request, model, SchemaMode::Omitted), request, listener).await
            }
            answered => answered,
        }
    }

    /// Sends one body and assembles the reply.
    async fn send(
        &self,
        body: Vec<u8>,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        let silence = self.silence;
        let mut events = timeout(silence, self.transport.ask(body))
            .await
            .unwrap_or_else(|_| Err(silence_fault(silence)))?;
        let mut assembly = Assembly::new(self.max_bytes);
        let mut heard_at = Instant::now();
        loop {
            let event = timeout_at(heard_at + silence, events.next()).await;
            let event = event.unwrap_or_else(|_| Some(Err(silence_fault(silence))));
            let Some(event) = event.transpose()? else { break };
            match assembly.push(&event).map_err(|why| request_fault(&why))? {
                Pushed::Text(added) => {
                    heard_at = Instant::now();
                    let content = assembly.content();
                    listener.on_text(&content[content.len() - added..]);
                }
                Pushed::Other => heard_at = Instant::now(),
                // An event without content does not reset the silence timeout.
                Pushed::Empty => {}
                Pushed::LimitReached => break,
            }
        }
        let whole = assembly.finish().ok_or_else(|| request_fault("the stream broke off"))?;
        if whole.content.trim().is_empty() && whole.calls.is_empty() {
            return Err(request_fault("an empty reply"));
        }
        let tokens = whole.tokens.unwrap_or_else(|| estimate_usage(request, &whole.content));
        Ok(Reply {
            content: whole.content,
            calls: whole.calls,
            finish: whole.finish,
            tokens,
            model: self.label(request.hint),
            tries: 1,
            cost_usd: None,
        })
    }

    /// Returns whether the server answers.
    pub(crate) async fn probe(&self) -> bool {
        self.transport.probe().await
    }
}

fn silence_fault(limit: Duration) -> Fault {
    request_fault(&format!("silent for {}", humantime::format_duration(limit)))
}

/// Estimates the tokens, for servers that do not report usage.
fn estimate_usage(request: &Request<'_>, content: &str) -> Tokens {
    let asked = request.messages.iter().map(|message| estimate_tokens(message.content())).sum::<usize>();
    Tokens { prompt: (request.system.tokens() + asked) as u64, completion: estimate_tokens(content) as u64 }
}
