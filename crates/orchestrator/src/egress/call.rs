//! An open call. However it ends, also by being dropped, its end is reported to the gateway.

use std::{sync::Arc, time::Duration};

use broker::{Chain, retry::RetryDelays};
use contract::egress::{self, CallOutcome, End};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{
    Egress,
    provider::Provider,
    reservation::Expected,
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
/// How long the end of a reply waits until the end of its call is reported.
const MAX_REPORT_WAIT: Duration = Duration::from_secs(2);

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
    expected: Expected,
    pub(super) stage: Stage,
    outcome: CallOutcome,
    gateway: Gateway,
    metrics: Arc<Metrics>,
    reports: TaskTracker,
    /// The right to one call, given back at its end.
    permit: Option<OwnedSemaphorePermit>,
    is_closed: bool,
}

impl OpenCall {
    pub(super) fn new(
        egress: &Egress,
        provider: &Arc<Provider>,
        call: egress::OpenCall,
        expected: Expected,
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
            is_closed: false,
        }
    }

    pub(super) fn hold(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    /// Reads a piece of the reply for what it says about usage. Returns whether the last event of a stream
    /// has come.
    pub(super) fn read(&mut self, piece: &[u8]) -> bool {
        let Stage::Replies(usage) = &mut self.stage else { return false };
        usage.push(piece);
        usage.is_done()
    }

    /// Ends the call with an outcome. Waits a moment for the gateway to count it, so that the next call of
    /// the same agent finds the budget as it is. If the gateway is slow, the report goes on afterwards.
    pub(super) async fn end(mut self, outcome: CallOutcome) {
        self.outcome = outcome;
        let reported = self.close();
        drop(self);
        if timeout(MAX_REPORT_WAIT, reported).await.is_err() {
            debug!("Gateway slow; the end of a call is reported in the background.");
        }
    }

    /// Starts to report the end of the call.
    fn close(&mut self) -> JoinHandle<()> {
        self.is_closed = true;
        let (tokens, is_estimate) = self.used();
        self.metrics.egress_open.dec();
        self.metrics.count_egress_call(self.outcome, tokens.prompt, tokens.completion);
        let provider = self.provider.name();
        if !is_estimate && self.expected.most.is_some_and(|most| !tokens.is_within(most)) {
            warn!(
                provider,
                prompt_tokens = tokens.prompt,
                completion_tokens = tokens.completion,
                "Provider used more than was reserved; does it know limit_field in egress.providers?"
            );
        }
        let end = End {
            call_id: self.call.call_id.clone(),
            outcome: self.outcome,
            used: self.provider.cost(tokens),
            is_estimate,
        };
        debug!(call.id = end.call_id, provider, outcome = end.outcome.as_str(), "Call to a provider ended.");
        self.reports.spawn(report(self.gateway.clone(), end))
    }

    /// Returns what the call used, and whether that is an estimate.
    fn used(&mut self) -> (Tokens, bool) {
        let Expected { likely, most } = self.expected;
        let is_whole = self.outcome == CallOutcome::Completed;
        let usage = match &mut self.stage {
            Stage::Unanswered => return (Tokens::default(), false),
            Stage::Sent => return (most.unwrap_or(Tokens { completion: 0, ..likely }), true),
            Stage::Replies(usage) => usage,
        };
        let report = usage.report();
        let Some(most) = most else {
            // Embeddings and lists have no completion.
            let came = if likely.completion == 0 { 0 } else { usage.estimated_completion() };
            let estimate = Tokens { completion: came, ..likely };
            let tokens = report.tokens(estimate);
            return if is_whole && report.is_complete(estimate) {
                (tokens, false)
            } else {
                (Tokens { completion: tokens.completion.max(came), ..tokens }, true)
            };
        };
        // A part that is not reported counts as it was reserved, so that no reply is free of charge.
        let tokens = report.tokens(most);
        if is_whole && !report.is_unreadable {
            (tokens, !report.is_complete(most))
        } else {
            // The provider may bill for more than has come, or than could be read.
            (tokens.max(most), true)
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.is_closed {
            drop(self.close());
        }
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
