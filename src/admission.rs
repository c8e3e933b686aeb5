//! May this be worked on? A pure decision over the bytes, the headers and the time.
//!
//! Whatever passes is a [`Handoff`]; nothing behind this point sees raw bytes, and nothing that is refused here
//! ever reaches a model.

use std::time::Duration;

use async_nats::HeaderMap;
use subjects::{
    Body, Encoding, ErrorCode, Handoff, HandoffId, Kind, Refusal, headers,
    signature::{self, Signed, TrustedProducer},
};
use time::OffsetDateTime;
use tokio::sync::watch;

/// How far ahead of ours a producer's clock may be, where answers are kept long enough.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3_600);

/// What an instance accepts.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) trusted_producers: Vec<TrustedProducer>,
    pub(crate) reply_prefixes: Vec<String>,
    /// How long answers are kept. What was issued longer ago may have been answered and forgotten.
    pub(crate) answers_kept: watch::Receiver<Duration>,
}

/// A message as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) kind: Kind,
    pub(crate) subject: &'a str,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) body: &'a [u8],
}

/// What could be told about a message before reading it as a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// To whom an answer can go. `None` when the id cannot be read, or when the message is not to be trusted:
    /// answering a stranger would let him occupy another handoff's id.
    pub(crate) answer_to: Option<HandoffId>,
    /// Where a copy of the answer goes, if that is readable and allowed.
    pub(crate) reply_to: Option<String>,
    pub(crate) encoding: Encoding,
    pub(crate) trace_id: Option<String>,
}

/// A handoff to be worked on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    pub(crate) handoff: Handoff,
    pub(crate) encoding: Encoding,
    pub(crate) trace_id: String,
    /// The producer gave the server the id, so a second copy was dropped there while it was young.
    pub(crate) deduplicated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) identity: Identity,
}

impl Policy {
    /// Decides. The order matters: who sent it comes before what it says.
    pub(crate) fn admit(&self, arrived: &Arrived<'_>, now: OffsetDateTime) -> Result<Admitted, Refused> {
        let (identity, body) = self.identify(arrived)?;
        let refused = |refusal| Refused { refusal, identity: identity.clone() };
        let handoff = Handoff::decode(arrived.kind, &body).map_err(refused)?;
        self.check(&handoff, now).map_err(refused)?;
        // As the server reads it: this spelling of the header, this spelling of the id.
        let deduplicated = arrived
            .headers
            .and_then(|headers| headers.get(headers::MSG_ID))
            .is_some_and(|id| id.as_str() == handoff.id.to_string());
        let trace_id = identity.trace_id.unwrap_or_else(|| handoff.id.trace_id());
        Ok(Admitted { handoff, encoding: identity.encoding, trace_id, deduplicated })
    }

    /// Who may be answered about a message that is not going to be worked on.
    pub(crate) fn identity(&self, arrived: &Arrived<'_>) -> Identity {
        match self.identify(arrived) {
            Ok((identity, _)) => identity,
            Err(refused) => refused.identity,
        }
    }

    fn identify<'b>(&self, arrived: &Arrived<'b>) -> Result<(Identity, Body<'b>), Refused> {
        let content_type = headers::get_any_case(arrived.headers, headers::CONTENT_TYPE);
        let encoding = Encoding::from_content_type(content_type);
        let body = Body::inspect(encoding.unwrap_or_default(), arrived.body);
        let mut identity = Identity {
            answer_to: None,
            reply_to: None,
            encoding: encoding.unwrap_or_default(),
            trace_id: headers::trace_id(arrived.headers).map(str::to_owned),
        };
        // The content type is not signed: with another one a stranger could have a good body refused.
        let trusted = match encoding {
            Err(_) if !self.trusted_producers.is_empty() => Err(signature::SignatureError::Mismatch),
            Ok(_) | Err(_) => self.trust(arrived, &body),
        };
        if let Err(error) = trusted {
            let refusal = Refusal::new(ErrorCode::UntrustedProducer, error.to_string());
            return Err(Refused { refusal, identity });
        }
        // A body that cannot be read to its id may still have it as its message id.
        identity.answer_to = body.glimpse().handoff_id.or_else(|| {
            headers::get_any_case(arrived.headers, headers::MSG_ID).and_then(|id| id.parse().ok())
        });
        identity.reply_to = body.glimpse().reply_to.clone().filter(|subject| self.may_reply_to(subject));
        match encoding {
            Ok(_) => Ok((identity, body)),
            Err(unknown) => Err(Refused { refusal: Refusal::invalid(unknown.to_string()), identity }),
        }
    }

    /// P2: with trusted producers set, only what one of them signed is a handoff.
    fn trust(&self, arrived: &Arrived<'_>, body: &Body<'_>) -> Result<(), signature::SignatureError> {
        if self.trusted_producers.is_empty() {
            return Ok(());
        }
        let header = headers::get_any_case(arrived.headers, headers::SIGNATURE);
        let signed = Signed::of(arrived.subject, body.glimpse(), arrived.body);
        // What cannot be read cannot have been signed as it is.
        let signed = signed.ok_or(signature::SignatureError::Mismatch)?;
        signature::verify(&self.trusted_producers, header, &signed)
    }

    fn check(&self, handoff: &Handoff, now: OffsetDateTime) -> Result<(), Refusal> {
        let age = now - handoff.issued_at.at();
        let kept = *self.answers_kept.borrow();
        let skew = MAX_CLOCK_SKEW.min(kept / 4);
        // By a clock that is ahead it would be younger than it is.
        let fresh_for = kept.saturating_sub(skew);
        if age >= fresh_for {
            let kept = humantime::format_duration(fresh_for);
            let message = format!(
                "issued at {}, longer ago than answers are kept ({kept}): it may have been answered before; publish a new handoff",
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
        const LONGEST: usize = 256;
        let plain = |token: &str| {
            !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !b"*>".contains(&byte))
        };
        subject.len() <= LONGEST
            && subject.split('.').all(plain)
            && self.reply_prefixes.iter().any(|prefix| subject.starts_with(prefix.as_str()))
    }
}

#[cfg(test)]
mod tests;
