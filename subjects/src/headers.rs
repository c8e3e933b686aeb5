//! Names of the NATS headers in this contract. NATS header names are case-sensitive.

use async_nats::{HeaderMap, HeaderName, header};

pub const CONTENT_TYPE: &str = "Content-Type";
pub const MSG_ID: &str = "Nats-Msg-Id";
pub const SIGNATURE: &str = "Cynode-Signature";
/// A signed lease: on whose behalf the handoff is made.
pub const LEASE: &str = "Cynode-Lease";
/// Of a chunk of a job's log: the attempt that wrote it.
pub const LOG_ATTEMPT: &str = "Cynode-Log-Attempt";
/// Of a chunk of a job's log: its number in the attempt, counted from 1.
pub const LOG_NUMBER: &str = "Cynode-Log-Number";
/// W3C trace context. Written in lowercase; read in any case.
pub const TRACEPARENT: &str = "traceparent";

/// Compare-and-set: the publish succeeds only if the last message on [`EXPECTED_SUBJECT`] has this sequence.
pub const EXPECTED_SEQUENCE: HeaderName = header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
/// The subject filter to which [`EXPECTED_SEQUENCE`] applies. May contain wildcards.
pub const EXPECTED_SUBJECT: HeaderName =
    HeaderName::from_static("Nats-Expected-Last-Subject-Sequence-Subject");

/// The publish succeeds only if this stream stores the message.
pub const EXPECTED_STREAM: HeaderName = header::NATS_EXPECTED_STREAM;

/// Returns the first value of a header, comparing its name without regard to case.
pub fn get_any_case<'h>(headers: Option<&'h HeaderMap>, name: &str) -> Option<&'h str> {
    headers?
        .iter()
        .find(|(known, _)| AsRef::<str>::as_ref(*known).eq_ignore_ascii_case(name))?
        .1
        .first()
        .map(|value| value.as_str())
}

/// Returns the trace id of the `traceparent` header, or `None` if the header is missing or invalid.
pub fn trace_id(headers: Option<&HeaderMap>) -> Option<&str> {
    let mut parts = get_any_case(headers, TRACEPARENT)?.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let real = |text: &str| text.bytes().any(|byte| byte != b'0');
    (hex(version, 2) && version != "ff" && hex(trace, 32) && real(trace) && hex(span, 16) && real(span))
        .then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_read_in_any_case_and_only_if_valid() {
        let read = |name: &str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            trace_id(Some(&headers)).map(str::to_owned)
        };
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(read("traceparent", &good).as_deref(), Some(trace));
        assert_eq!(read("Traceparent", &good).as_deref(), Some(trace));
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good.replace(trace, &"0".repeat(32)),
            &good.replace("00-4", "ff-4"),
        ] {
            assert_eq!(read("traceparent", bad), None, "{bad}");
        }
    }
}
