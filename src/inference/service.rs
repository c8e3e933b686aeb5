//! Asks models: routes in order, tries with back-off, and patience during an outage.

use std::{sync::Arc, time::Duration};

use broker::retry::RetryDelays;
use futures_util::future::BoxFuture;
use intake::WaitingGuard;
use tokio::time::Instant;
use tracing::{Instrument, debug, warn};

use super::{
    Backend, Error, Hint, LOCAL, Offline, Reply, Request, Route,
    assembly::FILTERED,
    request::{Fault, FaultKind},
    spans,
    time_limit::{CountedPermit, TimeLimit},
    transport::request_fault,
};
use crate::{
    context::Routing,
    telemetry::{Breaker, Health, Metrics},
};

const FIRST_RETRY_WAIT: Duration = Duration::from_millis(500);
const MAX_RETRY_WAIT: Duration = Duration::from_secs(8);
/// Longest wait that a server may ask for with `Retry-After`.
const MAX_SERVER_WAIT: Duration = Duration::from_secs(60);

/// Receives the text of a reply while it is streamed.
pub(crate) trait Listener: Send + Sync {
    /// A try begins; the text of earlier tries is void.
    fn on_try(&self, count: u32);
    /// More text has arrived.
    fn on_text(&self, text: &str);
    /// The try at this model failed, after as many tries. Called at once, before another one is made.
    fn on_failed_try(&self, _model: &str, _tries: u32, _fault: subjects::Fault) {}
}

/// Permission that is acquired before each try, since a try costs money.
pub(crate) trait Permit: std::fmt::Debug + Send + Sync {
    /// Completes when the try may be made.
    fn acquire(&self) -> BoxFuture<'_, ()>;
    /// Returns the lease under which an external provider is asked, renewed if it is about to expire.
    /// `is_expired`: the last one was refused because it has.
    fn lease(&self, is_expired: bool) -> BoxFuture<'_, Result<Arc<str>, NoLease>>;
}

/// Why there is no lease to ask an external provider under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLease {
    /// The handoff has none.
    Absent,
    /// It could not be renewed, although the gateway was waited for.
    Unavailable(String),
    /// The gateway does not accept this worker's token.
    TokenRefused(String),
}

/// Limits on the effort for one reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of tries on each route.
    pub(crate) tries: u32,
    /// How long an unavailable model is waited for, from the first try that failed.
    pub(crate) patience: Duration,
    pub(crate) prices: Option<Prices>,
}

/// Prices in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prices {
    pub(crate) prompt: f64,
    pub(crate) completion: f64,
}

/// Asks models, with retries and a breaker.
#[derive(Debug)]
pub(crate) struct Inference {
    pub(crate) backend: Backend,
    pub(crate) limits: Limits,
    pub(crate) breaker: Breaker,
    pub(crate) metrics: Arc<Metrics>,
}

impl Inference {
    /// Returns the reply of the backend, with its cost if prices are configured.
    pub(crate) async fn ask(
        &self,
        request: &Request<'_>,
        routing: &Routing,
        listener: &dyn Listener,
        permit: &dyn Permit,
    ) -> Result<Reply, Error> {
        let mut reply = match &self.backend {
            Backend::Offline(offline) => {
                self.metrics.model_calls.inc();
                let asking = spans::chat(Offline::NAME, Offline::NAME, "internal", request);
                let reply = offline.answer(request, listener).instrument(asking.clone()).await;
                spans::record_reply(&asking, &reply);
                reply
            }
            Backend::Routes(routes) => {
                // Boxed, since it needs far more memory than the other backends.
                Box::pin(self.ask_in_order(&routes.order(routing), request, listener, permit)).await?
            }
            Backend::Recorded => {
                return Err(Error::NotRecorded(format!("{:?}", request.purpose)));
            }
        };
        self.metrics.prompt_tokens.inc_by(reply.tokens.prompt);
        self.metrics.completion_tokens.inc_by(reply.tokens.completion);
        reply.cost_usd = self.limits.prices.map(|prices| prices.of(&reply));
        Ok(reply)
    }

