//! Words of ordinary English that mean the same when people ask for work, whatever the catalogue.
//!
//! They are written from general knowledge. None is taken from goals that tests hold out, or the tests would
//! prove nothing.

use std::{collections::BTreeMap, sync::LazyLock};

use retrieval::words::Word;

use super::ENGLISH;

/// Groups of words, separated by bars.
const GROUPS: &str = "\
    create add new make made open register generate draft compose prepare | \
    list show all overview available | get read show view details open look see | \
    update change edit set rename modify adjust correct enable disable switch | move transition transfer | \
    delete remove drop clear forget erase rid | search find found look query seek | \
    run ran execute start launch trigger exec command compile build | job run attempt try retry again | \
    stop cancel abort end pause close shut | send sent post tell message notify announce write know | \
    store save put keep record upload note remember | fetch download pull load install | \
    approve allow permit permission approval okay agree accept confirm decision | \
    verify check test review audit | replace swap rotate renew | \
    copy clone fork duplicate backup checkout | merge combine join | \
    assign owner delegate hand give responsible | comment reply answer respond note | \
    navigate visit browse open | deploy deployment rollout release restart | \
    rollback undo revert restore rollout | invite join member onboard | \
    wait depend dependency after before until once prerequisite | task todo ticket issue item work | \
    status state done complete finish blocked progress ready | \
    finding bug error problem defect issue exception weakness vulnerability | \
    severity priority urgent important critical severe | \
    file document report artifact output result readme spreadsheet code source | \
    folder directory path | skill instruction howto guide ability | persona role character act | \
    model llm ai | node machine server host computer cluster | processor cpu gpu graphics memory | \
    sandbox container docker environment isolated box | workflow pipeline process automation | \
    schedule cron every daily nightly weekly recurring regular plan | \
    calendar meeting meet appointment event book | \
    calendar date day week today tomorrow monday tuesday wednesday thursday friday | \
    message chat mail email channel slack conversation | user person people member account colleague team | \
    web url https http www page site internet online link | api endpoint rest request service | \
    repository repo git github code source | commit revision change history version | \
    pull request pr merge | preference setting option configuration config prefer default always never | \
    memory remember recall fact know told | secret password credential key | \
    budget cost money price spend spent balance | database sql table | \
    image picture photo draw screenshot capture | metric latency performance monitoring usage slow rate | \
    alert alarm warning | log print trace output line | health alive heartbeat load | \
    help manual documentation explain | recent latest newest last";
/// Question patterns, each with the terms that it implies.
const HINTS: &str = "which list | what list get | who list user | where search | any list | many list | \
    how get | why get";

/// Returns the words that mean the same as a term.
pub(super) fn of_term(term: &str) -> &'static [Word] {
    static BY_TERM: LazyLock<BTreeMap<String, Vec<Word>>> = LazyLock::new(|| {
        let mut by_term: BTreeMap<String, Vec<Word>> = BTreeMap::new();
        for group in GROUPS.split('|') {
            let words: Vec<Word> = group.split_whitespace().map(|word| ENGLISH.word(word)).collect();
            for word in &words {
                let others = words.iter().filter(|other| other.term != word.term).cloned();
                by_term.entry(word.term.clone()).or_default().extend(others);
            }
        }
        by_term
    });
    BY_TERM.get(term).map_or(&[], Vec::as_slice)
}

pub(super) fn hints(word: &str) -> impl Iterator<Item = &'static str> {
    let mut questions = HINTS.split('|').map(str::split_whitespace);
    questions.find_map(|mut words| (words.next() == Some(word)).then_some(words)).into_iter().flatten()
}

/// Returns what a piece of the goal is by its form: an address, a file, a channel, a command.
pub(super) fn of_form(piece: &str) -> &'static [&'static str] {
    let bare = piece.trim_matches(|letter: char| !letter.is_alphanumeric());
    let is_extension = |end: &str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase();
        (1..=4).contains(&end.len())
            && end.bytes().any(is_letter)
            && end.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
    };
    let is_file = bare.rsplit_once('.').is_some_and(|(base, end)| !base.is_empty() && is_extension(end));
    match piece {
        _ if bare.is_empty() => &[],
        _ if piece.contains("://") || bare.starts_with("www.") => &["url", "web", "page"],
        _ if bare.contains('@') => &["email", "person"],
        _ if piece.starts_with('#') && bare.starts_with(char::is_alphabetic) => &["channel", "message"],
        _ if piece.contains('`') => &["command"],
        _ if is_file => &["file", "path"],
        _ => &[],
    }
}
