use proptest::prelude::*;
use retrieval::{
    BackendError,
    backend::Entry,
    embed::{DIMENSIONS, EMBEDDER_VERSION, Vector},
};

use crate::ENGLISH;

fn vector(text: &str) -> Vector {
    Entry::new(&ENGLISH, String::new(), text).vector
}

/// FNV-1a of the bytes, so that a test can name them all.
fn digest(vector: &Vector) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    vector.to_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// If this fails, vectors that are stored no longer fit those that are made: raise `EMBEDDER_VERSION`.
#[test]
fn vectors_of_a_version_never_change() {
    let texts =
        ["The gateway renews leases of agents while they are used.", "größe 新規タスク HTTPServer2", ""];
    assert_eq!(EMBEDDER_VERSION, 1);
    let digests = [6_875_794_397_252_818_939, 16_684_837_951_071_217_983, 2_937_223_237_197_546_277];
    assert_eq!(texts.map(|text| digest(&vector(text))), digests);
}

#[test]
fn the_more_two_texts_share_the_nearer_they_are() {
    let query = vector("rotate the signing key of the gateway");
    let nearer = [
        "rotate the signing key of the gateway",
        "rotate the signing key of a node",
        "rotating keys for signatures",
        "the key was lost",
        "lunch is at noon",
    ];
    let scores = nearer.map(|text| vector(text).cosine(&query));
    assert!((scores[0] - 1.0).abs() < 1e-12);
    assert!(scores.is_sorted_by(|left, right| left > right), "{scores:?}");
}

#[test]
fn misspelt_words_are_near_and_other_words_are_not() {
    let near = |left: &str, right: &str| vector(left).cosine(&vector(right));
    assert!(near("calendar", "calender") > 0.4);
    assert!(near("calendar", "lease").abs() < 0.2);
    assert_eq!(near("", "calendar"), 0.0);
}

#[test]
fn bytes_of_another_length_are_refused() {
    assert_eq!(vector("a lease").to_bytes().len(), DIMENSIONS);
    let refused = Vector::from_bytes(&[1; 7]);
    assert!(matches!(refused, Err(BackendError::WrongLength { found: 7 })));
}

proptest! {
    #[test]
    fn vectors_survive_their_bytes(text in any::<String>()) {
        let vector = vector(&text);
        prop_assert_eq!(&Vector::from_bytes(&vector.to_bytes()).unwrap(), &vector);
    }

    #[test]
    fn cosines_are_symmetric_and_at_most_one(left in any::<String>(), right in any::<String>()) {
        let (left, right) = (vector(&left), vector(&right));
        prop_assert_eq!(left.cosine(&right), right.cosine(&left));
        prop_assert!(left.cosine(&right).abs() <= 1.0 + 1e-12);
    }

    /// A text that repeats a part of the query is nearer to it than one that has a part of that part.
    #[test]
    fn cosine_similarity_falls_with_fewer_shared_words(
        words in prop::collection::vec("[a-z]{6,10}", 8..12),
        few in 1_usize..4,
        many in 5_usize..8,
    ) {
        let part = |count: usize| vector(&words[..count].join(" "));
        let whole = vector(&words.join(" "));
        prop_assert!(part(many).cosine(&whole) > part(few).cosine(&whole));
    }
}
