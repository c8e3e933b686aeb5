//! The audit of tool calls: rows, the hash chain over them, and the signed heads that are published outside
//! the store.
//!
//! The hash of each row covers the previous row, so a row that is changed, removed or moved breaks the chain
//! from there on. An attacker with write access to the store could replace the whole chain; the signed heads,
//! which are stored elsewhere, detect that.

use data_encoding::{BASE64, HEXLOWER};
use nkeys::KeyPair;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::encode_json;

/// The subject on which heads are published.
pub const HEAD_SUBJECT: &str = "cynode.audit.head";

/// The audit row of one tool call, whatever its outcome. Never contains arguments or results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Counted from 1, without gaps.
    pub seq: i64,
    /// Microseconds since 1970, UTC.
    pub created_at: i64,
    pub call_id: String,
    /// `project_manager`, `project_analyst`, `sandbox`, `orchestrator`, `admin`, `user`, or `unknown`.
    pub agent: String,
    /// The id of the token, if the call had a known one.
    pub subject: Option<String>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub tool: String,
    /// `allow` or `deny`.
    pub decision: String,
    /// `success`, `failure`, `denied`, or `unknown` if the gateway stopped during the call.
    pub status: String,
    pub error_type: Option<String>,
    pub duration_us: i64,
    /// SHA-256 of the arguments in canonical JSON.
    pub arguments_digest: Option<String>,
    pub trace_id: Option<String>,
    /// The lease under which the call was made.
    #[serde(default)]
    pub lease_id: Option<String>,
    /// The memory profile of the call, unless it is `default`.
    #[serde(default)]
    pub profile: Option<String>,
    /// The node that decided on the call, if not the gateway did.
    #[serde(default)]
    pub node: Option<String>,
    /// The number of the line in the node's audit of the lease.
    #[serde(default)]
    pub node_line: Option<i64>,
    /// SHA-256 over the hash of the previous row and all fields above.
    pub hash: String,
}

impl Row {
    /// Returns the hash that this row must have after a row with the hash `previous`.
    pub fn hash_after(&self, previous: &str) -> String {
        // A tuple instead of the struct, so that changes to the struct do not change the hashed order.
        let fields = (
            (previous, self.seq, self.created_at, &self.call_id, &self.agent, &self.subject, &self.user_id),
            (&self.task_id, &self.project_id, &self.run_id, &self.job_id, &self.tool, &self.decision),
            (&self.status, &self.error_type, self.duration_us, &self.arguments_digest, &self.trace_id),
        );
        // Rows without a lease, a profile and a node have the same hash as before these were introduced.
        let (lease, profile, line) = (&self.lease_id, &self.profile, &self.node_line);
        let hashed = match (lease, profile, &self.node) {
            (lease, profile, Some(node)) => {
                encode_json(&(fields.0, fields.1, fields.2, (lease, profile, node, line)))
            }
            (lease, Some(profile), None) => encode_json(&(fields.0, fields.1, fields.2, (lease, profile))),
            (Some(lease), None, None) => encode_json(&(fields.0, fields.1, fields.2, (lease,))),
            (None, None, None) => encode_json(&fields),
        };
        HEXLOWER.encode(&Sha256::digest(hashed))
    }
}

/// The signed head of the chain at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    pub seq: i64,
    pub hash: String,
    /// The last row that was pruned because of its age; 0 if none was.
    pub pruned_seq: i64,
    /// The hash of that row.
    pub pruned_hash: String,
    /// Microseconds since 1970, UTC.
    pub at: i64,
    /// The public nkey of the signer.
    pub key: String,
    /// The Ed25519 signature in Base64.
    pub signature: String,
}

impl Head {
    fn signed_text(&self) -> String {
        let Self { seq, hash, pruned_seq, pruned_hash, at, key, .. } = self;
        format!("cynode audit head\n{seq}\n{hash}\n{pruned_seq}\n{pruned_hash}\n{at}\n{key}")
    }

