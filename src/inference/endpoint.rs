//! Client for an OpenAI-compatible server, over HTTP and server-sent events. Asks each model in the way that
//! suits it, and learns from what the server refuses.

use std::{sync::Arc, time::Duration};

use mcp::Token;
use tokio::time::timeout;
use tracing::{Instrument, warn};

use super::{
    Hint, LOCAL, Reply, Request,
    assembly::Assembly,
    exchange::add,
    learned::{Adaptation, Learned, LearnedModels, Told},
    request::Fault,
    service::Listener,
    spans, text_calls,
    transport::{Transport, silence_fault, stream_fault},
    wire::{Repair, SchemaMode, Style},
};
use crate::{
    config::{Profile, ToolMode},
    telemetry::Metrics,
};

/// Bytes of a stream per byte of content: the framing of a streamed token is many times its size.
const FRAME_BYTES_PER_BYTE: usize = 256;

/// Fields that some servers refuse, and what their refusals say. Requests work without them; `max_tokens`
/// gets its newer name.
const FIELDS: [(&str, &str); 4] = [
    ("stream_options", "stream_options"),
    ("parallel_tool_calls", "parallel_tool_calls"),
    ("temperature", "temperature"),
    ("max_tokens", "max_completion_tokens"),
];
/// A request is changed at most this often to suit a server.
const MAX_ADAPTATIONS: usize = 6;
/// Asks again after a call that was written as text. It may have been an example.
const TEXT_CALL: &str = "If that was meant as a tool call: text calls nothing, so call the tool itself. If \
                         it was your answer, give it again.";
/// Says in the trace that a structured output was not enforced.
pub(super) const WITHOUT_SCHEMA: &str = "the server refuses the schema; asked in words";

/// A server and its models.
#[derive(Debug)]
pub(crate) struct Endpoint {
    name: String,
    pub(super) transport: Transport,
    models: Models,
    pub(super) options: EndpointOptions,
    learned: LearnedModels,
}

