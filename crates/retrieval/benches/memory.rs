//! Measures how well texts are found on public sets with relevance judgements: `make bench-memory`, which
//! fetches them. Fails if a set is found worse than its goals say.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made must stop")]
#![expect(clippy::print_stdout, reason = "it says what it measured")]

use std::{
    collections::BTreeSet,
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use retrieval::{Document, Features, Index, Language, Query, Tokenizer, whole_words};
use serde_json::Value;

const TOKENIZER: Tokenizer = Tokenizer { language: Some(Language::English) };
const CHUNKS: usize = 100_000;
const WORDS_OF_A_CHUNK: usize = 130;
const VOCABULARY: usize = 60_000;
const QUERIES: usize = 200;

/// A set, and the least nDCG@10 and recall@100 that fused ranking must reach.
struct Set {
    name: &'static str,
    min_ndcg: f64,
    min_recall: f64,
}

/// The first two have the goals of the design; the third is other data in the same package, and must not get
/// worse.
const SETS: [Set; 3] = [
    Set { name: "cranfield", min_ndcg: 0.533, min_recall: 0.766 },
    Set { name: "semanlink", min_ndcg: 0.483, min_recall: 0.793 },
    Set { name: "semanlink-tags", min_ndcg: 0.29, min_recall: 0.54 },
];

struct Judged {
    documents: Vec<(String, String)>,
    /// Each query with the ids of the documents that are relevant for it.
    queries: Vec<(String, BTreeSet<String>)>,
}

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/memory-sets");
    println!("{:16} {:>9} {:>7}   {:>15}   {:>15}", "", "documents", "queries", "fused", "whole words");
    println!("{:16} {:>9} {:>7}   {:>15}   {:>15}", "", "", "", "nDCG@10 rec@100", "nDCG@10 rec@100");
    let mut reached = true;
    for set in &SETS {
        let file = folder.join(format!("{}.json", set.name));
        if file.is_file() {
            reached &= measure(set, &read(&file));
        } else {
            println!("{:16} NOT MEASURED: {} is not there", set.name, file.display());
        }
    }
    measure_speed();
    if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(file: &PathBuf) -> Judged {
    let value: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap().to_owned();
    let list = |field: &str| value[field].as_array().unwrap().iter();
    let ids = |query: &Value| -> BTreeSet<String> {
        query["relevant"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    Judged {
        documents: list("documents").map(|document| (text(document, "id"), text(document, "text"))).collect(),
        queries: list("queries").map(|query| (text(query, "text"), ids(query))).collect(),
    }
}

/// Returns whether the goals are reached.
fn measure(set: &Set, judged: &Judged) -> bool {
    let index = Index::new(&TOKENIZER, judged.documents.iter().map(to_document));
    let texts = || judged.documents.iter().map(|(id, text)| (id.as_str(), text.as_str()));
    let fused = average(judged, |query| ids(&index.search(&Query::new(&TOKENIZER, query), 100)));
    let whole = average(judged, |query| ids(&whole_words::rank(&TOKENIZER, query, texts(), 100)));
    let is_reached = fused.0 >= set.min_ndcg && fused.1 >= set.min_recall;
    println!(
        "{:16} {:>9} {:>7}   {:>7.4} {:>7.4}   {:>7.4} {:>7.4}   {} {:.3} {:.3}",
        set.name,
        judged.documents.len(),
        judged.queries.len(),
        fused.0,
        fused.1,
        whole.0,
        whole.1,
        if is_reached { "at least" } else { "BELOW" },
        set.min_ndcg,
        set.min_recall,
    );
    is_reached
}

fn to_document((id, text): &(String, String)) -> Document {
    Document { id: id.clone(), group: String::new(), fields: vec![(text.clone(), 1)] }
}

fn ids(hits: &[retrieval::Hit<'_>]) -> Vec<String> {
    hits.iter().map(|hit| hit.id.to_owned()).collect()
}

/// Returns nDCG@10 and recall@100 over all queries. A document is relevant or not.
fn average(judged: &Judged, search: impl Fn(&str) -> Vec<String>) -> (f64, f64) {
    let discount = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let (mut ndcg, mut recall) = (0.0, 0.0);
    for (query, relevant) in &judged.queries {
        let found = search(query);
        let places = found.iter().take(10).enumerate().filter(|(_, id)| relevant.contains(*id));
        let gain: f64 = places.map(|(place, _)| discount(place)).sum();
        let ideal: f64 = (0..relevant.len().min(10)).map(discount).sum();
        ndcg += gain / ideal;
        recall += found.iter().filter(|id| relevant.contains(*id)).count() as f64 / relevant.len() as f64;
    }
    (ndcg / judged.queries.len() as f64, recall / judged.queries.len() as f64)
}

/// Measures an index of as many chunks as a large profile has. Their words are as frequent as in a language:
/// the second half as often as the first, and so on.
fn measure_speed() {
    let texts = chunks();
    let begin = Instant::now();
    let mut announced = 0;
    // Features are not kept: what they took would be used again for the index.
    let stored: Vec<Vec<u8>> = (texts.iter().enumerate())
        .map(|(number, text)| {
            let features = Features::of(&TOKENIZER, text);
            announced += features.index_bytes(&id(number));
            features.to_bytes()
        })
        .collect();
    println!("\nembedding: {:.0} chunks/s on one core", texts.len() as f64 / begin.elapsed().as_secs_f64());
    let size: usize = stored.iter().map(Vec::len).sum();
    println!("features: {} bytes a chunk", size / stored.len());
    let before = resident_bytes();
    let (begin, mut index) = (Instant::now(), Index::default());
    for (number, bytes) in stored.iter().enumerate() {
        index.insert(&id(number), Features::from_bytes(bytes).unwrap());
    }
    println!("index of {} chunks: built in {:.2} s", index.len(), begin.elapsed().as_secs_f64());
    let (taken, said) = (resident_bytes().saturating_sub(before), index.bytes());
    println!(
        "it takes {} MiB; says at most {} MiB; announced {} MiB",
        taken >> 20,
        said >> 20,
        announced >> 20
    );
    assert!(taken <= said && said <= announced, "an index must not take more than it says");
    let mut times: Vec<f64> = (0..QUERIES)
        .map(|number| {
            let words: Vec<&str> = texts[number * 97].split(' ').skip(number % 50).take(6).collect();
            let begin = Instant::now();
            black_box(index.search(&Query::new(&TOKENIZER, &words.join(" ")), 10));
            begin.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("search: p50 {:.1} ms, p99 {:.1} ms", at(50), at(99));
}

fn id(number: usize) -> String {
    format!("{number:032x}")
}

fn chunks() -> Vec<String> {
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let syllables =
        ["ka", "ter", "mi", "lon", "sa", "pri", "do", "ven", "ru", "eth", "gor", "ni", "qua", "bel"];
    let vocabulary: Vec<String> = (0..VOCABULARY)
        .map(|_| (0..2 + next(3)).map(|_| syllables[next(syllables.len())]).collect())
        .collect();
    (0..CHUNKS)
        .map(|_| {
            let word = |_| {
                let range = VOCABULARY >> next(12);
                vocabulary[next(range.max(1))].as_str()
            };
            (0..WORDS_OF_A_CHUNK).map(word).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