    /// Sets the public key and the signature.
    pub fn sign(mut self, key: &KeyPair) -> Result<Self, nkeys::error::Error> {
        self.key = key.public_key();
        self.signature = BASE64.encode(&key.sign(self.signed_text().as_bytes())?);
        Ok(self)
    }

    /// Returns whether the head carries a valid signature by `key`, a public nkey.
    pub fn is_signed_by(&self, key: &str) -> bool {
        let signature = BASE64.decode(self.signature.as_bytes());
        match (KeyPair::from_public_key(key), signature) {
            (Ok(pair), Ok(signature)) => {
                self.key == key && pair.verify(self.signed_text().as_bytes(), &signature).is_ok()
            }
            _ => false,
        }
    }
}

/// The first error in a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("row {0} is missing")]
    Missing(i64),
    #[error("row {0} was changed, or its predecessor was")]
    Changed(i64),
    #[error("row {0} differs from the one in a signed audit head")]
    HeadMismatch(i64),
    #[error("rows up to {0} are in a signed audit head, but the chain ends at {1}")]
    Truncated(i64, i64),
}

impl ChainError {
    /// Returns the sequence number of the first bad or missing row.
    pub fn row(&self) -> i64 {
        match self {
            Self::Missing(row) | Self::Changed(row) | Self::HeadMismatch(row) => *row,
            Self::Truncated(_, last) => last + 1,
        }
    }
}

/// Returns whether a signed head confirms that the rows up to `pruned_seq` were pruned. If none does, they
/// may have been deleted by an attacker.
pub fn pruning_is_signed(pruned_seq: i64, pruned_hash: &str, heads: &[Head]) -> bool {
    pruned_seq == 0
        || heads.iter().any(|head| (head.pruned_seq, head.pruned_hash.as_str()) == (pruned_seq, pruned_hash))
}

/// Verifies a chain row by row and compares it with signed heads.
#[derive(Clone, Debug)]
pub struct ChainVerifier {
    seq: i64,
    hash: String,
    /// The heads that were not reached yet, highest sequence number first.
    heads: Vec<Head>,
    /// The number of heads that matched.
    matched: usize,
}

impl ChainVerifier {
    /// Starts after the last pruned row. The caller must have verified the signatures of `heads`.
    pub fn new(pruned_seq: i64, pruned_hash: &str, mut heads: Vec<Head>) -> Self {
        heads.retain(|head| head.seq > pruned_seq);
        heads.sort_by_key(|head| std::cmp::Reverse(head.seq));
        Self { seq: pruned_seq, hash: pruned_hash.to_owned(), heads, matched: 0 }
    }

    /// Checks the next row. Rows must be passed in order of their sequence numbers.
    pub fn check(&mut self, row: &Row) -> Result<(), ChainError> {
        let expected = self.seq + 1;
        if row.seq != expected {
            return Err(if row.seq > expected {
                ChainError::Missing(expected)
            } else {
                ChainError::Changed(row.seq)
            });
        }
        if row.hash != row.hash_after(&self.hash) {
            return Err(ChainError::Changed(row.seq));
        }
        while let Some(head) = self.heads.pop_if(|head| head.seq == row.seq) {
            if head.hash != row.hash {
                return Err(ChainError::HeadMismatch(row.seq));
            }
            self.matched += 1;
        }
        self.seq = row.seq;
        self.hash.clone_from(&row.hash);
        Ok(())
    }

