use proptest::prelude::*;
use retrieval::{Document, Features, Index, Query, Tokenizer, index::fuse, whole_words};

use crate::{ENGLISH, document, texts};

fn found<'a>(index: &'a Index, query: &str) -> Vec<(&'a str, u64)> {
    let hits = index.search(&Query::new(&ENGLISH, query), 100);
    hits.into_iter().map(|hit| (hit.id, hit.score.to_bits())).collect()
}

fn ids<'a>(index: &'a Index, query: &str) -> Vec<&'a str> {
    found(index, query).into_iter().map(|(id, _)| id).collect()
}

fn index(texts: &[(&str, &str)]) -> Index {
    Index::new(&ENGLISH, texts.iter().map(|(id, text)| document(id, text)))
}

#[test]
fn rare_words_count_more_than_frequent_ones() {
    let index = index(&[
        ("a", "the node reports its state"),
        ("b", "the node reports a quarantine"),
        ("c", "the node reports its load"),
        ("d", "a quarantine of tools"),
    ]);
    assert_eq!(ids(&index, "node quarantine").first(), Some(&"b"));
    assert_eq!(ids(&index, "node quarantine").get(1), Some(&"d"));
}

#[test]
fn inflected_and_misspelt_words_are_found() {
    let index =
        index(&[("a", "Deployment of the gateway"), ("b", "Calendar of the team"), ("c", "Something")]);
    assert_eq!(ids(&index, "deploying gateways").first(), Some(&"a"));
    assert_eq!(ids(&index, "calender").first(), Some(&"b"));
    assert!(index.knows(&Query::new(&ENGLISH, "calender")));
    assert!(!index.knows(&Query::new(&ENGLISH, "zebra of the 1234")));
}

/// Each unknown word is compared with all terms, so a text in another language must not have all of its words
/// compared.
#[test]
fn only_the_first_unknown_words_are_taken_for_misspelt() {
    let index = index(&[("b", "Calendar of the team"), ("c", "Something")]);
    let unknown = |count: usize| -> String {
        let words = (0..count).map(|number| format!("aqu{}oi ", "x".repeat(number + 1)));
        words.chain(["calender".to_owned()]).collect()
    };
    assert!(index.knows(&Query::new(&ENGLISH, &unknown(10))));
    assert!(!index.knows(&Query::new(&ENGLISH, &unknown(40))));
}

#[test]
fn matched_words_are_those_of_the_query_that_a_document_has() {
    let index = index(&[("tasks", "creates a task"), ("files", "reads files"), ("zebra", "zebras")]);
    let query = Query::new(&ENGLISH, "Please creating the tasks and filez");
    let words = |id| index.matched_words(&query, id);
    assert_eq!(words("tasks"), ["creating", "tasks"]);
    assert_eq!(words("zebra"), [""; 0]);
    assert_eq!(words("unknown"), [""; 0]);
}

#[test]
fn equal_documents_are_ordered_by_id() {
    let index = index(&[("c", "a note"), ("a", "a note"), ("b", "a note"), ("d", "other")]);
    assert_eq!(ids(&index, "note").get(..3), Some(["a", "b", "c"].as_slice()));
}

#[test]
fn documents_of_a_group_support_each_other() {
    let of = |id: &str, group: &str, text: &str| Document { group: group.into(), ..document(id, text) };
    let documents =
        [of("a", "x", "unrelated text"), of("b", "y", "unrelated text"), of("c", "y", "lease renewal")];
    let index = Index::new(&ENGLISH, documents);
    assert_eq!(ids(&index, "lease renewal").get(..2), Some(["c", "b"].as_slice()));
}

#[test]
fn of_the_words_for_one_the_best_counts() {
    let index = index(&[("a", "ticket task"), ("b", "task work item"), ("c", "nothing of it")]);
    let mut query = Query::new(&ENGLISH, "ticket");
    query.add("ticket", ENGLISH.word("task"), 0.5);
    let hits = index.search(&query, 2);
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), ["a", "b"]);
    assert!(hits[0].score > hits[1].score);
}

#[test]
fn places_are_fused_by_their_weights() {
    let fused = fuse(&[(&["a", "b"], 2.0), (&["b", "c"], 1.0)]);
    assert_eq!(fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["b", "a", "c"]);
    assert_eq!(fuse(&[(&["a"], 2.0), (&["a"], 1.0)]), [("a", 1.0)]);
    // First in one alone, with the same weights: the id decides.
    let even: Vec<&str> = fuse(&[(&["b"], 1.0), (&["a"], 1.0)]).into_iter().map(|(id, _)| id).collect();
    assert_eq!(even, ["a", "b"]);
    assert!(fuse::<u8>(&[]).is_empty());
}

