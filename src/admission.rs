//! Decides whether a message is accepted as a handoff. Pure: depends on bytes, headers and time only.
//!
//! An accepted message is a decoded [`Handoff`]; no later stage sees raw bytes, and a refused message never
//! reaches a model.

use std::time::Duration;

use async_nats::HeaderMap;
use leased::HeldLease;
use subjects::{
    Body, Encoding, ErrorCode, Handoff, HandoffId, Kind, Refusal, headers,
    signature::{self, SignatureBase, TrustedProducer},
};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::lease;

/// How far a producer's clock may be ahead. Lower if answers are kept for less than four times as long.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3_600);

/// The handoffs that an instance accepts.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) trusted_producers: Vec<TrustedProducer>,
    pub(crate) reply_prefixes: Vec<String>,
    /// How long answers are kept. An older handoff may have been answered and its answer deleted.
    pub(crate) answers_kept: watch::Receiver<Duration>,
}

/// A message as delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingMessage<'a> {
    pub(crate) kind: Kind,
    pub(crate) subject: &'a str,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) body: &'a [u8],
}

/// The properties of a message that are known before it is decoded as a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The handoff to answer. `None` if the id cannot be read or the producer is not trusted: answering an
    /// untrusted producer would let it occupy the id of another handoff.
    pub(crate) answer_to: Option<HandoffId>,
    /// Where to send a copy of the answer, if the subject is readable and allowed.
    pub(crate) reply_to: Option<String>,
    pub(crate) encoding: Encoding,
    pub(crate) trace_id: Option<String>,
}

/// An accepted handoff.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) handoff: Handoff,
    /// On whose behalf it is worked on.
    pub(crate) lease: Option<Box<HeldLease>>,
    pub(crate) encoding: Encoding,
    pub(crate) trace_id: String,
    /// The producer set the handoff id as message id, so the server drops copies within its duplicate window.
    pub(crate) deduplicated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) identity: Identity,
}

impl Policy {
    /// Accepts or refuses a message. The signature is checked before the content.
    pub(crate) fn admit(
        &self,
        incoming: &IncomingMessage<'_>,
        now: OffsetDateTime,
    ) -> Result<Admitted, Refused> {
        let (identity, body) = self.identify(incoming)?;
        let refused = |refusal| Refused { refusal, identity: identity.clone() };
        let mut handoff = Handoff::decode(incoming.kind, &body).map_err(refused)?;
        let lease = headers::get_any_case(incoming.headers, headers::LEASE);
        let lease = lease.map(|text| lease::admit(text, &mut handoff)).transpose().map_err(refused)?;
        let lease = lease.map(Box::new);
        self.check(&handoff, now).map_err(refused)?;
        // Compared the way the server does: exact header name, exact spelling of the id.
        let deduplicated = incoming
            .headers
            .and_then(|headers| headers.get(headers::MSG_ID))
            .is_some_and(|id| id.as_str() == handoff.id.to_string());
        let trace_id = identity.trace_id.unwrap_or_else(|| handoff.id.trace_id());
        Ok(Admitted { handoff, lease, encoding: identity.encoding, trace_id, deduplicated })
    }

    /// Returns whom to answer about a message that will not be processed.
    pub(crate) fn identity(&self, incoming: &IncomingMessage<'_>) -> Identity {
        match self.identify(incoming) {
            Ok((identity, _)) => identity,
            Err(refused) => refused.identity,
        }
    }

    fn identify<'b>(&self, incoming: &IncomingMessage<'b>) -> Result<(Identity, Body<'b>), Refused> {
        let content_type = headers::get_any_case(incoming.headers, headers::CONTENT_TYPE);
        let encoding = Encoding::from_content_type(content_type);
        let body = Body::inspect(encoding.unwrap_or_default(), incoming.body);
        let mut identity = Identity {
            answer_to: None,
            reply_to: None,
            encoding: encoding.unwrap_or_default(),
            trace_id: headers::trace_id(incoming.headers).map(str::to_owned),
        };
        // The content type is not signed: by changing it an untrusted producer could have a valid body
        // refused.
        let trusted = match encoding {
            Err(_) if !self.trusted_producers.is_empty() => Err(signature::SignatureError::Mismatch),
            Ok(_) | Err(_) => self.verify_signature(incoming, &body),
        };
        if let Err(error) = trusted {
            let refusal = Refusal::new(ErrorCode::UntrustedProducer, error.to_string());
            return Err(Refused { refusal, identity });
        }
        // If the body does not yield an id, the message id may.
        identity.answer_to = body.envelope_fields().handoff_id.or_else(|| {
            headers::get_any_case(incoming.headers, headers::MSG_ID).and_then(|id| id.parse().ok())
        });
        identity.reply_to =
            body.envelope_fields().reply_to.clone().filter(|subject| self.may_reply_to(subject));
        match encoding {
            Ok(_) => Ok((identity, body)),
            Err(unknown) => Err(Refused { refusal: Refusal::invalid(unknown.to_string()), identity }),
        }
    }

    /// P2: with trusted producers configured, only messages signed by one of them are handoffs.
    fn verify_signature(
        &self,
        incoming: &IncomingMessage<'_>,
        body: &Body<'_>,
    ) -> Result<(), signature::SignatureError> {
        if self.trusted_producers.is_empty() {
            return Ok(());
        }
        let header = headers::get_any_case(incoming.headers, headers::SIGNATURE);
        let signed = SignatureBase::new(incoming.subject, body.envelope_fields(), incoming.body);
        // An unreadable body cannot match a signature.
        let signed = signed.ok_or(signature::SignatureError::Mismatch)?;
        let signed = signed.with_lease(headers::get_any_case(incoming.headers, headers::LEASE));
        signature::verify(&self.trusted_producers, header, &signed)
    }

    fn check(&self, handoff: &Handoff, now: OffsetDateTime) -> Result<(), Refusal> {
        let age = now - handoff.issued_at.at();
        let kept = *self.answers_kept.borrow();
        let skew = MAX_CLOCK_SKEW.min(kept / 4);
        // The producer's clock may be ahead, which makes the handoff look younger than it is.
        let fresh_for = kept.saturating_sub(skew);
        if age >= fresh_for {
            let kept = humantime::format_duration(fresh_for);
            let message = format!(
                "issued at {}, longer ago than answers are kept ({kept}): it may have been answered before; \
                 publish a new handoff",
                handoff.issued_at
            );
            return Err(Refusal::new(ErrorCode::StaleHandoff, message));
        }
        if -age > skew {
            let message =
                format!("issued_at {} is in the future; check the producer's clock", handoff.issued_at);
            return Err(Refusal::invalid(message));
        }
        if let Some(deadline) = &handoff.deadline
            && deadline.at() <= now
        {
            let message = format!("the deadline {deadline} has passed");
            return Err(Refusal::new(ErrorCode::DeadlineExceeded, message));
        }
        if let Some(reply_to) = &handoff.reply_to
            && !self.may_reply_to(reply_to)
        {
            let message = format!("reply_to must be a subject under {}", self.reply_prefixes.join(" or "));
            return Err(Refusal::invalid(message));
        }
        Ok(())
    }

    fn may_reply_to(&self, subject: &str) -> bool {
        const MAX_BYTES: usize = 256;
        let plain = |token: &str| {
            !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !b"*>".contains(&byte))
        };
        subject.len() <= MAX_BYTES
            && subject.split('.').all(plain)
            && self.reply_prefixes.iter().any(|prefix| subject.starts_with(prefix.as_str()))
    }
}

#[cfg(test)]
mod tests;