    /// Returns the sequence number of the last row and the number of signed heads that matched. Fails if
    /// there is a head beyond the last row.
    pub fn finish(self) -> Result<(i64, usize), ChainError> {
        match self.heads.first() {
            Some(head) => Err(ChainError::Truncated(head.seq, self.seq)),
            None => Ok((self.seq, self.matched)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: i64) -> Vec<Row> {
        let mut previous = String::new();
        let mut rows = Vec::new();
        for seq in 1..=count {
            let mut row = Row {
                seq,
                created_at: seq * 10,
                call_id: format!("call-{seq}"),
                agent: "project_manager".into(),
                subject: Some("token".into()),
                user_id: None,
                task_id: None,
                project_id: None,
                run_id: None,
                job_id: None,
                tool: "db.task.get".into(),
                decision: "allow".into(),
                status: "success".into(),
                error_type: None,
                duration_us: 5,
                arguments_digest: None,
                trace_id: None,
                lease_id: (seq % 2 == 0).then(|| "lease".into()),
                profile: (seq % 3 == 0).then(|| "team-a".into()),
                node: (seq % 4 == 0).then(|| "node-1".into()),
                node_line: (seq % 4 == 0).then_some(seq),
                hash: String::new(),
            };
            row.hash = row.hash_after(&previous);
            previous.clone_from(&row.hash);
            rows.push(row);
        }
        rows
    }

    fn check(rows: &[Row], heads: Vec<Head>) -> Result<(i64, usize), ChainError> {
        let mut chain = ChainVerifier::new(0, "", heads);
        rows.iter().try_for_each(|row| chain.check(row))?;
        chain.finish()
    }

    fn head(row: &Row, key: &KeyPair) -> Head {
        let head = Head {
            seq: row.seq,
            hash: row.hash.clone(),
            pruned_seq: 0,
            pruned_hash: String::new(),
            at: 1,
            key: String::new(),
            signature: String::new(),
        };
        head.sign(key).expect("a signing key")
    }

    #[test]
    fn the_first_bad_row_is_reported() {
        let good = rows(6);
        assert_eq!(check(&good, Vec::new()), Ok((6, 0)));
        let mut edited = good.clone();
        edited[2].status = "failure".into();
        assert_eq!(check(&edited, Vec::new()), Err(ChainError::Changed(3)));
        let mut without = good.clone();
        without.remove(3);
        assert_eq!(check(&without, Vec::new()), Err(ChainError::Missing(4)));
        let mut swapped = good.clone();
        swapped.swap(1, 4);
        (swapped[1].seq, swapped[4].seq) = (2, 5);
        assert_eq!(check(&swapped, Vec::new()), Err(ChainError::Changed(2)));
    }

    #[test]
    fn pruned_rows_need_a_signed_head() {
        let mut head = head(&rows(6)[5], &KeyPair::new_user());
        assert!(pruning_is_signed(0, "", &[]));
        // A head that only confirms the row does not confirm its pruning.
        assert!(!pruning_is_signed(6, &head.hash.clone(), std::slice::from_ref(&head)));
        (head.pruned_seq, head.pruned_hash) = (4, "hash".into());
        assert!(pruning_is_signed(4, "hash", std::slice::from_ref(&head)));
        assert!(!pruning_is_signed(4, "other", std::slice::from_ref(&head)));
    }

    #[test]
    fn a_rebuilt_or_truncated_chain_does_not_match_its_heads() {
        let key = KeyPair::new_user();
        let good = rows(6);
        let heads = vec![head(&good[2], &key), head(&good[5], &key)];
        assert!(heads.iter().all(|head| head.is_signed_by(&key.public_key())));
        assert_eq!(check(&good, heads.clone()), Ok((6, 2)));
        assert_eq!(check(&good[..5], heads.clone()), Err(ChainError::Truncated(6, 5)));
        assert_eq!(ChainError::Truncated(6, 5).row(), 6);
        let mut rebuilt = good;
        rebuilt[0].tool = "db.task.list".into();
        let mut previous = String::new();
        for row in &mut rebuilt {
            row.hash = row.hash_after(&previous);
            previous.clone_from(&row.hash);
        }
        assert_eq!(check(&rebuilt, heads.clone()), Err(ChainError::HeadMismatch(3)));
        let mut forged = heads[0].clone();
        forged.hash.clone_from(&rebuilt[2].hash);
        assert!(!forged.is_signed_by(&key.public_key()));
        assert!(!forged.sign(&KeyPair::new_user()).expect("signed").is_signed_by(&key.public_key()));
    }
}
