//! The audit of tool calls: rows, the chain that binds them, and the signed head that is published outside the store.
//!
//! Each row's hash covers the row before it, so a row that is changed, taken out or moved breaks the chain from there on.
//! Whoever can write the store could still make a whole new chain; the heads, signed and kept elsewhere, tell.

use data_encoding::{BASE64, HEXLOWER};
use nkeys::KeyPair;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Where heads are published.
pub const HEAD_SUBJECT: &str = "cynode.audit.head";

/// One call of a tool, whatever became of it. It never holds arguments or results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Counts from one, without gaps.
    pub seq: i64,
    /// Microseconds since 1970, UTC.
    pub created_at: i64,
    pub call_id: String,
    /// `project_manager`, `project_analyst`, `sandbox`, `admin`, `user`, or `unknown`.
    pub agent: String,
    /// The id of the token, when there was one that we know.
    pub subject: Option<String>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub tool: String,
    /// `allow` or `deny`.
    pub decision: String,
    /// `success`, `failure`, `denied`, or `unknown` when the gateway ended while the call ran.
    pub status: String,
    pub error_type: Option<String>,
    pub duration_us: i64,
    /// SHA-256 of the arguments in canonical form.
    pub arguments_digest: Option<String>,
    pub trace_id: Option<String>,
    /// Of the row before and of all of the above.
    pub hash: String,
}

impl Row {
    /// What the hash of this row must be after `previous`.
    pub fn hash_after(&self, previous: &str) -> String {
        // A tuple and not the struct: its order is the order that is hashed, whatever the struct looks like later.
        let fields = (
            (previous, self.seq, self.created_at, &self.call_id, &self.agent, &self.subject, &self.user_id),
            (&self.task_id, &self.project_id, &self.run_id, &self.job_id, &self.tool, &self.decision),
            (&self.status, &self.error_type, self.duration_us, &self.arguments_digest, &self.trace_id),
        );
        // Strings, numbers and nothing: these always become JSON.
        let bytes = serde_json::to_vec(&fields).unwrap_or_default();
        HEXLOWER.encode(&Sha256::digest(bytes))
    }
}

/// Where the chain stood at a moment, signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    pub seq: i64,
    pub hash: String,
    /// Rows up to this one were taken out because they were old enough, and this was the hash of the last of them.
    pub pruned_seq: i64,
    pub pruned_hash: String,
    /// Microseconds since 1970, UTC.
    pub at: i64,
    /// The public nkey of the signer.
    pub key: String,
    /// Base64, Ed25519.
    pub signature: String,
}

impl Head {
    fn text(&self) -> String {
        let Self { seq, hash, pruned_seq, pruned_hash, at, key, .. } = self;
        format!("cynode audit head\n{seq}\n{hash}\n{pruned_seq}\n{pruned_hash}\n{at}\n{key}")
    }

    pub fn sign(mut self, key: &KeyPair) -> Result<Self, nkeys::error::Error> {
        self.key = key.public_key();
        self.signature = BASE64.encode(&key.sign(self.text().as_bytes())?);
        Ok(self)
    }

    /// Whether whoever holds `key` said this.
    pub fn is_signed_by(&self, key: &str) -> bool {
        let signature = BASE64.decode(self.signature.as_bytes());
        match (KeyPair::from_public_key(key), signature) {
            (Ok(pair), Ok(signature)) => {
                self.key == key && pair.verify(self.text().as_bytes(), &signature).is_ok()
            }
            _ => false,
        }
    }
}

/// The first thing that is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("row {0} is missing")]
    Missing(i64),
    #[error("row {0} was changed, or its predecessor was")]
    Changed(i64),
    #[error("row {0} differs from the one in a signed audit head")]
    NotAsSigned(i64),
    #[error("rows up to {0} are in a signed audit head, but the chain ends at {1}")]
    CutOff(i64, i64),
}

impl Broken {
    /// The first row that is wrong.
    pub fn row(&self) -> i64 {
        match self {
            Self::Missing(row) | Self::Changed(row) | Self::NotAsSigned(row) => *row,
            Self::CutOff(_, last) => last + 1,
        }
    }
}

/// Whether rows up to `pruned_seq` were taken out by whoever signs, and not by somebody who wanted them gone.
pub fn pruning_is_signed(pruned_seq: i64, pruned_hash: &str, heads: &[Head]) -> bool {
    pruned_seq == 0
        || heads.iter().any(|head| (head.pruned_seq, head.pruned_hash.as_str()) == (pruned_seq, pruned_hash))
}

