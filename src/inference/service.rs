use std::{sync::Arc, time::Duration};

use broker::retry::Waits;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tracing::{Instrument, debug, warn};

use super::{
    Backend, Error, Hint, LOCAL, Offline, Reply, Request, Route,
    request::{Fault, Nature},
};
use crate::{
    breaker::{Breaker, Waiting},
    context::Routing,
    telemetry::{Metrics, spans},
};

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// A server may ask for more patience than this; it does not get it.
const LONGEST_WANTED_WAIT: Duration = Duration::from_secs(60);

/// Hears what a model says while it says it.
pub(crate) trait Listener: Send + Sync {
    /// A try begins; what was said in earlier ones is void.
    fn trying(&self, count: u32);
    fn said(&self, text: &str);
}

/// Is asked before each try that costs something.
pub(crate) trait Permit: Send + Sync {
    /// Ends when the try may be made.
    fn granted(&self) -> BoxFuture<'_, ()>;
}

/// How much is done for one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Tries at each route.
    pub(crate) tries: u32,
    /// How long a model that is away is waited for, from the first try that failed.
    pub(crate) patience: Duration,
    pub(crate) prices: Option<Prices>,
}

/// In US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prices {
    pub(crate) prompt: f64,
    pub(crate) completion: f64,
}

/// Asks models, as long as it makes sense.
#[derive(Debug)]
pub(crate) struct Inference {
    pub(crate) backend: Backend,
    pub(crate) limits: Limits,
    pub(crate) breaker: Breaker,
    pub(crate) metrics: Arc<Metrics>,
}

