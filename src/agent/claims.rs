//! Finds claims in an answer that no tool call made true: "I created the task" when nothing was created.
//!
//! The check is by English words and never asks a model. It reads what is said about the present turn; what
//! will be done, what others did and what was not done is no claim. Words can deceive, so an answer is never
//! replaced: what was really done is added to it.

mod vocabulary;

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;
use subjects::Message;

use self::vocabulary::{
    BETWEEN, CHANGING, CONDITIONS, CREATING, NAMING, NO_CLAIM, NO_CREATION, NUMBERS, PLAIN, STATES, THINGS,
    VERBS,
};

/// A change that a call of this conversation made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    kind: ChangeKind,
    tool: String,
    /// Arguments and result, in which the names of what was changed are found.
    text: String,
    /// What was changed, as far as the arguments or the result name it.
    name: Option<String>,
}

/// The verdict on the claims of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Assessment {
    /// It claims nothing, or only what was done.
    Fine,
    /// It may claim more than was done.
    Doubtful,
    /// It claims a change that no call made, for this reason.
    Unkept(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Created,
    Changed,
    Verified,
    /// The name of the tool does not tell.
    Other,
}

impl Change {
    /// Returns whether arguments or result name this id. A verification changes nothing.
    pub(super) fn concerns(&self, id: &str) -> bool {
        self.kind != ChangeKind::Verified && self.text.contains(id)
    }

    pub(crate) fn by_tool(tool: &str, arguments: &str, result: &str) -> Self {
        let last = tool.rsplit('.').next().unwrap_or(tool);
        let kind = if CREATING.contains(&last) {
            ChangeKind::Created
        } else if CHANGING.contains(&last) {
            ChangeKind::Changed
        } else {
            ChangeKind::Other
        };
        let name = [arguments, result].iter().find_map(|text| {
            let object: Value = serde_json::from_str(text).ok()?;
            NAMING.iter().find_map(|key| Some(object.get(key)?.as_str()?.to_owned()))
        });
        let text = format!("{arguments}\n{result}").to_lowercase();
        Self { kind, tool: tool.to_owned(), text, name }
    }

    pub(crate) fn by_verification(task: &str) -> Self {
        let (tool, text) = ("verification".to_owned(), task.to_lowercase());
        Self { kind: ChangeKind::Verified, tool, text, name: Some(task.to_owned()) }
    }
}

/// Context that an answer may refer to besides the changes of its own turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Background<'m> {
    /// The messages before the turn. Repeating what they said is not a new claim.
    pub(crate) earlier: &'m [Message],
    /// Whether data was read in this turn. "Every task has been verified" may then be a report of it.
    pub(crate) has_read: bool,
}

/// Matches the words of which every claim of a change contains one.
static ANY_MENTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let verbs: Vec<&str> = VERBS.iter().map(|(verb, _)| *verb).collect();
    Regex::new(&format!("(?i-u:{}|now|done)", verbs.join("|"))).ok()
});

/// Compares what the answer says with what was done.
pub(crate) fn assess(answer: &str, changes: &[Change], background: Background<'_>) -> Assessment {
    // Most answers mention no change: one pass over the text rules them out.
    if ANY_MENTION.as_ref().is_some_and(|mention| !mention.is_match(answer)) {
        return Assessment::Fine;
    }
    let mut is_doubtful = false;
    for sentence in sentences(answer) {
        let claims = claimed(sentence);
        if claims.is_empty() {
            // With a change, or after a reading, most such sentences are true.
            is_doubtful |= changes.is_empty() && !background.has_read && mentions_change(sentence);
        }
        for (index, claim) in claims.into_iter().enumerate() {
            if background.has_read && claim.is_a_report(sentence) {
                continue;
            }
            let may_be_true = (background.has_read && claim.voice == Voice::Passive)
                || was_said_before(sentence, claim.kind, background.earlier);
            // "I updated the task and added a criterion" may tell of one change in two words.
            let is_mild = index > 0
                && match claim.kind {
                    ChangeKind::Created => changes.iter().any(|change| change.kind == ChangeKind::Changed),
                    ChangeKind::Verified => background.has_read,
                    ChangeKind::Changed | ChangeKind::Other => false,
                };
            match problem(sentence, claim, changes) {
                Some(why) if !may_be_true && !is_mild => return Assessment::Unkept(why),
                Some(_) => is_doubtful = true,
                None => is_doubtful |= names_something_else(sentence, changes),
            }
        }
    }
    if is_doubtful { Assessment::Doubtful } else { Assessment::Fine }
}

/// Returns a text that states what was really done.
pub(crate) fn describe(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "nothing was changed".to_owned();
    }
    let done = changes.iter().map(|change| match &change.name {
        Some(name) => format!("{} `{name}`", change.tool),
        None => change.tool.clone(),
    });
    format!("these calls succeeded: {}", done.collect::<Vec<_>>().join(", "))
}

/// A sentence that says a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    kind: ChangeKind,
    voice: Voice,
    /// Whether creating something cannot make it true: "I deleted it".
    is_no_creation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    /// "I created it", "Created it".
    Active,
    /// "It has been created".
    Passive,
}

