use proptest::prelude::*;
use retrieval::{Features, Index, UnreadableFeatures, backend::Entry, embed::DIMENSIONS};

use crate::ENGLISH;

#[test]
fn features_tell_terms_slots_and_components() {
    let features = Features::of(&ENGLISH, "Leases of a lease: \u{fc}ber");
    assert_eq!(features.terms().collect::<Vec<_>>(), [("leas", 2), ("uber", 1)]);
    assert_eq!(features.length(), 3);
    let entry = Entry::new(&ENGLISH, String::new(), "Leases of a lease: \u{fc}ber");
    assert!(features.slots().eq(entry.slots.iter().copied()));
    let mut components = vec![0; DIMENSIONS];
    features
        .components()
        .for_each(|(dimension, component)| components[dimension] = component.cast_unsigned());
    assert_eq!(components, entry.vector.to_bytes());
}

#[test]
fn features_of_another_embedder_are_refused() {
    let mut bytes = Features::of(&ENGLISH, "a lease").to_bytes();
    bytes[0] += 1;
    assert_eq!(Features::from_bytes(&bytes), Err(UnreadableFeatures::OtherEmbedder { found: 2 }));
}

/// An index of one document takes no more than was said before, besides what every index takes.
#[test]
fn an_index_takes_no_more_than_announced() {
    let (mut index, mut announced) = (Index::default(), Index::default().bytes());
    for number in 0..3_000 {
        let text = format!("text {number} about leases, nodes and number {}", number * 7919 % 1000);
        let (id, features) = (format!("{number:032}"), Features::of(&ENGLISH, &text));
        announced += features.index_bytes(&id);
        index.insert(&id, features);
    }
    // Blocks of vectors are allocated as a whole.
    assert!(index.bytes() <= announced + 256 * DIMENSIONS, "{} {announced}", index.bytes());
}

proptest! {
    #[test]
    fn features_survive_their_bytes(text in any::<String>()) {
        let features = Features::of(&ENGLISH, &text);
        prop_assert_eq!(Features::from_bytes(&features.to_bytes()), Ok(features));
    }

    /// Whatever is stored, reading it ends, and what was read can be put into an index and removed again.
    #[test]
    fn damaged_bytes_are_refused_or_harmless(
        text in "[a-z ]{0,40}",
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Features::of(&ENGLISH, &text).to_bytes();
        *at.get_mut(&mut bytes) = byte;
        bytes.truncate(length.index(bytes.len() + 1));
        if let Ok(features) = Features::from_bytes(&bytes) {
            let mut index = Index::default();
            index.insert("a", features);
            prop_assert!(index.remove("a"));
        }
    }
}