impl Inference {
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
                spans::replied(&asking, &reply);
                reply
            }
            Backend::Routes(routes) => {
                // Boxed, since what it needs is far more than what anyone needs who asks nobody.
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

    /// Asks each route in its order; in an outage waits for its end and asks anew, until the patience is over.
    async fn ask_in_order(
        &self,
        routes: &[&Route],
        request: &Request<'_>,
        listener: &dyn Listener,
        permit: &dyn Permit,
    ) -> Result<Reply, Error> {
        let mut asking = Asking { permit, tried: 0, waits: None, patient_until: None, waiting: None };
        let is_trial = self.breaker.is_half_open();
        loop {
            let (error, nature) = match self.ask_each(routes, request, listener, &mut asking).await {
                Ok(reply) => return Ok(Reply { tries: asking.tried, ..reply }),
                Err(failed) => failed,
            };
            if is_trial && nature == Some(Nature::Outage) && self.breaker.is_open() {
                return Err(Error::StillAway(error.to_string()));
            }
            // Whatever the breaker says: one handoff alone fails too seldom to open it.
            let wait = asking.waits.as_mut().and_then(Waits::next_wait);
            match wait.filter(|_| nature == Some(Nature::Outage)) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn ask_each(
        &self,
        routes: &[&Route],
        request: &Request<'_>,
        listener: &dyn Listener,
        asking: &mut Asking<'_>,
    ) -> Result<Reply, (Error, Option<Nature>)> {
        let nobody = "no local model is configured and no external provider is allowed";
        let mut last = (Error::NoRoute(nobody.to_owned()), None);
        for route in routes {
            let model = route.endpoint.label(request.hint);
            match self.ask_one(route, request, listener, asking).await {
                Ok(reply) => return Ok(reply),
                Err(Fault::Unauthorized(why)) if self.is_needed(route) => {
                    last = (Error::TokenRefused(format!("{model} refused this worker's token: {why}")), None);
                }
                // Turned down here, it may be welcome elsewhere.
                Err(Fault::Unauthorized(why) | Fault::Final(why)) => {
                    last = (Error::Refused { model, why }, None)
                }
                Err(Fault::Passing { why, nature, .. }) => {
                    last = (Error::Unavailable { model, tries: asking.tried, why }, Some(nature));
                }
            }
        }
        Err(last)
    }

    async fn ask_one(
        &self,
        route: &Route,
        request: &Request<'_>,
        listener: &dyn Listener,
        asking: &mut Asking<'_>,
    ) -> Result<Reply, Fault> {
        let endpoint = &route.endpoint;
        let mut waits = Waits::forever(FIRST_WAIT, LONGEST_WAIT);
        let mut left = self.limits.tries;
        loop {
            asking.permit.granted().await;
            asking.tried += 1;
            left = left.saturating_sub(1);
            listener.trying(asking.tried);
            self.metrics.model_calls.inc();
            let fault = match endpoint.ask(request, listener).await {
                Ok(reply) => {
                    self.breaker.succeeded();
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            self.metrics.model_failures.inc();
            if let Fault::Unauthorized(why) = &fault
                && self.is_needed(route)
            {
                self.breaker
                    .trip(&format!("{} refused this worker's token: {why}", endpoint.label(request.hint)));
            }
            let Fault::Passing { why, after, .. } = &fault else { return Err(fault) };
            let patience = self.limits.patience;
            asking.waits.get_or_insert_with(|| Waits::within(FIRST_WAIT, LONGEST_WAIT, patience));
            let patient_until = *asking.patient_until.get_or_insert_with(|| Instant::now() + patience);
            if self.is_needed(route) {
                asking.waiting.get_or_insert_with(|| self.breaker.wait());
                self.breaker.failed(&format!("{}: {why}", endpoint.label(request.hint)));
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
            let usual = waits.next_wait().unwrap_or(LONGEST_WAIT);
            // A server may ask for more time than the handoff has; it gets little more than that.
            let most = patient_until.saturating_duration_since(Instant::now()).max(LONGEST_WAIT);
            let wait = after.map_or(usual, |wanted| wanted.min(LONGEST_WANTED_WAIT).min(most));
            debug!(model = endpoint.label(request.hint), why, ?wait, "Model did not answer; retrying.");
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether an answer is worth keeping: the offline model gives the same one again, at once and for nothing.
    pub(crate) fn has_a_price(&self) -> bool {
        !matches!(self.backend, Backend::Offline(_))
    }

    /// Whether what is asked must fit into a window.
    pub(crate) fn has_window(&self) -> bool {
        match &self.backend {
            Backend::Offline(_) => false,
            Backend::Routes(_) | Backend::Recorded => true,
        }
    }

    /// What answers here, for people.
    pub(crate) fn in_words(&self) -> String {
        match &self.backend {
            Backend::Offline(_) => "offline".to_owned(),
            Backend::Recorded => "recording".to_owned(),
            Backend::Routes(routes) => {
                let labels: Vec<String> =
                    routes.all().map(|route| route.endpoint.label(Hint::Usual)).collect();
                labels.join(", ")
            }
        }
    }

    /// Whether anyone is there to be asked.
    pub(crate) async fn is_there(&self) -> bool {
        match &self.backend {
            Backend::Offline(_) | Backend::Recorded => true,
            Backend::Routes(routes) => match &routes.local {
                Some(local) => local.endpoint.is_there().await,
                None => {
                    for route in &routes.external {
                        if route.endpoint.is_there().await {
                            return true;
                        }
                    }
                    false
                }
            },
        }
    }

    /// Whether no handoff can be worked on without this route. An external provider that is away is one person's wish that
    /// cannot be met, not an outage.
    fn is_needed(&self, route: &Route) -> bool {
        route.provider == LOCAL || self.has_no_local()
    }

    fn has_no_local(&self) -> bool {
        matches!(&self.backend, Backend::Routes(routes) if routes.local.is_none())
    }
}

/// What has come of one question so far.
struct Asking<'a> {
    permit: &'a dyn Permit,
    tried: u32,
    /// The patience, which begins with the first try that fails.
    waits: Option<Waits>,
    patient_until: Option<Instant>,
    waiting: Option<Waiting>,
}

impl Prices {
    fn of(self, reply: &Reply) -> f64 {
        let (prompt, completion) = (reply.tokens.prompt as f64, reply.tokens.completion as f64);
        (prompt * self.prompt + completion * self.completion) / 1e6
    }
}