/// Settings shared by all servers.
#[derive(Clone, Debug)]
pub(crate) struct EndpointOptions {
    /// Time limit for the next content of a stream.
    pub(crate) silence: Duration,
    pub(crate) max_bytes: usize,
    /// How all models call tools; `None` decides for each.
    pub(crate) tool_mode: Option<ToolMode>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) metrics: Arc<Metrics>,
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
        options: EndpointOptions,
    ) -> Result<Self, reqwest::Error> {
        let max_bytes = options.max_bytes.saturating_mul(FRAME_BYTES_PER_BYTE);
        let transport = Transport::new(base_url, token, max_bytes)?;
        Ok(Self { name: name.to_owned(), transport, models, options, learned: LearnedModels::default() })
    }

    pub(crate) fn label(&self, hint: Hint) -> String {
        format!("{}/{}", self.name, self.models.for_hint(hint))
    }

    /// Makes one try. Text passed to `listener` before a fault is void.
    pub(super) async fn ask(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let asking = spans::chat(&self.name, self.models.for_hint(request.hint), "client", request);
        let asked = self.ask_model(request, listener).instrument(asking.clone()).await;
        match &asked {
            Ok(reply) => spans::record_reply(&asking, reply),
            Err(Fault::Transient { kind, .. }) => {
                telemetry::mark_failed(&asking, if kind.is_outage() { "outage" } else { "stumble" })
            }
            Err(Fault::Unauthorized(_)) => telemetry::mark_failed(&asking, "unauthorized"),
            Err(Fault::Unusable(_)) => telemetry::mark_failed(&asking, "unusable"),
            Err(
                Fault::Denied { .. } | Fault::NoLease { .. } | Fault::Permanent(_) | Fault::TooLong { .. },
            ) => telemetry::mark_failed(&asking, "refused"),
        }
        asked
    }

    /// Returns what is known about a model; asks the server once. An external provider is not asked.
    pub(super) async fn learn(&self, hint: Hint) -> Arc<Learned> {
        let model = self.models.for_hint(hint);
        let asking = async {
            if self.name == LOCAL { self.transport.facts(model).await } else { Told::All(Default::default()) }
        };
        self.learned.get(model, &self.options, asking).await
    }

    async fn ask_model(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let learned = self.learn(request.hint).await;
        let asked = self.ask_adapting(request, &learned, listener).await;
        if let Err(Fault::Transient { kind, .. }) = &asked
            && kind.is_outage()
        {
            self.learned.refresh().await;
        }
        let first = asked?;
        let is_text = first.calls.is_empty() && request.may_call && request.output_schema.is_none();
        let called = is_text.then(|| text_calls::find(&first.content, &request.tools)).flatten();
        let Some(tool) = called else { return Ok(first) };
        warn!(model = self.label(request.hint), tool, "Model wrote a tool call as text; asking again.");
        listener.on_try(2);
        match self.ask_in_form(request, &learned, &first.content, listener).await {
            Ok((again, mode)) => {
                if !again.calls.is_empty() && mode == Some(ToolMode::Typed) {
                    learned.use_typed_steps(self.options.tool_mode);
                }
                let note = Some(format!("{tool} was called in text; asked again in form"));
                Ok(Reply { tokens: add(first.tokens, again.tokens), note, ..again })
            }
            // The first reply is all that there is.
            Err(Fault::Denied { .. } | Fault::Permanent(_) | Fault::Unusable(_) | Fault::TooLong { .. }) => {
                Ok(Reply { note: Some(format!("{tool} was called in text")), ..first })
            }
            Err(fault) => Err(fault),
        }
    }

    /// Asks for the call again in form: as a typed step, or natively if that is what the configuration wants
    /// or if the server refuses typed steps. Returns the reply and the form.
    async fn ask_in_form(
        &self,
        request: &Request<'_>,
        learned: &Learned,
        said: &str,
        listener: &dyn Listener,
    ) -> Result<(Reply, Option<ToolMode>), Fault> {
        let left_out = learned.adaptation();
        let native = learned.profile();
        let profile = if self.options.tool_mode.is_none() { native.typed() } else { native.clone() };
        let repair = Some(Repair { said, why: TEXT_CALL });
        let style = Style { repair, ..self.style(&profile, &left_out) };
        match self.send(request, &style, listener).await {
            Err(Fault::Permanent(_)) if native.tool_mode != profile.tool_mode => {
                let style = Style { profile: &native, ..style };
                Ok((self.send(request, &style, listener).await?, native.tool_mode))
            }
            asked => Ok((asked?, profile.tool_mode)),
        }
    }

    /// Asks the model, and leaves out what the server refuses, from then on.
    async fn ask_adapting(
        &self,
        request: &Request<'_>,
        learned: &Learned,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        let mut notes: Vec<String> = Vec::new();
        loop {
            let (profile, left_out) = (learned.profile(), learned.adaptation());
            let mut style = self.style(&profile, &left_out);
            let why = match self.send(request, &style, listener).await {
                Ok(mut reply) => {
                    notes.extend(reply.note.take());
                    reply.note = (!notes.is_empty()).then(|| notes.join("; "));
                    return Ok(reply);
                }
                Err(Fault::TooLong { limit, why }) => {
                    if let Some(limit) = limit {
                        learned.set_context_limit(limit);
                    }
                    return Err(Fault::TooLong { limit, why });
                }
                Err(Fault::Permanent(why)) => why,
                Err(fault) => return Err(fault),
            };
            if let Some(field) = refused_field(&why, &left_out) {
                learned.leave_out(field);
                notes.push(without_field(field));
                continue;
            }
            if request.output_schema.is_some() {
                // The server may not support schemas. The schema is part of the prompt too.
                style.schema_mode = SchemaMode::Omitted;
                let reply = self.send(request, &style, listener).await?;
                return Ok(Reply { note: Some(WITHOUT_SCHEMA.to_owned()), ..reply });
            }
            if request.tools.is_empty() || !is_about_tools(&why) {
                return Err(Fault::Permanent(why));
            }
            let (tried, refused) = match self.find_refused_tools(request, &style).await? {
                Trials::Tools { tried, refused } => (tried, refused),
                // Trials have fields of their own.
                Trials::NoneAccepted(trial) => match refused_field(&trial, &left_out) {
                    Some(field) => {
                        learned.leave_out(field);
                        notes.push(without_field(field));
                        continue;
                    }
                    None => return Err(Fault::Permanent(why)),
                },
            };
            // The last way is taken already, or tools are not the reason.
            if refused.is_empty() || left_out.omits_step_schema || notes.len() >= MAX_ADAPTATIONS {
                return Err(Fault::Permanent(why));
            }
            let names = refused.join(", ");
            warn!(
                model = self.label(request.hint),
                tools = names,
                why,
                "Server refused the schemas of tools."
            );
            if refused.len() < tried {
                refused.iter().for_each(|tool| self.options.metrics.count_refused_tool(tool));
                notes.push(format!("not offered, since the server refuses their schemas: {names}"));
            } else {
                notes.push("the server refuses this way of calling tools; another one is used".to_owned());
            }
            learned.record_refused_tools(refused, tried, profile.tool_mode);
        }
    }

    /// Shows the server each tool alone.
    async fn find_refused_tools(&self, request: &Request<'_>, style: &Style<'_>) -> Result<Trials, Fault> {
        let (mut tried, mut refused) = (0, Vec::new());
        if let Some(why) = self.refusal(request, style.encode_trial(request, None)).await? {
            return Ok(Trials::NoneAccepted(why));
        }
        for tool in request.tools.iter().filter(|tool| !style.left_out.tools.contains(&tool.name)) {
            tried += 1;
            if self.refusal(request, style.encode_trial(request, Some(tool))).await?.is_some() {
                refused.push(tool.name.clone());
            }
        }
        Ok(Trials::Tools { tried, refused })
    }

    /// Returns why the server refuses a request, if it does.
    async fn refusal(&self, request: &Request<'_>, body: Vec<u8>) -> Result<Option<String>, Fault> {
        let (silence, permit) = (self.options.silence, request.wait_for_permit());
        let asked = async {
            let mut events = self.transport.ask(body, request.lease.as_deref(), permit, silence).await?;
            let mut assembly = Assembly::new(self.options.max_bytes);
            let event = timeout(silence, events.next()).await;
            match event.unwrap_or_else(|_| Some(Err(silence_fault(silence)))).transpose()? {
                Some(event) => assembly.push(&event).map(|_| ()).map_err(|why| stream_fault(&why)),
                None => Ok(()),
            }
        };
        match asked.await {
            Ok(()) => Ok(None),
            Err(Fault::Permanent(why)) => Ok(Some(why)),
            Err(fault) => Err(fault),
        }
    }

    fn style<'a>(&self, profile: &'a Profile, left_out: &'a Adaptation) -> Style<'a> {
        Style { model: &profile.model, schema_mode: self.schema_mode(), profile, left_out, repair: None }
    }

    /// Local servers support maximum lengths; external providers may not, and want the strict form.
    fn schema_mode(&self) -> SchemaMode {
        if self.name == LOCAL { SchemaMode::Bounded } else { SchemaMode::Unbounded }
    }

    /// Returns whether the server answers.
    pub(crate) async fn probe(&self) -> bool {
        self.transport.probe().await
    }
}

/// Returns whether a rejection may be about tools or their schemas.
fn is_about_tools(why: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "schema",
        "tool",
        "function",
        "grammar",
        "parameter",
        "response_format",
        "pattern",
        "regex",
        "support",
    ];
    let why = why.to_lowercase();
    SIGNS.iter().any(|sign| why.contains(sign))
}

/// Returns the field that a refusal is about. One that was not sent is not the reason.
fn refused_field(why: &str, left_out: &Adaptation) -> Option<&'static str> {
    let was_sent = |field: &&'static str| !left_out.fields.contains(field);
    FIELDS.iter().filter(|(_, sign)| why.contains(sign)).map(|(field, _)| *field).find(was_sent)
}

fn without_field(field: &str) -> String {
    format!("the server refuses `{field}`, so it is left out")
}

/// The result of trying the tools one by one.
enum Trials {
    /// A request without tools is refused too, for this reason.
    NoneAccepted(String),
    Tools {
        tried: usize,
        refused: Vec<String>,
    },
}
