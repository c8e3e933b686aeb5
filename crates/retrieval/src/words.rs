//! Splits text into words and parts of identifiers, and reduces them to terms.

use std::borrow::Cow;

use frostem::Stemmer;
use unicode_normalization::UnicodeNormalization as _;
use unicode_segmentation::UnicodeSegmentation as _;

/// The language of a text.
pub use frostem::Algorithm as Language;

/// Longer words are encoded data.
const MAX_WORD_BYTES: usize = 64;
/// Words that every English text has.
const COMMON_IN_ENGLISH: &str = " a about above after again against all am an and any are as at be because \
    been before being below between both but by can could did do does doing down during each few for from \
    further had has have having he her here hers herself him himself his how i if in into is it its itself \
    may me might more most must my myself no nor not of off on once only or other ought our ours ourselves \
    out over own same shall she should so some such than that the their theirs them themselves then there \
    these they this those through to too under until up very was we were what when where which while who \
    whom why will with would you your yours yourself yourselves ";

/// A word of a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// What the inflections of the word share, as far as the language is known.
    pub term: String,
    /// The word itself in lower case. Both are without accents.
    pub text: String,
    /// Whether the word is too common in its language to say anything.
    pub is_common: bool,
}

/// Reads texts of one language. If that is not known, words are neither stemmed nor common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokenizer {
    pub language: Option<Language>,
}

impl Tokenizer {
    /// Returns the words of a text in order. An identifier, such as `db.taskList2`, gives itself and its
    /// parts.
    pub fn words(&self, text: &str) -> Vec<Word> {
        let normal = normalize(text);
        written_words(&normal).map(|word| self.word(word)).filter(Word::says_something).collect()
    }

    /// Returns the words of a text that are not common, each with how often it is written so.
    pub(crate) fn count_words(&self, text: &str) -> Vec<(Word, u32)> {
        let normal = normalize(text);
        let mut written: Vec<&str> = written_words(&normal).collect();
        written.sort_unstable();
        let words = written.chunk_by(|left, right| left == right).filter_map(|same| {
            let count = u32::try_from(same.len()).unwrap_or(u32::MAX);
            Some((self.word(same.first()?), count))
        });
        words.filter(|(word, _)| word.says_something() && !word.is_common).collect()
    }

    pub fn word(&self, word: &str) -> Word {
        let lower = word.to_lowercase();
        let term = self.language.map_or(lower.clone(), |language| Stemmer::new(language).stem(&lower).into());
        let is_english = self.language == Some(Language::English);
        let is_common = is_english && COMMON_IN_ENGLISH.contains(&format!(" {lower} "));
        Word { term: without_accents(&term), text: without_accents(&lower), is_common }
    }
}

impl Word {
    fn says_something(&self) -> bool {
        !self.term.is_empty() && !self.text.is_empty()
    }
}

/// Returns the text with one way to write each letter.
fn normalize(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfkc().collect()) }
}

fn written_words(normal: &str) -> impl Iterator<Item = &str> {
    let runs = normal.unicode_words().flat_map(|run| run.split(['\'', '’', ':']));
    let with_parts = |run| {
        let parts = parts(run);
        (parts.len() > 1).then_some(run).into_iter().chain(parts)
    };
    runs.flat_map(with_parts).filter(|word| word.len() <= MAX_WORD_BYTES)
}

fn is_accent(letter: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&letter)
}

fn without_accents(word: &str) -> String {
    let folded = || word.nfd().filter(|letter| !is_accent(*letter)).nfc().collect();
    if word.is_ascii() { word.to_owned() } else { folded() }
}

/// Splits at signs, between letters and digits, and before capitals, as in `taskList` and `HTTPServer`.
fn parts(run: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for piece in run.split(|letter: char| !letter.is_alphanumeric() && !is_accent(letter)) {
        // `URLs` are many of `URL`, which no stemmer knows.
        let is_acronym = |word: &&str| word.len() > 1 && word.chars().all(char::is_uppercase);
        let piece = piece.strip_suffix('s').filter(is_acronym).unwrap_or(piece);
        let mut start = 0;
        for (at, right) in piece.char_indices().skip(1) {
            let (before, after) = piece.split_at(at);
            let left = before.chars().next_back().unwrap_or(right);
            let starts_word = left.is_lowercase() || after.chars().nth(1).is_some_and(char::is_lowercase);
            let is_capital = right.is_uppercase() && !left.is_numeric() && starts_word;
            if left.is_numeric() != right.is_numeric() || is_capital {
                parts.extend(piece.get(start..at));
                start = at;
            }
        }
        parts.extend(piece.get(start..));
    }
    parts.retain(|part| !part.is_empty());
    parts
}
