//! Signatures of handoffs: `Cynode-Signature: <public nkey>.<base64 of the Ed25519 signature>`.
//!
//! The signed text is `subject \n handoff_id \n issued_at \n sha256(body)`, with the id in canonical
//! lowercase form, `issued_at` exactly as in the body and the digest in lowercase hex. It covers the subject,
//! so that a handoff cannot be moved to another queue, and the body, so that nothing in it can be changed. If
//! the handoff has a lease, `\n` and the lease follow, so that the lease cannot be taken away.

use data_encoding::{BASE64, HEXLOWER};
use nkeys::KeyPair;
use sha2::{Digest, Sha256};

use crate::{EnvelopeFields, HandoffId};

/// The parts of a handoff that its signature covers.
#[derive(Clone, Copy, Debug)]
pub struct SignatureBase<'a> {
    pub subject: &'a str,
    pub handoff_id: HandoffId,
    pub issued_at: &'a str,
    pub body: &'a [u8],
    /// The header `Cynode-Lease`.
    pub lease: Option<&'a str>,
}

impl<'a> SignatureBase<'a> {
    /// Returns `None` if the id or the time of issue could not be read from the body.
    pub fn new(subject: &'a str, fields: &'a EnvelopeFields, body: &'a [u8]) -> Option<Self> {
        let handoff_id = fields.handoff_id?;
        let issued_at = fields.issued_at.as_deref()?;
        Some(Self { subject, handoff_id, issued_at, body, lease: None })
    }

    /// Adds the lease that the handoff carries.
    #[must_use]
    pub fn with_lease(self, lease: Option<&'a str>) -> Self {
        Self { lease, ..self }
    }

    /// Returns the text that is signed.
    pub fn text(&self) -> String {
        let digest = HEXLOWER.encode(&Sha256::digest(self.body));
        let text = format!("{}\n{}\n{}\n{digest}", self.subject, self.handoff_id, self.issued_at);
        match self.lease {
            Some(lease) => format!("{text}\n{lease}"),
            None => text,
        }
    }

    /// Returns the value of the signature header.
    pub fn sign(&self, key: &KeyPair) -> Result<String, nkeys::error::Error> {
        let signature = key.sign(self.text().as_bytes())?;
        Ok(format!("{}.{}", key.public_key(), BASE64.encode(&signature)))
    }
}

/// A producer whose signed handoffs are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProducer {
    /// The public nkey.
    pub key: String,
    /// The subjects on which the producer may publish. `None` means all handoff subjects.
    pub subjects: Option<Vec<String>>,
}

impl TrustedProducer {
    fn may_publish(&self, subject: &str) -> bool {
        self.subjects.as_ref().is_none_or(|subjects| subjects.iter().any(|allowed| allowed == subject))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the handoff carries no signature")]
    Missing,
    #[error("the signature header is not <nkey>.<base64>")]
    Malformed,
    #[error("the handoff is signed by a key that is not trusted")]
    UnknownKey,
    #[error("the signing key is not trusted for this subject")]
    NotForThisSubject,
    #[error("the signature does not match the handoff")]
    Mismatch,
}

/// Verifies a signature header against the trusted producers.
pub fn verify(
    trusted: &[TrustedProducer],
    header: Option<&str>,
    signed: &SignatureBase<'_>,
) -> Result<(), SignatureError> {
    let header = header.ok_or(SignatureError::Missing)?;
    let (key, signature) = header.split_once('.').ok_or(SignatureError::Malformed)?;
    let signature = BASE64.decode(signature.as_bytes()).map_err(|_| SignatureError::Malformed)?;
    let producer = trusted.iter().find(|producer| producer.key == key).ok_or(SignatureError::UnknownKey)?;
    if !producer.may_publish(signed.subject) {
        return Err(SignatureError::NotForThisSubject);
    }
    let key = KeyPair::from_public_key(key).map_err(|_| SignatureError::Malformed)?;
    key.verify(signed.text().as_bytes(), &signature).map_err(|_| SignatureError::Mismatch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0193f2c0-0000-7000-8000-0000000000aa";

    fn signed(body: &[u8]) -> SignatureBase<'_> {
        SignatureBase {
            subject: "pma.handoff.chat",
            handoff_id: ID.parse().expect("an id"),
            issued_at: "2026-11-14T10:00:00+00:00",
            body,
            lease: None,
        }
    }

    fn trusted(key: &KeyPair, subjects: Option<Vec<String>>) -> Vec<TrustedProducer> {
        vec![TrustedProducer { key: key.public_key(), subjects }]
    }

    /// P2: a signature is valid only for the exact handoff on the subject for which it was made.
    #[test]
    fn any_change_breaks_the_signature() {
        let key = KeyPair::new_user();
        let header = signed(b"body").sign(&key).expect("signed");
        let producers = trusted(&key, None);
        let check = |signed: &SignatureBase<'_>| verify(&producers, Some(&header), signed);
        assert_eq!(check(&signed(b"body")), Ok(()));
        assert_eq!(check(&signed(b"Body")), Err(SignatureError::Mismatch));
        assert_eq!(
            check(&SignatureBase { subject: "pma.handoff.plan", ..signed(b"body") }),
            Err(SignatureError::Mismatch)
        );
        assert_eq!(
            check(&SignatureBase { issued_at: "2026-11-14T10:00:00Z", ..signed(b"body") }),
            Err(SignatureError::Mismatch)
        );
        assert_eq!(check(&signed(b"body").with_lease(Some("lease"))), Err(SignatureError::Mismatch));
        let with_lease = signed(b"body").with_lease(Some("lease")).sign(&key).expect("signed");
        let check_leased = |lease| verify(&producers, Some(&with_lease), &signed(b"body").with_lease(lease));
        assert_eq!(check_leased(Some("lease")), Ok(()));
        assert_eq!(check_leased(Some("other")), Err(SignatureError::Mismatch));
        assert_eq!(check_leased(None), Err(SignatureError::Mismatch));
        let other = "0193f2c0-0000-7000-8000-0000000000ab".parse().expect("an id");
        assert_eq!(
            check(&SignatureBase { handoff_id: other, ..signed(b"body") }),
            Err(SignatureError::Mismatch)
        );
    }

    #[test]
    fn unknown_keys_and_malformed_headers_have_distinct_errors() {
        let (key, unknown_key) = (KeyPair::new_user(), KeyPair::new_user());
        let producers = trusted(&key, Some(vec!["pa.verify".into()]));
        let check = |header: Option<&str>| verify(&producers, header, &signed(b"body"));
        assert_eq!(check(None), Err(SignatureError::Missing));
        assert_eq!(check(Some("nonsense")), Err(SignatureError::Malformed));
        assert_eq!(check(Some(&format!("{}.%%%", key.public_key()))), Err(SignatureError::Malformed));
        let by_unknown_key = signed(b"body").sign(&unknown_key).expect("signed");
        assert_eq!(check(Some(&by_unknown_key)), Err(SignatureError::UnknownKey));
        let elsewhere = signed(b"body").sign(&key).expect("signed");
        assert_eq!(check(Some(&elsewhere)), Err(SignatureError::NotForThisSubject));
    }
}
