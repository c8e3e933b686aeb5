use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use policy::MemoryProfile;
use proptest::prelude::*;
use retrieval::{
    BackendError, MemoryBackend, Retriever, VectorBackend,
    backend::{Entry, Frequencies, Pending, ScoredEntry},
    embed::{EMBEDDER_VERSION, Slot, Vector},
};

use crate::{ENGLISH, texts};

/// Backends in memory are always ready.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a backend in memory waits for nothing"),
    }
}

fn profile(name: &str) -> MemoryProfile {
    name.parse().unwrap()
}

fn retriever() -> Retriever {
    ready(Retriever::connect(Arc::new(MemoryBackend::default()), ENGLISH)).unwrap()
}

fn put(retriever: &Retriever, profile: &MemoryProfile, texts: &[(&str, &str)]) {
    let texts: Vec<(String, String)> =
        texts.iter().map(|(id, text)| ((*id).into(), (*text).into())).collect();
    ready(retriever.upsert(profile, &texts)).unwrap();
}

/// Returns ids and the bits of the scores, so that not even the last digit may differ.
fn found(retriever: &Retriever, profile: &MemoryProfile, query: &str) -> Vec<(String, u64)> {
    let hits = ready(retriever.search(profile, query, 100)).unwrap();
    hits.into_iter().map(|ScoredEntry { id, score }| (id, score.to_bits())).collect()
}

#[test]
fn scores_fall_with_similarity() {
    let retriever = retriever();
    let default = MemoryProfile::default();
    let texts = [
        ("same", "the lease of an agent expires"),
        ("near", "leases expire"),
        ("far", "agents write reports about everything that they did in a long week"),
        ("other", "zebra"),
    ];
    put(&retriever, &default, &texts);
    let hits = ready(retriever.search(&default, "the lease of an agent expires", 10)).unwrap();
    let ids: Vec<&str> = hits.iter().map(|hit| hit.id.as_str()).collect();
    assert_eq!(ids.get(..3), Some(["same", "near", "far"].as_slice()));
    assert!(hits.is_sorted_by(|left, right| left.score >= right.score));
    assert!(hits[0].score > 0.8 && hits[0].score <= 1.0);
}

#[test]
fn entries_are_replaced_and_removed_with_their_statistics() {
    let (changed, fresh) = (retriever(), retriever());
    let default = MemoryProfile::default();
    put(&changed, &default, &[("a", "lease of an agent"), ("b", "token of a user"), ("c", "secret key")]);
    put(&changed, &default, &[("a", "key of a node")]);
    ready(changed.remove(&default, &["b".to_owned(), "never there".to_owned()])).unwrap();
    put(&fresh, &default, &[("a", "key of a node"), ("c", "secret key")]);
    for query in ["key", "lease of an agent", "token", "secret node"] {
        assert_eq!(found(&changed, &default, query), found(&fresh, &default, query), "{query}");
    }
}

#[test]
fn limit_is_kept_and_ties_are_decided_by_id() {
    let retriever = retriever();
    let default = MemoryProfile::default();
    put(&retriever, &default, &[("c", "a lease"), ("a", "a lease"), ("b", "a lease")]);
    let hits = ready(retriever.search(&default, "lease", 2)).unwrap();
    assert_eq!(hits.into_iter().map(|hit| hit.id).collect::<Vec<_>>(), ["a", "b"]);
}

/// A backend that was filled by another version, or that cannot be reached.
struct Unusable(Option<u32>);

impl VectorBackend for Unusable {
    fn connect(&self) -> Pending<'_, u32> {
        Box::pin(async { self.0.ok_or_else(|| BackendError::Store("no route to host".into())) })
    }

    fn upsert<'a>(&'a self, _: &'a MemoryProfile, _: &'a [Entry]) -> Pending<'a, ()> {
        panic!("used without a check");
    }

    fn remove<'a>(&'a self, _: &'a MemoryProfile, _: &'a [String]) -> Pending<'a, ()> {
        panic!("used without a check");
    }

    fn frequencies<'a>(
        &'a self,
        _: &'a MemoryProfile,
        _: &'a std::collections::BTreeSet<Slot>,
    ) -> Pending<'a, Frequencies> {
        panic!("used without a check");
    }

    fn search<'a>(&'a self, _: &'a MemoryProfile, _: &'a Vector, _: usize) -> Pending<'a, Vec<ScoredEntry>> {
        panic!("used without a check");
    }
}

#[test]
fn a_backend_is_checked_before_it_is_used() {
    let connect = |backend| ready(Retriever::connect(Arc::new(backend), ENGLISH)).map(drop);
    assert!(connect(Unusable(Some(EMBEDDER_VERSION))).is_ok());
    let other = connect(Unusable(Some(EMBEDDER_VERSION + 1)));
    assert!(matches!(other, Err(BackendError::OtherEmbedder { found }) if found == EMBEDDER_VERSION + 1));
    assert!(matches!(connect(Unusable(None)), Err(BackendError::Store(_))));
}

proptest! {
    /// What another profile holds changes neither what is found nor a bit of its score.
    #[test]
    fn profiles_do_not_influence_each_other(
        own in texts(),
        other in texts(),
        query in "[a-z ]{0,30}|deploy node",
    ) {
        let (alone, shared) = (retriever(), retriever());
        let (mine, theirs) = (profile("mine"), profile("theirs"));
        for (number, text) in other.iter().enumerate() {
            put(&shared, &theirs, &[(&number.to_string(), text)]);
        }
        for (number, text) in own.iter().enumerate() {
            put(&alone, &mine, &[(&number.to_string(), text)]);
            put(&shared, &mine, &[(&number.to_string(), text)]);
        }
        prop_assert_eq!(found(&alone, &mine, &query), found(&shared, &mine, &query));
        prop_assert!(found(&shared, &profile("nobody"), &query).is_empty());
        let ids: Vec<String> = (0..other.len()).map(|number| number.to_string()).collect();
        ready(shared.remove(&theirs, &ids)).unwrap();
        prop_assert_eq!(found(&alone, &mine, &query), found(&shared, &mine, &query));
        prop_assert!(found(&shared, &theirs, &query).is_empty());
    }

    #[test]
    fn order_and_number_of_writes_make_no_difference(
        (texts, shuffled) in texts().prop_flat_map(|texts| {
            let numbered: Vec<(usize, String)> = texts.into_iter().enumerate().collect();
            (Just(numbered.clone()), Just(numbered).prop_shuffle())
        }),
        query in "[a-z ]{0,30}|billing of a gateway",
    ) {
        let (first, second) = (retriever(), retriever());
        let default = MemoryProfile::default();
        for (number, text) in &texts {
            put(&first, &default, &[(&number.to_string(), "something else")]);
            put(&first, &default, &[(&number.to_string(), text)]);
        }
        let all: Vec<(String, String)> =
            shuffled.iter().map(|(number, text)| (number.to_string(), text.clone())).collect();
        ready(second.upsert(&default, &all)).unwrap();
        prop_assert_eq!(found(&first, &default, &query), found(&second, &default, &query));
    }
}
