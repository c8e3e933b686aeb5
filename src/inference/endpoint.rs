//! Client for an OpenAI-compatible server, over HTTP and server-sent events. Asks each model in the way that
//! suits it, and learns from what the server refuses.

use std::{sync::Arc, time::Duration};

use mcp::Token;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument, warn};

use super::{
    Finish, Hint, LOCAL, Reply, Request, Tokens,
    assembly::{Assembled, Assembly, Pushed},
    learned::{Adaptation, Learned, LearnedModels},
    request::Fault,
    service::Listener,
    spans, steps,
    steps::{AnswerStream, Step},
    text_calls,
    transport::{Transport, request_fault, stream_fault},
    wire::{Repair, SchemaMode, Style, encode_body, is_typed},
};
use crate::{
    config::{Profile, ToolMode},
    context::estimate_tokens,
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
    transport: Transport,
    models: Models,
    options: EndpointOptions,
    learned: LearnedModels,
}

/// What is the same for all servers.
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
            Err(Fault::Denied { .. } | Fault::Permanent(_) | Fault::TooLong { .. }) => {
                telemetry::mark_failed(&asking, "refused")
            }
        }
        asked
    }

    /// Returns what is known about a model; asks the server once. An external provider is not asked.
    pub(super) async fn learn(&self, hint: Hint) -> Arc<Learned> {
        let model = self.models.for_hint(hint);
        let asking = async {
            if self.name == LOCAL { self.transport.facts(model).await } else { Some(Default::default()) }
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
                    // Without a number, a quarter less is tried.
                    let limit = limit.unwrap_or_else(|| estimate_prompt(request) * 3 / 4);
                    learned.set_context_limit(limit);
                    return Err(Fault::TooLong { limit: Some(limit), why });
                }
                Err(Fault::Permanent(why)) => why,
                Err(fault) => return Err(fault),
            };
            let is_refused =
                |(field, sign): &&(&'static str, &str)| why.contains(sign) && learned.leave_out(field);
            if let Some((field, _)) = FIELDS.iter().find(is_refused) {
                notes.push(format!("the server refuses `{field}`, so it is left out"));
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
            let (tried, refused) = self.find_refused_tools(request, &style).await?;
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
            learned.record_refused_tools(refused, tried);
        }
    }

    /// Shows the server each tool alone. Returns how many were tried, and those that it refuses; none if it
    /// refuses a request without tools too.
    async fn find_refused_tools(
        &self,
        request: &Request<'_>,
        style: &Style<'_>,
    ) -> Result<(usize, Vec<String>), Fault> {
        let (mut tried, mut refused) = (0, Vec::new());
        let lease = request.lease.as_deref();
        if self.ask_if_refused(style.encode_trial(request, None), lease).await? {
            return Ok((tried, refused));
        }
        for tool in request.tools.iter().filter(|tool| !style.left_out.tools.contains(&tool.name)) {
            tried += 1;
            if self.ask_if_refused(style.encode_trial(request, Some(tool)), lease).await? {
                refused.push(tool.name.clone());
            }
        }
        Ok((tried, refused))
    }

    async fn ask_if_refused(&self, body: Vec<u8>, lease: Option<&str>) -> Result<bool, Fault> {
        let asked = async {
            let mut events = self.transport.ask(body, lease).await?;
            let mut assembly = Assembly::new(self.options.max_bytes);
            match events.next().await.transpose()? {
                Some(event) => assembly.push(&event).map(|_| ()).map_err(|why| stream_fault(&why)),
                None => Ok(()),
            }
        };
        match timeout(self.options.silence, asked).await {
            Ok(Err(Fault::Permanent(_))) => Ok(true),
            Ok(Err(fault)) => Err(fault),
            Ok(Ok(())) => Ok(false),
            Err(_) => Err(silence_fault(self.options.silence)),
        }
    }

    fn style<'a>(&self, profile: &'a Profile, left_out: &'a Adaptation) -> Style<'a> {
        Style { model: &profile.model, schema_mode: self.schema_mode(), profile, left_out, repair: None }
    }

    /// Local servers support maximum lengths; external providers may not, and want the strict form.
    fn schema_mode(&self) -> SchemaMode {
        if self.name == LOCAL { SchemaMode::Bounded } else { SchemaMode::Unbounded }
    }

    /// Sends a request and returns the reply; of a typed step, the call or the answer that it is.
    async fn send(
        &self,
        request: &Request<'_>,
        style: &Style<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Fault> {
        if !is_typed(request, style.profile) {
            let (body, lease) = (encode_body(request, style), request.lease.as_deref());
            let whole = self.exchange(body, lease, |text| listener.on_text(text)).await?;
            return Ok(self.reply(request, whole));
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
            let (body, lease) = (encode_body(request, &style), request.lease.as_deref());
            let whole = self.exchange(body, lease, on_text).await?;
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
                Err(_) if let Some(answer) = steps::partial_answer(&reply.content) => {
                    return Ok(Reply { content: answer, note, ..reply });
                }
                Err(_) if unusable.is_none() => {
                    listener.on_try(2);
                    let why = if reply.finish == Finish::Stop { steps::REPAIR } else { steps::TOO_LONG };
                    unusable = Some(Unusable { said: reply.content, why });
                }
                // A server that ignores the schema: its text is the answer.
                Err(_) if !reply.content.trim_start().starts_with(['{', '[', '<']) => {
                    let note = Some("the reply was not a step, twice; taken as the answer".to_owned());
                    return Ok(Reply { note, ..reply });
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

    /// Sends one body and assembles the reply.
    async fn exchange(
        &self,
        body: Vec<u8>,
        lease: Option<&str>,
        mut on_text: impl FnMut(&str),
    ) -> Result<Assembled, Fault> {
        let silence = self.options.silence;
        let mut events = timeout(silence, self.transport.ask(body, lease))
            .await
            .unwrap_or_else(|_| Err(silence_fault(silence)))?;
        let mut assembly = Assembly::new(self.options.max_bytes);
        let mut heard_at = Instant::now();
        loop {
            let event = timeout_at(heard_at + silence, events.next()).await;
            let event = event.unwrap_or_else(|_| Some(Err(silence_fault(silence))));
            let Some(event) = event.transpose()? else { break };
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
        let whole = assembly.finish().ok_or_else(|| request_fault("the stream broke off"))?;
        if whole.content.trim().is_empty() && whole.calls.is_empty() {
            return Err(request_fault("an empty reply"));
        }
        Ok(whole)
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
    Tokens { prompt: estimate_prompt(request) as u64, completion: estimate_tokens(content) as u64, cached: 0 }
}

fn estimate_prompt(request: &Request<'_>) -> usize {
    let asked = request.messages.iter().map(|message| estimate_tokens(message.content())).sum::<usize>();
    request.system.tokens() + asked
}

fn add(one: Tokens, other: Tokens) -> Tokens {
    Tokens {
        prompt: one.prompt + other.prompt,
        completion: one.completion + other.completion,
        cached: one.cached + other.cached,
    }
}

/// Whether a rejection may be about tools or their schemas.
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

/// A reply that is no step, and what is said about it.
struct Unusable {
    said: String,
    why: &'static str,
}