#[test]
fn whole_words_are_ranked_by_how_many_there_are_then_by_id() {
    let documents = [
        ("d", "the gateway"),
        ("a", "no such thing"),
        ("c", "a lease of the gateway"),
        ("b", "gateways and leases"),
        ("e", "lease, not released"),
    ];
    let hits = whole_words::rank(&ENGLISH, "the lease of a gateway", documents, 10);
    let found: Vec<(&str, f64)> = hits.into_iter().map(|hit| (hit.id, hit.score)).collect();
    assert_eq!(found, [("c", 1.0), ("d", 0.5), ("e", 0.5)]);
    assert!(whole_words::rank(&ENGLISH, "the", documents, 10).is_empty());
    assert_eq!(whole_words::rank(&Tokenizer::default(), "gateway lease", documents, 1).len(), 1);
}

#[test]
fn empty_query_or_index_has_no_results() {
    assert!(ids(&index(&[]), "lease").is_empty());
    assert!(ids(&index(&[("a", ""), ("b", "--")]), "lease").is_empty());
    assert!(ids(&index(&[("a", "lease")]), "").is_empty());
    assert!(index(&[("a", "lease")]).search(&Query::new(&ENGLISH, "lease"), 0).is_empty());
}

proptest! {
    #[test]
    fn order_of_the_documents_makes_no_difference(
        (texts, shuffled) in texts().prop_flat_map(|texts| (Just(texts.clone()), Just(texts).prop_shuffle())),
        query in "[a-z ]{0,30}|deploy gateway|billing",
    ) {
        // The texts are their own ids, some of them twice.
        let build = |texts: &[String]| Index::new(&ENGLISH, texts.iter().map(|text| document(text, text)));
        let (first, second) = (build(&texts), build(&shuffled));
        prop_assert_eq!(found(&first, &query), found(&second, &query));
    }

    /// What came and went leaves nothing behind, not even in the last bit of a score.
    #[test]
    fn an_index_that_changed_is_the_same_as_a_new_one(
        (kept, gone) in (texts(), texts()),
        query in "[a-z ]{0,30}|deploy gateway|biling",
    ) {
        let mut changed = Index::default();
        let features = |text: &str| Features::of(&ENGLISH, text);
        for (number, text) in gone.iter().enumerate() {
            changed.insert(&number.to_string(), features(text));
        }
        for (number, text) in kept.iter().enumerate().rev() {
            changed.insert(&number.to_string(), features(text));
        }
        for number in kept.len()..gone.len() {
            prop_assert!(changed.remove(&number.to_string()));
        }
        prop_assert!(!changed.remove("never there"));
        let documents = kept.iter().enumerate().map(|(number, text)| document(&number.to_string(), text));
        let fresh = Index::new(&ENGLISH, documents);
        prop_assert_eq!(found(&changed, &query), found(&fresh, &query));
        prop_assert_eq!(changed.len(), fresh.len());
        let wanted = Query::new(&ENGLISH, &query);
        prop_assert_eq!(changed.knows(&wanted), fresh.knows(&wanted));
    }

    #[test]
    fn scores_fall_from_at_most_one_and_stay_above_zero(
        texts in texts(),
        query in "[a-z ]{0,30}|deploy node",
    ) {
        let documents = texts.iter().enumerate().map(|(number, text)| document(&number.to_string(), text));
        let index = Index::new(&ENGLISH, documents);
        let scores: Vec<f64> =
            index.search(&Query::new(&ENGLISH, &query), 100).into_iter().map(|hit| hit.score).collect();
        prop_assert!(scores.is_sorted_by(|left, right| left >= right));
        prop_assert!(scores.iter().all(|score| *score > 0.0 && *score <= 1.0 + 1e-12));
    }

    #[test]
    fn a_text_is_found_by_itself(
        words in prop::collection::btree_set("[a-z]{5,9}", 9..20),
        place in 0_usize..3,
    ) {
        let words: Vec<String> = words.into_iter().collect();
        let texts: Vec<String> = words.chunks(3).map(|chunk| chunk.join(" ")).collect();
        let documents = texts.iter().enumerate().map(|(number, text)| document(&number.to_string(), text));
        let index = Index::new(&Tokenizer::default(), documents);
        let hits = index.search(&Query::new(&Tokenizer::default(), &texts[place]), 1);
        prop_assert_eq!(hits[0].id, place.to_string());
        prop_assert_eq!(hits[0].score, 1.0);
    }
}
