//! Finds texts for a query without a model, offline, and the same on every machine.
//!
//! Nothing here does I/O, reads a clock or draws a random number. Arithmetic is on whole numbers, or on IEEE
//! 754 numbers in a fixed order: the same documents and the same query give the same bytes.
//!
//! - [`words`]: text into words, parts of identifiers and stems
//! - [`embed`]: text into a vector
//! - [`features`]: what an index needs of a text, in bytes
//! - [`query`], [`index`]: documents in memory, ranked by BM25 and by vectors, both fused
//! - [`whole_words`]: the fallback where there is no index
//! - [`backend`]: stores that hold the vectors of many profiles
//!
//! # What a score means
//!
//! - That of [`Index::search`] is made of the places in both rankings: 1 for a document that is first in
//!   both, less with every place, and above 0. It orders the documents of one answer; it does not say how
//!   good the best of them is.
//! - That of [`Retriever::search`] is the cosine between query and text: 1 for the same direction, about 0
//!   for unrelated texts. How much a word counts depends on the texts of the profile, so that scores of
//!   different profiles or times do not compare.
//! - That of [`whole_words::rank`] is the share of the query's words that the document has.

pub mod backend;
mod columns;
pub mod embed;
pub mod features;
pub mod index;
pub mod query;
pub mod whole_words;
pub mod words;

pub use backend::{BackendError, MemoryBackend, Retriever, VectorBackend};
pub use features::{Features, UnreadableFeatures};
pub use index::{Document, Hit, Index};
pub use query::Query;
pub use words::{Language, Tokenizer};
