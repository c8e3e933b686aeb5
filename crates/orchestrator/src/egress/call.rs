//! An open call. However it ends, also by being dropped, its end is reported to the gateway.

use std::{sync::Arc, time::Duration};

use broker::{Chain, retry::RetryDelays};
use contract::egress::{self, CallOutcome, End};
use tokio::{sync::OwnedSemaphorePermit, time::sleep};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{
    Egress,
    provider::Provider,
    usage::{Tokens, UsageReader},
};
use crate::{
    gateway::{CallError, Gateway},
    metrics::Metrics,
};

/// How long the end of a call is reported again while the gateway is away. Afterwards the gateway counts what
/// the call was expected to use.
const REPORT_FOR: Duration = Duration::from_secs(60);
const MIN_REPORT_DELAY: Duration = Duration::from_millis(500);
const MAX_REPORT_DELAY: Duration = Duration::from_secs(5);

/// How far a call has come, which decides what it may have used.
#[derive(Debug)]
pub(super) enum Stage {
    /// The provider was not asked, could not be reached, or refused the request.
    Unanswered,
    /// The request was sent. The provider may work on it.
    Sent,
    /// The reply is passed on.
    Replies(UsageReader),
}

/// A call that the gateway has permitted. Unless it is ended otherwise, it counts as cancelled.
#[derive(Debug)]
pub(super) struct OpenCall {
    call: egress::OpenCall,
    provider: Arc<Provider>,
    expected: Tokens,
    pub(super) stage: Stage,
    outcome: CallOutcome,
    gateway: Gateway,
    metrics: Arc<Metrics>,
    reports: TaskTracker,
    /// The right to one call, given back at its end.
    permit: Option<OwnedSemaphorePermit>,
}

impl OpenCall {
    pub(super) fn new(
        egress: &Egress,
        provider: &Arc<Provider>,
        call: egress::OpenCall,
        expected: Tokens,
    ) -> Self {
        egress.metrics.egress_open.inc();
        Self {
            call,
            provider: provider.clone(),
            expected,
            stage: Stage::Unanswered,
            outcome: CallOutcome::Cancelled,
            gateway: egress.gateway.clone(),
            metrics: egress.metrics.clone(),
            reports: egress.reports.clone(),
            permit: None,
        }
    }

    pub(super) fn hold(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    /// Reads a piece of the reply for what it says about usage.
    pub(super) fn read(&mut self, piece: &[u8]) {
        if let Stage::Replies(usage) = &mut self.stage {
            usage.push(piece);
        }
    }

    /// Ends the call with an outcome.
    pub(super) fn end(mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }

    /// Returns what the call used, and whether that is an estimate.
    fn used(&mut self) -> (Tokens, bool) {
        match &mut self.stage {
            Stage::Unanswered => (Tokens::default(), false),
            Stage::Sent => (Tokens { completion: 0, ..self.expected }, true),
            Stage::Replies(usage) => match usage.reported() {
                Some(tokens) => (tokens, false),
                None => (Tokens { completion: usage.estimated_completion(), ..self.expected }, true),
            },
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let (tokens, is_estimate) = self.used();
        self.metrics.egress_open.dec();
        self.metrics.count_egress_call(self.outcome, tokens.prompt, tokens.completion);
        let end = End {
            call_id: self.call.call_id.clone(),
            outcome: self.outcome,
            used: self.provider.cost(tokens),
            is_estimate,
        };
        debug!(
            call.id = end.call_id,
            provider = self.provider.name(),
            outcome = end.outcome.as_str(),
            "Call to a provider ended."
        );
        self.reports.spawn(report(self.gateway.clone(), end));
    }
}

/// Reports the end of a call, so that it is counted. Ending a call twice is harmless.
async fn report(gateway: Gateway, end: End) {
    let mut delays = RetryDelays::within(MIN_REPORT_DELAY, MAX_REPORT_DELAY, REPORT_FOR);
    loop {
        let error = match gateway.call(&end).await {
            Ok(_) => return,
            Err(error) => error,
        };
        let delay = delays.next_delay().filter(|_| matches!(error, CallError::Unavailable(_)));
        let Some(delay) = delay else {
            let error = Chain(&error);
            warn!(call.id = end.call_id, %error, "End of a call not reported; its usage is estimated.");
            return;
        };
        sleep(delay).await;
    }
}