    /// Asks each route in order. During an outage waits and asks them again, until the patience is over. A
    /// trial request of a half-open breaker does not wait but returns [`Error::OutageContinues`].
    async fn ask_in_order(
        &self,
        routes: &[&Route],
        request: &Request<'_>,
        listener: &dyn Listener,
        permit: &dyn Permit,
    ) -> Result<Reply, Error> {
        let mut asking = AskState {
            permit,
            tried: 0,
            waits: None,
            patient_until: None,
            waiting: None,
            time: TimeLimit::new(request.time_limit),
        };
        let is_trial = self.breaker.is_half_open();
        loop {
            let (error, kind) = match self.ask_each(routes, request, listener, &mut asking).await {
                Ok(reply) => return Ok(Reply { tries: asking.tried, ..reply }),
                Err(failed) => failed,
            };
            let is_outage = kind.is_some_and(FaultKind::is_outage);
            if is_trial && is_outage && self.breaker.is_open() {
                return Err(Error::OutageContinues(error.to_string()));
            }
            // Independent of the breaker: a single handoff fails too rarely to open it.
            let wait = asking.waits.as_mut().and_then(RetryDelays::next_delay);
            match wait.filter(|_| is_outage) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    /// Asks the routes in order until one replies. Returns the last error, with its kind if it was transient.
    async fn ask_each(
        &self,
        routes: &[&Route],
        request: &Request<'_>,
        listener: &dyn Listener,
        asking: &mut AskState<'_>,
    ) -> Result<Reply, (Error, Option<FaultKind>)> {
        let none = "no local model is configured and no external provider is allowed";
        let mut last = (Error::NoRoute(none.to_owned()), None);
        for route in routes {
            if asking.tried > 0 && asking.time.is_over() {
                break;
            }
            let model = route.endpoint.label(request.hint);
            match self.ask_one(route, request, listener, asking).await {
                Ok(reply) => return Ok(reply),
                Err(Fault::Unauthorized(why)) if self.is_required(route) => {
                    last = (Error::TokenRefused(format!("{model} refused this worker's token: {why}")), None);
                }
                // Another route may accept the request.
                Err(Fault::Unauthorized(why) | Fault::Permanent(why) | Fault::Denied { why, .. }) => {
                    last = (Error::Refused { model, why }, None)
                }
                Err(Fault::Unusable(why)) => last = (Error::Unusable { model, why }, None),
                Err(Fault::NoLease { why, is_token_refused: true }) => {
                    last = (Error::TokenRefused(why), None)
                }
                Err(Fault::NoLease { why, is_token_refused: false }) => last = (Error::NoLease(why), None),
                Err(Fault::TooLong { why, limit }) => last = (Error::TooLong { model, why, limit }, None),
                Err(Fault::Transient { why, kind, .. }) => {
                    last = (Error::Unavailable { model, tries: asking.tried, why }, Some(kind));
                }
            }
        }
        Err(last)
    }

    /// Tries one route with back-off, up to the limit of tries.
    async fn ask_one(
        &self,
        route: &Route,
        request: &Request<'_>,
        listener: &dyn Listener,
        asking: &mut AskState<'_>,
    ) -> Result<Reply, Fault> {
        let endpoint = &route.endpoint;
        let mut waits = RetryDelays::forever(FIRST_RETRY_WAIT, MAX_RETRY_WAIT);
        let mut left = self.limits.tries;
        let mut is_expired = false;
        loop {
            asking.permit.acquire().await;
            if asking.time.is_over() {
                return Err(over_time(request));
            }
            asking.tried += 1;
            left = left.saturating_sub(1);
            listener.on_try(asking.tried);
            self.metrics.model_calls.inc();
            let permit = asking.permit;
            let asked = match lease_for(route, permit, is_expired).await {
                Ok(lease) => {
                    let permit = CountedPermit::new(permit);
                    let request = Request { lease, permit: Some(&permit), ..request.clone() };
                    asking.time.within(&permit, endpoint.ask(&request, listener)).await
                }
                Err(fault) => Some(Err(fault)),
            };
            let Some(asked) = asked else {
                self.metrics.model_failures.inc();
                return Err(over_time(request));
            };
            let fault = match asked {
                Ok(reply) => {
                    self.breaker.record_success();
                    if self.is_required(route) {
                        self.breaker.note_connected();
                    }
                    return Ok(reply);
                }
                // The server works, and would filter the same request again.
                Err(Fault::Transient { why, .. }) if why == FILTERED => Fault::Unusable(why),
                Err(fault) => fault,
            };
            if matches!(fault, Fault::Unusable(_)) {
                // The server works.
                self.breaker.record_success();
                if self.is_required(route) {
                    self.breaker.note_connected();
                }
            }
            self.metrics.model_failures.inc();
            listener.on_failed_try(&endpoint.label(request.hint), asking.tried, fault.reason());
            if let Fault::Unauthorized(why) = &fault
                && self.is_required(route)
            {
                self.breaker
                    .trip(&format!("{} refused this worker's token: {why}", endpoint.label(request.hint)));
            }
            if matches!(fault, Fault::Denied { is_expired_lease: true, .. }) && !is_expired && left > 0 {
                is_expired = true;
                continue;
            }
            let Fault::Transient { why, retry_after, kind } = &fault else { return Err(fault) };
            let patience = self.limits.patience;
            asking
                .waits
                .get_or_insert_with(|| RetryDelays::within(FIRST_RETRY_WAIT, MAX_RETRY_WAIT, patience));
            let patient_until = *asking.patient_until.get_or_insert_with(|| Instant::now() + patience);
            // What concerns one user says nothing about the server.
            if self.is_required(route) && *kind != FaultKind::Limited {
                asking.waiting.get_or_insert_with(|| self.breaker.count_waiting());
                let why = format!("{}: {why}", endpoint.label(request.hint));
                if *kind == FaultKind::Unreachable {
                    self.breaker.note_lost(&why);
                }
                self.breaker.record_failure(&why);
            }
            if left == 0 {
                warn!(
                    model = endpoint.label(request.hint),
                    why,
                    tries = asking.tried,
                    "Model did not answer."
                );
                return Err(fault);
            }
            let usual = waits.next_delay().unwrap_or(MAX_RETRY_WAIT);
            // A server may ask for a longer wait than the remaining patience; it is cut to that, or to
            // `MAX_RETRY_WAIT`.
            let max_wait = patient_until.saturating_duration_since(Instant::now()).max(MAX_RETRY_WAIT);
            let wait = retry_after.map_or(usual, |wanted| wanted.min(MAX_SERVER_WAIT).min(max_wait));
            debug!(model = endpoint.label(request.hint), why, ?wait, "Model did not answer; retrying.");
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns whether replies cost time or money and so are worth keeping. The offline model repeats its
    /// replies at once.
    pub(crate) fn has_cost(&self) -> bool {
        !matches!(self.backend, Backend::Offline(_))
    }

    /// Returns the length of the usual model's context, as far as it is known.
    pub(crate) async fn context_tokens(&self) -> Option<usize> {
        match &self.backend {
            Backend::Offline(_) | Backend::Recorded => None,
            Backend::Routes(routes) => {
                let local = routes.local.as_ref()?;
                local.endpoint.learn(Hint::Usual).await.profile().context_tokens
            }
        }
    }

    /// Returns whether requests must fit into a context window.
    pub(crate) fn has_context_window(&self) -> bool {
        match &self.backend {
            Backend::Offline(_) => false,
            Backend::Routes(_) | Backend::Recorded => true,
        }
    }

    /// Returns whether a model server answers: the local one, or without one any external provider.
    pub(crate) async fn probe(&self) -> bool {
        match &self.backend {
            Backend::Offline(_) | Backend::Recorded => true,
            Backend::Routes(routes) => match &routes.local {
                Some(local) => local.endpoint.probe().await,
                None => {
                    for route in &routes.external {
                        if route.endpoint.probe().await {
                            return true;
                        }
                    }
                    false
                }
            },
        }
    }

    /// Returns whether all handoffs require this route. If a local model is configured, an unavailable
    /// external provider is no outage: only the handoffs that prefer it are affected.
    fn is_required(&self, route: &Route) -> bool {
        route.provider == LOCAL || self.has_no_local()
    }

    fn has_no_local(&self) -> bool {
        matches!(&self.backend, Backend::Routes(routes) if routes.local.is_none())
    }
}

/// Returns the lease under which a route is asked: external providers are asked on behalf of a user only.
async fn lease_for(route: &Route, permit: &dyn Permit, is_expired: bool) -> Result<Option<Arc<str>>, Fault> {
    if route.provider == LOCAL {
        return Ok(None);
    }
    match permit.lease(is_expired).await {
        Ok(lease) => Ok(Some(lease)),
        Err(NoLease::Absent) => {
            let why = "the handoff has no lease, and external models are asked on behalf of a user only; \
                       publish it with the header Cynode-Lease (cynodectl: --user)";
            Err(Fault::Denied { why: why.to_owned(), is_expired_lease: false })
        }
        Err(NoLease::Unavailable(why)) => {
            let why = format!("the lease of the handoff could not be renewed: {why}");
            Err(Fault::NoLease { why, is_token_refused: false })
        }
        Err(NoLease::TokenRefused(why)) => Err(Fault::NoLease { why, is_token_refused: true }),
    }
}

/// The state of asking for one reply.
struct AskState<'a> {
    permit: &'a dyn Permit,
    tried: u32,
    /// Set when the first try fails.
    waits: Option<RetryDelays>,
    patient_until: Option<Instant>,
    waiting: Option<WaitingGuard<Health>>,
    /// The rest of the time budget of models.
    time: TimeLimit,
}

/// Classifies a timeout of one request, which does not affect other requests.
fn over_time(request: &Request<'_>) -> Fault {
    let limit = request.time_limit.unwrap_or_default();
    request_fault(&format!("no answer within {}", humantime::format_duration(limit)))
}

impl Prices {
    fn of(self, reply: &Reply) -> f64 {
        let (prompt, completion) = (reply.tokens.prompt as f64, reply.tokens.completion as f64);
        (prompt * self.prompt + completion * self.completion) / 1e6
    }
}
