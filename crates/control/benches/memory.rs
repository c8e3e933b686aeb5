//! Measures memories in a store: how fast 100,000 chunks are kept, loaded and searched, part of
//! `make bench-memory`.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made must stop")]
#![expect(clippy::print_stdout, reason = "it says what it measured")]

use std::time::{Duration, Instant};

use control::{Memories, MemoryAuthor, MemoryBook, MemorySettings, NewMemory, PreparedMemory, Wanted};
use futures_util::{StreamExt, TryStreamExt, stream};
use policy::MemoryProfile;
use sea_orm::DatabaseExecutor;
use store::{Durability, Options, Store, clock};

const CHUNKS: usize = 100_000;
const CHUNKS_OF_A_TEXT: usize = 10;
const TEXTS_OF_A_TRANSACTION: usize = 20;
const WORDS_OF_A_CHUNK: usize = 130;
const VOCABULARY: usize = 60_000;
const QUERIES: usize = 200;
const MAX_MEDIAN_MS: f64 = 40.0;
const MIN_CHUNKS_A_SECOND: f64 = 2_000.0;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("store.db").display());
    let patience = Duration::from_secs(30);
    let options = Options { url, max_connections: 4, patience, durability: Durability::Process };
    let store = Store::open(&options).await.unwrap();
    let (memories, profile) = (Memories::new(MemorySettings::default()), MemoryProfile::default());
    let texts = texts();

    let begin = Instant::now();
    let mut kept = 0;
    for batch in texts.chunks(TEXTS_OF_A_TRANSACTION) {
        let prepared = batch.iter().cloned().map(|new| PreparedMemory::new(&profile, new));
        let prepared: Vec<PreparedMemory> = stream::iter(prepared).buffered(4).try_collect().await.unwrap();
        let write = store.write().await.unwrap();
        let db = DatabaseExecutor::Transaction(&write);
        let book = MemoryBook::new(&db, &profile, clock::now());
        for new in prepared {
            kept +=
                book.put(&memories.settings, new, MemoryAuthor::Administrator).await.unwrap().source.chunks;
        }
        write.commit().await.unwrap();
    }
    let rate = kept as f64 / begin.elapsed().as_secs_f64();
    println!("\nstore: {kept} chunks kept, {rate:.0} chunks/s (goal: at least {MIN_CHUNKS_A_SECOND})");

    let db = DatabaseExecutor::from(store.read());
    let search = async |query: &str| {
        let (begin, wanted) = (Instant::now(), Wanted { query, limit: Some(10), prefix: "" });
        let found = memories.find(&db, &profile, &wanted, clock::now()).await.unwrap();
        assert!(!found.memories.is_empty());
        begin.elapsed().as_secs_f64() * 1000.0
    };
    let first = search("katermi").await;
    println!("first search, which loads the index: {:.1} s", first / 1000.0);
    let mut times = Vec::new();
    for number in 0..QUERIES {
        let text = &texts[number * texts.len() / QUERIES].text;
        let words: Vec<&str> = text.split_whitespace().skip(number % 50).take(6).collect();
        times.push(search(&words.join(" ")).await);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("search: p50 {:.1} ms (goal: at most {MAX_MEDIAN_MS}), p99 {:.1} ms", at(50), at(99));
    println!("index: {} MiB at most", memories.usage().1 >> 20);
    let file = std::fs::metadata(folder.path().join("store.db")).unwrap().len();
    println!("store: {} MiB", file >> 20);
    assert!(rate >= MIN_CHUNKS_A_SECOND && at(50) <= MAX_MEDIAN_MS, "a goal is missed");
}

/// Texts whose words are as frequent as in a language: the second half as often as the first, and so on.
fn texts() -> Vec<NewMemory> {
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let syllables =
        ["ka", "ter", "mi", "lon", "sa", "pri", "do", "ven", "ru", "eth", "gor", "ni", "qua", "bel"];
    let mut word = |_| -> String { (0..2 + next(3)).map(|_| syllables[next(syllables.len())]).collect() };
    let vocabulary: Vec<String> = (0..VOCABULARY).map(&mut word).collect();
    let text = |number: usize| {
        let mut text = String::new();
        for _ in 0..CHUNKS_OF_A_TEXT {
            for _ in 0..WORDS_OF_A_CHUNK {
                let range = (VOCABULARY >> next(12)).max(1);
                text.push_str(&vocabulary[next(range)]);
                text.push(' ');
            }
            text.push_str("\n\n");
        }
        NewMemory { path: format!("{number}.txt"), text, source: "bench".into(), ..NewMemory::default() }
    };
    (0..CHUNKS / CHUNKS_OF_A_TEXT).map(text).collect()
}
