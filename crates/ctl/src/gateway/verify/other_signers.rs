//! Heads that other gateways on the same store have signed, or gateways of other stores on the same NATS.

use std::collections::BTreeMap;

use subjects::audit::{ChainError, Head, pruning_is_signed};

/// Compares heads of unknown signers with the rows of a chain. A signer whose head matches a row is a gateway
/// of this store, since no other audit has a row with that hash; then all its heads have to match.
#[derive(Debug)]
pub(super) struct OtherSigners {
    heads: Vec<Head>,
    /// The heads of rows that were not reached yet, by row.
    ahead: BTreeMap<i64, Vec<Head>>,
    signers: BTreeMap<String, Signer>,
}

#[derive(Debug, Default)]
struct Signer {
    matched: usize,
    /// How many heads it has of rows that were not pruned.
    heads: usize,
    contradicted: Option<ChainError>,
}

impl OtherSigners {
    /// Compares heads with a chain that begins after a row. Their signatures have to be valid.
    pub(super) fn new(heads: Vec<Head>, pruned_seq: i64) -> Self {
        let (mut ahead, mut signers) = (BTreeMap::<i64, Vec<Head>>::new(), BTreeMap::<String, Signer>::new());
        for head in heads.iter().filter(|head| head.seq > pruned_seq) {
            signers.entry(head.key.clone()).or_default().heads += 1;
            ahead.entry(head.seq).or_default().push(head.clone());
        }
        Self { heads, ahead, signers }
    }

    /// Compares the next row.
    pub(super) fn check(&mut self, row: i64, hash: &str) {
        for head in self.ahead.remove(&row).unwrap_or_default() {
            let signer = self.signers.entry(head.key).or_default();
            if head.hash == hash {
                signer.matched += 1;
            } else {
                signer.contradicted.get_or_insert(ChainError::HeadMismatch(row));
            }
        }
    }

    /// Compares the end of the chain. Returns how many heads of gateways of this store matched, and what they
    /// contradict first.
    pub(super) fn finish(&mut self, last: i64) -> (usize, Option<ChainError>) {
        for (row, heads) in std::mem::take(&mut self.ahead) {
            for head in heads {
                let signer = self.signers.entry(head.key).or_default();
                signer.contradicted.get_or_insert(ChainError::Truncated(row, last));
            }
        }
        let own = || self.signers.values().filter(|signer| signer.matched > 0);
        let contradicted = own().filter_map(|signer| signer.contradicted.clone());
        (own().map(|signer| signer.matched).sum(), contradicted.min_by_key(ChainError::row))
    }

    /// Returns whether a gateway of this store has confirmed that the rows up to one were pruned. Known after
    /// the end of the chain.
    pub(super) fn confirm_pruning(&self, pruned_seq: i64, pruned_hash: &str) -> bool {
        let is_own = |head: &&Head| self.signers.get(&head.key).is_some_and(|signer| signer.matched > 0);
        let own: Vec<Head> = self.heads.iter().filter(is_own).cloned().collect();
        pruning_is_signed(pruned_seq, pruned_hash, &own)
    }

    /// Returns what is to be said about signers of whom nothing is known.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let unknown = self.signers.iter().filter(|(_, signer)| signer.matched == 0);
        unknown.map(|(key, signer)| {
            format!(
                "{} heads signed by {key} match no row: they are of another audit, or of rows that are gone; \
                 pass --key {key} if it is a gateway of this store",
                signer.heads
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(key: &str, seq: i64, hash: &str) -> Head {
        let pruned_hash = String::new();
        let (key, hash, signature) = (key.to_owned(), hash.to_owned(), String::new());
        Head { seq, hash, pruned_seq: 0, pruned_hash, at: 0, key, signature }
    }

    /// Compares heads with the rows `r1`, `r2` and so on.
    fn compare(heads: &[(&str, i64, &str)], rows: i64) -> (usize, Option<ChainError>, Vec<String>) {
        let heads = heads.iter().map(|(key, seq, hash)| head(key, *seq, hash)).collect();
        let mut others = OtherSigners::new(heads, 0);
        (1..=rows).for_each(|row| others.check(row, &format!("r{row}")));
        let (matched, contradicted) = others.finish(rows);
        (matched, contradicted, others.warnings().collect())
    }

    #[test]
    fn rows_that_another_gateway_sealed_are_missed() {
        let sealed = [("B", 2, "r2"), ("B", 5, "r5")];
        assert_eq!(compare(&sealed, 5), (2, None, Vec::new()));
        assert_eq!(compare(&sealed, 3).1, Some(ChainError::Truncated(5, 3)));
        let replaced = [("B", 2, "r2"), ("B", 4, "other"), ("B", 3, "other")];
        assert_eq!(compare(&replaced, 5).1, Some(ChainError::HeadMismatch(3)));
    }

    /// Another store on the same NATS.
    #[test]
    fn heads_of_another_audit_prove_nothing() {
        let (matched, contradicted, warnings) = compare(&[("C", 2, "x"), ("C", 9, "y"), ("B", 1, "r1")], 3);
        assert_eq!((matched, contradicted), (1, None));
        assert!(warnings.len() == 1 && warnings[0].starts_with("2 heads signed by C"), "{warnings:?}");
    }

    #[test]
    fn pruning_is_confirmed_by_gateways_of_this_store_only() {
        let pruned = |key: &str, hash: &str| Head {
            pruned_seq: 4,
            pruned_hash: "r4".to_owned(),
            ..head(key, 5, hash)
        };
        for (hash, is_confirmed) in [("r5", true), ("other", false)] {
            let mut others = OtherSigners::new(vec![pruned("B", hash)], 4);
            others.check(5, "r5");
            others.finish(5);
            assert_eq!(others.confirm_pruning(4, "r4"), is_confirmed);
        }
    }
}
