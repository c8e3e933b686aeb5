//! An OpenAI-compatible server, over HTTP and server-sent events.

use std::time::Duration;

use mcp::Token;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use super::{
    Hint, LOCAL, Reply, Request, Tokens,
    assembly::{Assembly, Pushed},
    request::{Fault, Nature},
    service::Listener,
    transport::{Transport, stumble},
    wire::{Form, body_of},
};
use crate::{context::tokens_in, telemetry::spans};

/// The frame of a streamed token is many times its size.
const FRAME_BYTES_PER_BYTE: usize = 256;

/// Where to ask, and for which models.
#[derive(Debug)]
pub(crate) struct Endpoint {
    name: String,
    transport: Transport,
    models: Models,
    /// The longest silence.
    silence: Duration,
    most_bytes: usize,
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
        most_bytes: usize,
    ) -> Result<Self, reqwest::Error> {
        let transport = Transport::new(base_url, token, most_bytes.saturating_mul(FRAME_BYTES_PER_BYTE))?;
        Ok(Self { name: name.to_owned(), transport, models, silence, most_bytes })
    }

    pub(crate) fn label(&self, hint: Hint) -> String {
        format!("{}/{}", self.name, self.models.for_hint(hint))
    }

    /// One try. What was told to `listener` before a fault is void.
    pub(super) async fn ask(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let asking = spans::chat(&self.name, self.models.for_hint(request.hint), "client", request);
        let asked = self.ask_in_form(request, listener).instrument(asking.clone()).await;
        match &asked {
            Ok(reply) => spans::replied(&asking, reply),
            Err(Fault::Passing { nature: Nature::Outage, .. }) => telemetry::failed(&asking, "outage"),
            Err(Fault::Passing { nature: Nature::Stumble, .. }) => telemetry::failed(&asking, "stumble"),
            Err(Fault::Unauthorized(_)) => telemetry::failed(&asking, "unauthorized"),
            Err(Fault::Final(_)) => telemetry::failed(&asking, "refused"),
        }
        asked
    }

    async fn ask_in_form(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let model = self.models.for_hint(request.hint);
        // Our own servers take bounds of texts; of a provider nobody knows.
        let form = if self.name == LOCAL { Form::Bounded } else { Form::Unbounded };
        match self.put(body_of(request, model, form), request, listener).await {
            // Perhaps a server that knows no forms. The form stands in the question too.
            Err(Fault::Final(_)) if request.shape.is_some() => {
                self.put(body_of(request, model, Form::Untold), request, listener).await
            }
            answered => answered,
        }
    }

    async fn put(
        &self,
        body: Vec<u8>,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        let silence = self.silence;
        let mut events =
            timeout(silence, self.transport.ask(body)).await.unwrap_or_else(|_| Err(silent(silence)))?;
        let mut assembly = Assembly::new(self.most_bytes);
        let mut heard_at = Instant::now();
        loop {
            let event = timeout_at(heard_at + silence, events.next()).await;
            let event = event.unwrap_or_else(|_| Some(Err(silent(silence))));
            let Some(event) = event.transpose()? else { break };
            match assembly.push(&event).map_err(|why| stumble(&why))? {
                Pushed::Text(added) => {
                    heard_at = Instant::now();
                    let content = assembly.content();
                    listener.said(&content[content.len() - added..]);
                }
                Pushed::Other => heard_at = Instant::now(),
                // An event without content is no sign of life.
                Pushed::Nothing => {}
                Pushed::Enough => break,
            }
        }
        let whole = assembly.finish().ok_or_else(|| stumble("the stream broke off"))?;
        if whole.content.trim().is_empty() && whole.calls.is_empty() {
            return Err(stumble("an empty reply"));
        }
        let tokens = whole.tokens.unwrap_or_else(|| counted(request, &whole.content));
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

    pub(crate) async fn is_there(&self) -> bool {
        self.transport.is_there().await
    }
}

fn silent(limit: Duration) -> Fault {
    stumble(&format!("silent for {}", humantime::format_duration(limit)))
}

/// For servers that do not count.
fn counted(request: &Request<'_>, content: &str) -> Tokens {
    let asked = request.messages.iter().map(|message| tokens_in(message.content())).sum::<usize>();
    Tokens { prompt: (request.system.tokens() + asked) as u64, completion: tokens_in(content) as u64 }
}
