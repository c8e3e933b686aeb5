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

use retrieval::{Document, Index, Language, Query, Tokenizer, backend::Entry, whole_words};
use serde_json::Value;

const TOKENIZER: Tokenizer = Tokenizer { language: Some(Language::English) };
const SCANNED_VECTORS: usize = 100_000;

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
    measure_speed(&folder.join("semanlink.json"));
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

fn measure_speed(file: &PathBuf) {
    if !file.is_file() {
        return;
    }
    let judged = read(file);
    let begin = Instant::now();
    let entries: Vec<Entry> =
        judged.documents.iter().map(|(id, text)| Entry::new(&TOKENIZER, id.clone(), text)).collect();
    println!("\nembedding: {:.0} abstracts/s", entries.len() as f64 / begin.elapsed().as_secs_f64());
    let vectors: Vec<_> =
        entries.iter().cycle().take(SCANNED_VECTORS).map(|entry| entry.vector.clone()).collect();
    let begin = Instant::now();
    let sum: f64 = vectors.iter().map(|vector| vector.cosine(&entries[0].vector)).sum();
    black_box(sum);
    println!("scan of {SCANNED_VECTORS} vectors: {:.1} ms", begin.elapsed().as_secs_f64() * 1000.0);
}
