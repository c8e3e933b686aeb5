//! Stores that hold the vectors of many profiles, and searches in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use policy::MemoryProfile;

use crate::{
    embed::{DIMENSIONS, EMBEDDER_VERSION, Grams, SLOTS, Slot, Vector},
    query::Query,
    words::Tokenizer,
};

/// The future that a backend returns.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// Why a backend did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("the backend has vectors of embedder {found}, not {EMBEDDER_VERSION}; ingest its texts again")]
    OtherEmbedder { found: u32 },
    #[error("a vector has {DIMENSIONS} bytes, not {found}")]
    WrongLength { found: usize },
    #[error("the backend failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A text as a backend stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Unique in its profile.
    pub id: String,
    pub vector: Vector,
    /// Where the entry is counted, so that [`VectorBackend::frequencies`] can be answered.
    pub slots: BTreeSet<Slot>,
}

/// How many entries of a profile there are, and how many of them are counted in each of the slots asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frequencies {
    pub entries: u64,
    pub by_slot: BTreeMap<Slot, u64>,
}

/// An entry that was found, with the cosine between it and the query: 1 is the same direction, 0 is
/// unrelated.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredEntry {
    pub id: String,
    pub score: f64,
}

/// Holds entries of profiles, each for itself.
///
/// The profile is an argument of every call and not a filter: what a call returns, and how long it takes,
/// depends on the entries of its profile alone, also in its statistics. Calls may fail at any await point and
/// be repeated.
pub trait VectorBackend: Send + Sync {
    /// Checks that the backend can be used, and returns the version of the embedder that made its vectors,
    /// which is that of this program while there are none.
    fn connect(&self) -> Pending<'_, u32>;

    /// Stores all of the entries or none. An entry replaces one of the same id.
    fn upsert<'a>(&'a self, profile: &'a MemoryProfile, entries: &'a [Entry]) -> Pending<'a, ()>;

    /// Removes entries; those that are not there count as removed.
    fn remove<'a>(&'a self, profile: &'a MemoryProfile, ids: &'a [String]) -> Pending<'a, ()>;

    /// Counts the entries of the profile, and those in each of the slots.
    fn frequencies<'a>(
        &'a self,
        profile: &'a MemoryProfile,
        slots: &'a BTreeSet<Slot>,
    ) -> Pending<'a, Frequencies>;

    /// Returns at most `limit` entries with a score above 0, best first, those of the same score by id.
    fn search<'a>(
        &'a self,
        profile: &'a MemoryProfile,
        query: &'a Vector,
        limit: usize,
    ) -> Pending<'a, Vec<ScoredEntry>>;
}

/// A backend that was checked, with the embedder in front of it.
#[derive(Clone)]
pub struct Retriever {
    backend: Arc<dyn VectorBackend>,
    tokenizer: Tokenizer,
}

impl Retriever {
    /// Checks a backend. There is no other way to use one through a `Retriever`.
    pub async fn connect(
        backend: Arc<dyn VectorBackend>,
        tokenizer: Tokenizer,
    ) -> Result<Self, BackendError> {
        match backend.connect().await? {
            EMBEDDER_VERSION => Ok(Self { backend, tokenizer }),
            found => Err(BackendError::OtherEmbedder { found }),
        }
    }

    /// Stores texts, each under its id.
    pub async fn upsert(
        &self,
        profile: &MemoryProfile,
        texts: &[(String, String)],
    ) -> Result<(), BackendError> {
        let entries: Vec<Entry> =
            texts.iter().map(|(id, text)| Entry::new(&self.tokenizer, id.clone(), text)).collect();
        self.backend.upsert(profile, &entries).await
    }

    pub async fn remove(&self, profile: &MemoryProfile, ids: &[String]) -> Result<(), BackendError> {
        self.backend.remove(profile, ids).await
    }

    /// Returns the entries of the profile that are most like a text. Scores are cosines, which fall.
    pub async fn search(
        &self,
        profile: &MemoryProfile,
        text: &str,
        limit: usize,
    ) -> Result<Vec<ScoredEntry>, BackendError> {
        let grams = Query::new(&self.tokenizer, text).grams();
        let known = self.backend.frequencies(profile, &grams.slots()).await?;
        let frequency = |slot| known.by_slot.get(&slot).copied().unwrap_or_default();
        self.backend.search(profile, &grams.to_query_vector(known.entries, frequency), limit).await
    }
}

