//! Reads a goal: which of its words count, and how much.

use std::collections::BTreeMap;

use super::forms::form_of;
use super::grammar;
use super::lexicon::{Lexicon, Phrase};
use super::words;

/// Of a long goal only both ends are read, since the request usually stands before or after pasted text.
const BYTES_READ_AT_EACH_END: usize = 4096;
const WORDS_KEPT_FROM_START: usize = 160;
const WORDS_KEPT_FROM_END: usize = 80;

/// The weight of a word by where it occurs, in thousandths.
const PLAIN: u64 = 1000;
const QUOTED: u64 = 500;
const CODE: u64 = 350;
const SHAPE: u64 = 600;
const PHRASE: u64 = 800;
const LIGHT_VERB: u64 = 500;
/// Only a colon after this many words ends a clause; a shorter start such as `Hint:` does not.
const MIN_WORDS_BEFORE_COLON: usize = 3;

/// The maximum distance between the words of a two-word phrase, as in `write it down`.
const MAX_PHRASE_STEP: usize = 2;

/// A stem of the goal and its strength in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoalWord {
    pub(crate) stem: String,
    pub(crate) strength: u64,
    /// Only related words count, since the word itself is too common.
    pub(crate) only_hints: bool,
}

/// A word of the goal at its position.
pub(crate) struct Token {
    pub(crate) word: String,
    pub(crate) stem: String,
    pub(crate) strength: u64,
    pub(crate) consumed: bool,
    pub(crate) clause: usize,
    /// Part of an identifier such as `task.get`, where even a common word is meaningful.
    pub(crate) is_part_of_name: bool,
}

pub(crate) fn read(goal: &str, lexicon: &Lexicon) -> Vec<GoalWord> {
    let mut tokens = Vec::new();
    let mut found = Vec::new();
    let mut clause = 0;
    for end in ends_of(goal) {
        for (piece, is_code) in alternating(end, |letter| letter == '`') {
            if is_code {
                found.push(shape("command"));
                add_tokens(piece, CODE, &mut tokens, clause);
            } else {
                read_prose(piece, &mut tokens, &mut found, &mut clause);
            }
        }
    }
    grammar::weaken_background(&mut tokens);
    grammar::weaken_complements(&mut tokens);
    found.extend(take_phrases(&mut tokens, lexicon));
    found.extend(
        tokens.iter().filter(|token| !token.consumed).filter_map(|token| to_goal_word(token, lexicon)),
    );
    capped(distinct(found))
}

fn ends_of(goal: &str) -> Vec<&str> {
    if goal.len() <= 2 * BYTES_READ_AT_EACH_END {
        return vec![goal];
    }
    let head = goal.floor_char_boundary(BYTES_READ_AT_EACH_END);
    let tail = goal.ceil_char_boundary(goal.len() - BYTES_READ_AT_EACH_END);
    [goal.get(..head), goal.get(tail..)].into_iter().flatten().collect()
}

/// Splits the text at delimiters and returns each piece with whether it is enclosed by them.
fn alternating(text: &str, is_delimiter: impl Fn(char) -> bool) -> Vec<(&str, bool)> {
    let pieces: Vec<&str> = text.split(is_delimiter).collect();
    let last = pieces.len().saturating_sub(1);
    pieces.into_iter().enumerate().map(|(place, piece)| (piece, place % 2 == 1 && place < last)).collect()
}

fn read_prose(text: &str, tokens: &mut Vec<Token>, found: &mut Vec<GoalWord>, clause: &mut usize) {
    for (piece, is_quoted) in alternating(text, |letter| matches!(letter, '"' | '“' | '”' | '„' | '«' | '»'))
    {
        let strength = if is_quoted { QUOTED } else { PLAIN };
        for chunk in piece.split_whitespace() {
            let form = form_of(chunk);
            add_tokens(chunk, strength * form.strength / 1000, tokens, *clause);
            found.extend(form.means.iter().map(|word| shape(word)));
            let ends_after_colon = chunk.ends_with(':') && tokens.len() >= MIN_WORDS_BEFORE_COLON;
            *clause += usize::from(ends_after_colon || chunk.ends_with(['.', '!', '?']));
        }
    }
}