impl Claim {
    /// Returns whether the sentence tells what was read: the state of many things, in the passive voice.
    fn is_a_report(self, sentence: &str) -> bool {
        const MANY: [&str; 5] = ["every", "all", "each", "both", "none"];
        let is_of_many = words(sentence).iter().any(|word| MANY.contains(&word.as_str()));
        self.voice == Voice::Passive && self.kind != ChangeKind::Created && is_of_many
    }
}

fn problem(sentence: &str, claim: Claim, changes: &[Change]) -> Option<String> {
    let kind = claim.kind;
    let made = changes.iter().filter(|change| match kind {
        ChangeKind::Verified => change.kind == ChangeKind::Verified,
        ChangeKind::Created => matches!(change.kind, ChangeKind::Created | ChangeKind::Other),
        ChangeKind::Changed | ChangeKind::Other => match change.kind {
            ChangeKind::Verified => false,
            ChangeKind::Created => !claim.is_no_creation,
            ChangeKind::Changed | ChangeKind::Other => true,
        },
    });
    let made: Vec<&Change> = made.collect();
    let verb = match kind {
        ChangeKind::Created => "created",
        ChangeKind::Verified => "verified",
        ChangeKind::Changed | ChangeKind::Other => "changed",
    };
    if made.is_empty() {
        return Some(format!("no tool call {verb} anything"));
    }
    if kind != ChangeKind::Created {
        return None;
    }
    let names = quoted_names(before_another_verb(sentence, kind));
    let is_missing = |name: &&String| !made.iter().any(|change| change.text.contains(name.as_str()));
    let missing: Vec<&String> = names.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        let list = missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Some(format!("no tool call created {list}"));
    }
    let claimed = claimed_number(sentence, kind)?;
    (claimed > made.len())
        .then(|| format!("{claimed} were claimed to be created, but only {} were", made.len()))
}

/// Returns the beginning of a sentence, up to a verb of another kind: what follows that was not created.
fn before_another_verb(sentence: &str, kind: ChangeKind) -> &str {
    let others = VERBS.iter().filter(|(_, other)| *other != kind).filter_map(|(verb, _)| sentence.find(verb));
    let own = VERBS.iter().filter(|(_, own)| *own == kind).filter_map(|(verb, _)| sentence.find(verb)).min();
    let end = others.filter(|at| own.is_some_and(|own| own < *at)).min().unwrap_or(sentence.len());
    &sentence[..end]
}

/// Splits a text into sentences and lines. A full stop inside a name does not end a sentence.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split_inclusive(". "))
        .flat_map(|it| it.split_inclusive(['!', '?', ';']))
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
}

/// Returns the changes that a sentence claims to have been made.
fn claimed(sentence: &str) -> Vec<Claim> {
    if sentence.ends_with(['?', ':']) {
        return Vec::new();
    }
    let words = words(sentence);
    if words.first().is_some_and(|first| CONDITIONS.contains(&first.trim_end_matches(','))) {
        return Vec::new();
    }
    let is_of_a_thing = words.iter().any(|word| is_thing(word));
    let has_name = |kind| {
        let names = quoted_names(sentence);
        names.iter().any(|name| kind == ChangeKind::Created || name.contains('-'))
    };
    let claims = words.iter().enumerate().filter_map(|(index, word)| {
        let kind = kind_of(word)?;
        // "I verified that it exists" tells what was read.
        if kind == ChangeKind::Verified && words.get(index + 1).is_some_and(|next| next == "that") {
            return None;
        }
        let is_plain = PLAIN.contains(&word.trim_end_matches(',')) && words.len() > 1;
        if !is_of_a_thing && !has_name(kind) && !is_plain {
            return None;
        }
        let clause = words[..index].iter().rposition(|word| word.ends_with(',')).map_or(0, |comma| comma + 1);
        let voice = claiming_voice(&words[clause..index], &words[index + 1..])?;
        Some(Claim { kind, voice, is_no_creation: NO_CREATION.contains(&word.trim_end_matches(',')) })
    });
    claims.collect()
}

/// Returns whether a sentence mentions a change in any way, without denying it.
fn mentions_change(sentence: &str) -> bool {
    let words = words(sentence);
    let denies = |word: &String| NO_CLAIM.contains(&word.trim_end_matches(',')) || is_negation(word);
    let verb = words.iter().position(|word| kind_of(word).is_some());
    let is_about_a_change = verb.is_some_and(|verb| {
        (words.iter().any(|word| is_thing(word)) || !quoted_names(sentence).is_empty())
            && !words[..verb].iter().any(denies)
    });
    let now = words.iter().position(|word| word == "now");
    let is_state = now.is_some_and(|now| {
        words[now + 1..].iter().take(3).any(|word| STATES.contains(&word.as_str()))
            && !words.iter().any(denies)
    });
    is_about_a_change || is_state || words == ["done"]
}

