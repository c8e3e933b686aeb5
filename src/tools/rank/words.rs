//! Splits text into words and reduces words to stems.

use std::sync::LazyLock;

/// Longer words are ignored: they are tokens or encoded data, not words that name a tool.
const MAX_WORD_BYTES: usize = 40;

const STOP_WORDS: &str = "
    a about after again ago ah aint already also am an and another any anybody anymore anyone anything
    anyway are aren as at away be because been before being but by bye can cannot cheers could couldn dear
    did didn do does doesn doing don each either else etc even ever every everybody everyone everything few
    for from further good great had hadn has hasn have haven having he hello hence her here hers hey hi him
    his how however i if in indeed instead into is isn it its itself just kind kindly know last lately later
    let like little ll lot lots many may maybe me mean might mine more moreover most much must my myself
    need needed needs never next nice no nobody none nor not nothing now of off oh ok okay on once one ones
    only onto or other others otherwise ought our ours ourselves out over own perhaps please pls possible
    quick quickly quite rather re really right same shall she should shouldn since so some somebody someone
    something soon still such sure than thank thanks that the their theirs them then there therefore these
    they thing things this those though through thus thx to today tomorrow tonight too toward two under
    unless until up upon us used using ve very via want wanted wants was wasn way we well were weren what
    when where whether which while who whom whose why will wish with within without won would wouldn yes
    yesterday yet you your yours yourself
";

/// Verbs that combine with any object and so say little about the goal.
const LIGHT_VERBS: &[&str] = &[
    "bring", "do", "find", "get", "give", "go", "help", "keep", "make", "put", "see", "set", "show", "take",
    "tell", "use", "work",
];

const IRREGULAR: &[(&str, &str)] = &[
    ("bought", "buy"),
    ("broke", "break"),
    ("broken", "break"),
    ("built", "build"),
    ("chose", "choose"),
    ("chosen", "choose"),
    ("drew", "draw"),
    ("drawn", "draw"),
    ("forgot", "forget"),
    ("forgotten", "forget"),
    ("found", "find"),
    ("gave", "give"),
    ("given", "give"),
    ("got", "get"),
    ("held", "hold"),
    ("kept", "keep"),
    ("made", "make"),
    ("paid", "pay"),
    ("people", "person"),
    ("ran", "run"),
    ("said", "say"),
    ("saw", "see"),
    ("seen", "see"),
    ("sent", "send"),
    ("shown", "show"),
    ("sold", "sell"),
    ("spent", "spend"),
    ("taken", "take"),
    ("taught", "teach"),
    ("told", "tell"),
    ("took", "take"),
    ("written", "write"),
    ("wrote", "write"),
];

/// Words that look inflected but are not.
const UNINFLECTED: &[&str] = &[
    "setting", "finding", "morning", "evening", "string", "spring", "news", "series", "lens", "https",
    "always", "speed", "hundred", "embed", "canvas", "redis", "ping",
];

/// Endings that derive a related word from another, as they look after stemming.
const DERIVING_ENDINGS: &[&str] = &[
    "ication", "ation", "ition", "ion", "ment", "ness", "anc", "enc", "abl", "ibl", "ity", "al", "er", "or",
    "ly", "iv", "ist", "ur", "iz", "is", "ag", "ful", "ship", "ic", "at", "y",
];

const MIN_ROOT_CHARS: usize = 4;

/// Returns the lower-case words of ordinary text, in order, without the part after an apostrophe.
pub(crate) fn of_text(text: &str) -> Vec<String> {
    text.split(|letter: char| !(letter.is_alphanumeric() || is_apostrophe(letter)))
        .map(|word| word.trim_start_matches(is_apostrophe))
        .filter_map(|word| word.split(is_apostrophe).next())
        .filter(|word| !word.is_empty() && word.len() <= MAX_WORD_BYTES)
        .map(str::to_lowercase)
        .collect()
}

/// Returns the lower-case words of an identifier such as `db.task.updateStatus`.
pub(crate) fn of_name(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty()) {
        let pieces = split_at_capitals(part);
        // `GitHub` also counts as one word.
        if pieces.len() > 1 {
            words.push(part.to_lowercase());
        }
        words.extend(pieces);
    }
    words
}

fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\'' | '’')
}

fn split_at_capitals(part: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut after_small_letter = false;
    for letter in part.chars() {
        if letter.is_uppercase() && after_small_letter {
            pieces.push(std::mem::take(&mut piece));
        }
        after_small_letter = letter.is_lowercase() || letter.is_numeric();
        piece.extend(letter.to_lowercase());
    }
    pieces.push(piece);
    pieces
}

pub(crate) fn is_stop_word(word: &str) -> bool {
    static SORTED: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let mut sorted: Vec<&str> = STOP_WORDS.split_whitespace().collect();
        sorted.sort_unstable();
        sorted
    });
    word.chars().nth(1).is_none() || SORTED.binary_search(&word).is_ok()
}

pub(crate) fn is_light_verb(stem: &str) -> bool {
    static STEMS: LazyLock<Vec<String>> =
        LazyLock::new(|| LIGHT_VERBS.iter().map(|verb| self::stem(verb)).collect());
    STEMS.iter().any(|verb| verb == stem)
}

/// Returns the stem that the inflections of a word share: `creates`, `created` and `creating` become `creat`.
pub(crate) fn stem(word: &str) -> String {
    if let Some((_, base)) = IRREGULAR.iter().find(|(form, _)| *form == word) {
        return without_silent_letter((*base).to_owned());
    }
    if word.len() <= 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let singular = without_plural(word);
    if UNINFLECTED.contains(&singular.as_str()) || UNINFLECTED.contains(&word) {
        return if UNINFLECTED.contains(&word) { word.to_owned() } else { singular };
    }
    without_silent_letter(without_tense(singular))
}

fn without_plural(word: &str) -> String {
    if let Some(rest) = word.strip_suffix("ies").filter(|rest| rest.len() > 1) {
        return format!("{rest}y");
    }
    if ["sses", "shes", "ches", "xes", "zzes"].iter().any(|ending| word.ends_with(ending)) {
        return word.strip_suffix("es").unwrap_or(word).to_owned();
    }
    if ["ss", "us", "is"].iter().any(|ending| word.ends_with(ending)) {
        return word.to_owned();
    }
    word.strip_suffix('s').unwrap_or(word).to_owned()
}

fn without_tense(word: String) -> String {
    if let Some(rest) = word.strip_suffix("ied").filter(|rest| rest.len() > 1) {
        return format!("{rest}y");
    }
    let rest = word.strip_suffix("ing").or_else(|| word.strip_suffix("ed"));
    match rest.filter(|rest| rest.len() >= 3 && rest.contains(['a', 'e', 'i', 'o', 'u', 'y'])) {
        Some(rest) => without_doubled_letter(rest),
        None => word,
    }
}

fn without_doubled_letter(word: &str) -> String {
    let mut letters = word.chars().rev();
    let (last, previous) = (letters.next(), letters.next());
    let doubled =
        last == previous && last.is_some_and(|letter| !matches!(letter, 'l' | 's' | 'z' | 'e' | 'o'));
    let shortened: String = word.chars().take(word.chars().count().saturating_sub(1)).collect();
    if doubled && word.len() > 3 { shortened } else { word.to_owned() }
}

fn without_silent_letter(word: String) -> String {
    let silent_e = word.len() > 3 && word.ends_with('e') && !word.ends_with("ee");
    let doubled_l = word.len() > 5 && word.ends_with("ll");
    if silent_e || doubled_l { word.chars().take(word.chars().count() - 1).collect() } else { word }
}

/// Returns shorter forms that related words share: `deployment` and `deploy`, `reviewer` and `review`.
pub(crate) fn roots(stem: &str) -> Vec<String> {
    let mut roots: Vec<String> = DERIVING_ENDINGS
        .iter()
        .filter_map(|ending| stem.strip_suffix(ending))
        .filter(|root| root.chars().count() >= MIN_ROOT_CHARS)
        .map(str::to_owned)
        .collect();
    roots.dedup();
    roots
}