fn add_tokens(text: &str, strength: u64, tokens: &mut Vec<Token>, clause: usize) {
    let is_part_of_name = text.trim_matches(|letter: char| !letter.is_alphanumeric()).contains(['.', '_']);
    tokens.extend(words::of_text(text).into_iter().map(|word| Token {
        stem: words::stem(&word),
        word,
        strength,
        consumed: false,
        clause,
        is_part_of_name,
    }));
}

fn shape(word: &str) -> GoalWord {
    GoalWord { stem: words::stem(word), strength: SHAPE, only_hints: false }
}

/// Marks the tokens of known phrases as consumed and returns the meanings of the phrases.
fn take_phrases(tokens: &mut [Token], lexicon: &Lexicon) -> Vec<GoalWord> {
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        let Some((meaning, places)) = phrase_at(tokens, start, lexicon) else { continue };
        let strength = tokens.get(start).map_or(PLAIN, |token| token.strength) * PHRASE / 1000;
        let meant = meaning.iter().cloned();
        found.extend(meant.map(|stem| GoalWord { stem, strength, only_hints: false }));
        for place in places {
            if let Some(token) = tokens.get_mut(place) {
                token.consumed = true;
            }
        }
    }
    found
}

fn phrase_at<'l>(tokens: &[Token], start: usize, lexicon: &'l Lexicon) -> Option<(&'l [String], Vec<usize>)> {
    let first = tokens.get(start).filter(|token| !token.consumed)?;
    let phrases = lexicon.phrases_from(&first.stem).iter();
    let matching = phrases.filter_map(|phrase| Some((phrase, places_of(phrase, tokens, start)?)));
    matching
        .max_by_key(|(phrase, _)| phrase.rest.len())
        .map(|(phrase, places)| (phrase.meaning.as_slice(), places))
}

fn places_of(phrase: &Phrase, tokens: &[Token], start: usize) -> Option<Vec<usize>> {
    let widest_step = if phrase.rest.len() == 1 { MAX_PHRASE_STEP } else { 1 };
    let mut places = vec![start];
    let mut place = start;
    for stem in &phrase.rest {
        let next = (place + 1..=place + widest_step)
            .find(|next| tokens.get(*next).is_some_and(|token| !token.consumed && token.stem == *stem))?;
        places.push(next);
        place = next;
    }
    Some(places)
}

fn to_goal_word(token: &Token, lexicon: &Lexicon) -> Option<GoalWord> {
    let only_hints = words::is_stop_word(&token.word);
    if only_hints && !lexicon.knows(&token.stem) {
        return None;
    }
    let share = if words::is_light_verb(&token.stem) && !token.is_part_of_name { LIGHT_VERB } else { PLAIN };
    Some(GoalWord { stem: token.stem.clone(), strength: token.strength * share / 1000, only_hints })
}

/// Keeps each stem once, at its first position and with its greatest strength.
fn distinct(found: Vec<GoalWord>) -> Vec<GoalWord> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut distinct: Vec<GoalWord> = Vec::new();
    for word in found {
        let place = *places.entry(word.stem.clone()).or_insert(distinct.len());
        match distinct.get_mut(place) {
            Some(known) => {
                known.strength = known.strength.max(word.strength);
                known.only_hints &= word.only_hints;
            }
            None => distinct.push(word),
        }
    }
    distinct
}

fn capped(mut found: Vec<GoalWord>) -> Vec<GoalWord> {
    if found.len() > WORDS_KEPT_FROM_START + WORDS_KEPT_FROM_END {
        found.drain(WORDS_KEPT_FROM_START..found.len() - WORDS_KEPT_FROM_END);
    }
    found
}