/// Returns whether a sentence claims a change of something that no change names.
fn names_something_else(sentence: &str, changes: &[Change]) -> bool {
    let is_known = |name: &String| changes.iter().any(|change| change.text.contains(name.as_str()));
    quoted_names(sentence).iter().any(|name| !is_known(name))
}

/// Returns the words of a sentence in lower case. A comma stays at its word; what is in quotes is left out.
fn words(sentence: &str) -> Vec<String> {
    without_quotes(&sentence.to_lowercase())
        .split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '’' || c == ','))
        .flat_map(|word| word.split_inclusive(','))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn kind_of(word: &str) -> Option<ChangeKind> {
    let plain = word.trim_end_matches(',');
    VERBS.iter().find(|(verb, _)| *verb == plain).map(|(_, kind)| *kind)
}

fn is_thing(word: &str) -> bool {
    THINGS.contains(&word.trim_end_matches(','))
}

fn is_negation(word: &str) -> bool {
    word.ends_with("n't") || word.ends_with("n’t")
}

/// Returns the voice in which a verb with these words before and after it in its clause says that something
/// was done just now; `None` if it says something else.
fn claiming_voice(before: &[String], after: &[String]) -> Option<Voice> {
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let after: Vec<&str> = after.iter().map(String::as_str).collect();
    if before.iter().any(|word| NO_CLAIM.contains(word) || is_negation(word)) {
        return None;
    }
    let subject: Vec<&str> = before.iter().copied().filter(|word| !BETWEEN.contains(word)).collect();
    let says_successfully = before.contains(&"successfully") || after.first() == Some(&"successfully");
    let is_passive_claim = match subject.as_slice() {
        // "Created the task", "Successfully updated".
        [] | ["done"] | ["ok"] | ["okay"] | ["yes"] => return Some(Voice::Active),
        [.., "i" | "we" | "i've" | "we've" | "i’ve" | "we’ve"] => return Some(Voice::Active),
        // "I went ahead and created it".
        ["i" | "we" | "i've" | "we've" | "i’ve" | "we’ve", .., "and"] => return Some(Voice::Active),
        // "The task has been created", "The task is now marked".
        _ if before.contains(&"been") => true,
        [.., "is" | "are"] => before.contains(&"now") || says_successfully,
        // "The task was created": of old data too, unless nothing follows that says when or by whom.
        [.., "was" | "were"] => says_successfully || after.is_empty(),
        // "Task x created."
        [first, ..] => (after.is_empty() && matches!(*first, "task" | "tasks" | "the")) || says_successfully,
    };
    is_passive_claim.then_some(Voice::Passive)
}

/// Returns whether an earlier answer claimed the same kind of change for the same names, so that the sentence
/// only repeats it.
fn was_said_before(sentence: &str, kind: ChangeKind, earlier: &[Message]) -> bool {
    let names = quoted_names(sentence);
    earlier.iter().any(|message| {
        let Message::Assistant { content, calls } = message else { return false };
        calls.is_empty()
            && sentences(content).any(|said| {
                let said_names = quoted_names(said);
                claimed(said).iter().any(|claim| claim.kind == kind)
                    && names.iter().all(|name| said_names.contains(name))
            })
    })
}

/// Returns the quoted names in a sentence, in lower case, except those of projects and dependencies.
fn quoted_names(sentence: &str) -> Vec<String> {
    let lower = sentence.to_lowercase();
    let mut names = Vec::new();
    for quote in ['`', '"', '“'] {
        let end = if quote == '“' { '”' } else { quote };
        let mut rest = lower.as_str();
        while let Some(from) = rest.find(quote) {
            let (before, inside) = (&rest[..from], &rest[from + quote.len_utf8()..]);
            let Some(to) = inside.find(end) else { break };
            let last_word = before.split_whitespace().next_back().unwrap_or_default();
            let is_other = ["project", "in", "for", "under", "by", "on", "to", "status", "of", "after"];
            if to > 0 && !is_other.contains(&last_word) {
                names.push(inside[..to].to_owned());
            }
            rest = &inside[to + end.len_utf8()..];
        }
    }
    names
}

/// Returns the number of tasks that a sentence claims to have been created: a number soon after the verb.
fn claimed_number(sentence: &str, kind: ChangeKind) -> Option<usize> {
    let words = words(sentence);
    let verb = words.iter().position(|word| kind_of(word) == Some(kind))?;
    let rest = &words[verb + 1..];
    let tasks = rest.iter().take(4).position(|word| word.trim_end_matches(',') == "tasks")?;
    rest[..tasks].iter().find_map(|word| {
        let spelled = NUMBERS.iter().position(|number| number == word).map(|index| index + 2);
        spelled.or_else(|| word.parse().ok().filter(|number| (1..100).contains(number)))
    })
}

/// Replaces quoted text, so that its words do not count as the answer's own.
fn without_quotes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = None;
    for character in text.chars() {
        match (inside, character) {
            (None, '`' | '"') => inside = Some(character),
            (None, '“') => inside = Some('”'),
            (Some(end), character) if character == end => {
                inside = None;
                out.push('x');
            }
            (Some(_), _) => {}
            (None, character) => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests;