/// Follows the chain row by row, and holds it against signed heads.
#[derive(Clone, Debug)]
pub struct Chain {
    seq: i64,
    hash: String,
    /// Still ahead of us, in order.
    heads: Vec<Head>,
    met: usize,
}

impl Chain {
    /// A chain begins after the rows that were pruned. Only heads whose signature was checked may be given.
    pub fn begin(pruned_seq: i64, pruned_hash: &str, mut heads: Vec<Head>) -> Self {
        heads.retain(|head| head.seq > pruned_seq);
        heads.sort_by_key(|head| std::cmp::Reverse(head.seq));
        Self { seq: pruned_seq, hash: pruned_hash.to_owned(), heads, met: 0 }
    }

    pub fn follow(&mut self, row: &Row) -> Result<(), Broken> {
        let expected = self.seq + 1;
        if row.seq != expected {
            return Err(if row.seq > expected {
                Broken::Missing(expected)
            } else {
                Broken::Changed(row.seq)
            });
        }
        if row.hash != row.hash_after(&self.hash) {
            return Err(Broken::Changed(row.seq));
        }
        while let Some(head) = self.heads.pop_if(|head| head.seq == row.seq) {
            if head.hash != row.hash {
                return Err(Broken::NotAsSigned(row.seq));
            }
            self.met += 1;
        }
        self.seq = row.seq;
        self.hash.clone_from(&row.hash);
        Ok(())
    }

    /// The number of the last row, and how many signed heads were met on the way.
    pub fn end(self) -> Result<(i64, usize), Broken> {
        match self.heads.first() {
            Some(head) => Err(Broken::CutOff(head.seq, self.seq)),
            None => Ok((self.seq, self.met)),
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
                hash: String::new(),
            };
            row.hash = row.hash_after(&previous);
            previous.clone_from(&row.hash);
            rows.push(row);
        }
        rows
    }

    fn check(rows: &[Row], heads: Vec<Head>) -> Result<(i64, usize), Broken> {
        let mut chain = Chain::begin(0, "", heads);
        rows.iter().try_for_each(|row| chain.follow(row))?;
        chain.end()
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
    fn the_first_bad_row_is_named() {
        let good = rows(6);
        assert_eq!(check(&good, Vec::new()), Ok((6, 0)));
        let mut edited = good.clone();
        edited[2].status = "failure".into();
        assert_eq!(check(&edited, Vec::new()), Err(Broken::Changed(3)));
        let mut without = good.clone();
        without.remove(3);
        assert_eq!(check(&without, Vec::new()), Err(Broken::Missing(4)));
        let mut swapped = good.clone();
        swapped.swap(1, 4);
        (swapped[1].seq, swapped[4].seq) = (2, 5);
        assert_eq!(check(&swapped, Vec::new()), Err(Broken::Changed(2)));
    }

    #[test]
    fn rows_are_gone_with_a_signature_or_they_are_missing() {
        let mut head = head(&rows(6)[5], &KeyPair::new_user());
        assert!(pruning_is_signed(0, "", &[]));
        // That a row was there does not say that it may go.
        assert!(!pruning_is_signed(6, &head.hash.clone(), std::slice::from_ref(&head)));
        (head.pruned_seq, head.pruned_hash) = (4, "hash".into());
        assert!(pruning_is_signed(4, "hash", std::slice::from_ref(&head)));
        assert!(!pruning_is_signed(4, "other", std::slice::from_ref(&head)));
    }

    #[test]
    fn a_chain_that_was_made_anew_or_cut_does_not_match_its_heads() {
        let key = KeyPair::new_user();
        let good = rows(6);
        let heads = vec![head(&good[2], &key), head(&good[5], &key)];
        assert!(heads.iter().all(|head| head.is_signed_by(&key.public_key())));
        assert_eq!(check(&good, heads.clone()), Ok((6, 2)));
        assert_eq!(check(&good[..5], heads.clone()), Err(Broken::CutOff(6, 5)));
        assert_eq!(Broken::CutOff(6, 5).row(), 6);
        let mut anew = good;
        anew[0].tool = "db.task.list".into();
        let mut previous = String::new();
        for row in &mut anew {
            row.hash = row.hash_after(&previous);
            previous.clone_from(&row.hash);
        }
        assert_eq!(check(&anew, heads.clone()), Err(Broken::NotAsSigned(3)));
        let mut forged = heads[0].clone();
        forged.hash.clone_from(&anew[2].hash);
        assert!(!forged.is_signed_by(&key.public_key()));
        assert!(!forged.sign(&KeyPair::new_user()).expect("signed").is_signed_by(&key.public_key()));
    }
}