impl std::fmt::Debug for Retriever {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retriever").field("tokenizer", &self.tokenizer).finish_non_exhaustive()
    }
}

impl Entry {
    pub fn new(tokenizer: &Tokenizer, id: String, text: &str) -> Self {
        let mut grams = Grams::default();
        for word in tokenizer.words(text).into_iter().filter(|word| !word.is_common) {
            grams.count(&word.text, 1);
        }
        Self { id, vector: grams.to_vector(), slots: grams.slots() }
    }
}

impl Vector {
    /// Reads what [`Self::to_bytes`] returned.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BackendError> {
        match bytes.len() {
            DIMENSIONS => Ok(Self::new(bytes.iter().map(|byte| byte.cast_signed()).collect())),
            found => Err(BackendError::WrongLength { found }),
        }
    }

    /// Returns a byte for each dimension, a signed number.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.components.iter().map(|component| component.cast_unsigned()).collect()
    }
}

/// A backend in memory, for tests and for what need not outlive the process. Each profile has a lock of its
/// own, so that none waits for another.
#[derive(Debug, Default)]
pub struct MemoryBackend(Mutex<BTreeMap<MemoryProfile, Arc<Mutex<Profile>>>>);

#[derive(Debug)]
struct Profile {
    entries: BTreeMap<String, Entry>,
    counts: Vec<u64>,
}

impl Default for Profile {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), counts: vec![0; SLOTS] }
    }
}

impl Profile {
    fn insert(&mut self, entry: Entry) {
        self.remove(&entry.id);
        for slot in &entry.slots {
            self.counts.get_mut(usize::from(*slot)).into_iter().for_each(|count| *count += 1);
        }
        self.entries.insert(entry.id.clone(), entry);
    }

    fn remove(&mut self, id: &str) {
        for slot in self.entries.remove(id).into_iter().flat_map(|entry| entry.slots) {
            self.counts.get_mut(usize::from(slot)).into_iter().for_each(|count| *count -= 1);
        }
    }

    fn frequencies(&self, slots: &BTreeSet<Slot>) -> Frequencies {
        let count = |slot: Slot| self.counts.get(usize::from(slot)).copied().unwrap_or_default();
        let by_slot = slots.iter().map(|slot| (*slot, count(*slot))).collect();
        Frequencies { entries: self.entries.len() as u64, by_slot }
    }

    fn search(&self, query: &Vector, limit: usize) -> Vec<ScoredEntry> {
        let mut scored: Vec<(f64, &String)> = (self.entries.values())
            .map(|entry| (entry.vector.cosine(query), &entry.id))
            .filter(|(score, _)| *score > 0.0)
            .collect();
        scored.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(right.1)));
        scored.into_iter().take(limit).map(|(score, id)| ScoredEntry { id: id.clone(), score }).collect()
    }
}

impl MemoryBackend {
    fn with<T>(&self, profile: &MemoryProfile, work: impl FnOnce(&mut Profile) -> T) -> T {
        // No code panics while it holds one of the locks.
        let mut profiles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = Arc::clone(profiles.entry(profile.clone()).or_default());
        drop(profiles);
        work(&mut profile.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl VectorBackend for MemoryBackend {
    fn connect(&self) -> Pending<'_, u32> {
        Box::pin(async { Ok(EMBEDDER_VERSION) })
    }

    fn upsert<'a>(&'a self, profile: &'a MemoryProfile, entries: &'a [Entry]) -> Pending<'a, ()> {
        Box::pin(async move {
            self.with(profile, |profile| entries.iter().for_each(|entry| profile.insert(entry.clone())));
            Ok(())
        })
    }

    fn remove<'a>(&'a self, profile: &'a MemoryProfile, ids: &'a [String]) -> Pending<'a, ()> {
        Box::pin(async move {
            self.with(profile, |profile| ids.iter().for_each(|id| profile.remove(id)));
            Ok(())
        })
    }

    fn frequencies<'a>(
        &'a self,
        profile: &'a MemoryProfile,
        slots: &'a BTreeSet<Slot>,
    ) -> Pending<'a, Frequencies> {
        Box::pin(async move { Ok(self.with(profile, |profile| profile.frequencies(slots))) })
    }

    fn search<'a>(
        &'a self,
        profile: &'a MemoryProfile,
        query: &'a Vector,
        limit: usize,
    ) -> Pending<'a, Vec<ScoredEntry>> {
        Box::pin(async move { Ok(self.with(profile, |profile| profile.search(query, limit))) })
    }
}
