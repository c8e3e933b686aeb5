use proptest::prelude::*;
use retrieval::{Language, Tokenizer};

use crate::ENGLISH;

fn texts(tokenizer: Tokenizer, text: &str) -> Vec<String> {
    tokenizer.words(text).into_iter().map(|word| word.text).collect()
}

fn terms(language: Language, text: &str) -> Vec<String> {
    Tokenizer { language: Some(language) }.words(text).into_iter().map(|word| word.term).collect()
}

#[test]
fn identifiers_give_themselves_and_their_parts() {
    let unknown = Tokenizer::default();
    assert_eq!(texts(unknown, "db.task_list"), ["db.task_list", "db", "task", "list"]);
    assert_eq!(texts(unknown, "updateStatus"), ["updatestatus", "update", "status"]);
    assert_eq!(texts(unknown, "HTTPServer2"), ["httpserver2", "http", "server", "2"]);
    assert_eq!(texts(unknown, "rank-fusion"), ["rank", "fusion"]);
    assert_eq!(texts(unknown, "v1.25"), ["v1.25", "v", "1", "25"]);
}

#[test]
fn plurals_of_acronyms_are_not_split() {
    assert_eq!(texts(ENGLISH, "URLs"), ["url"]);
    assert_eq!(texts(ENGLISH, "LLMs and VMs"), ["llm", "and", "vm"]);
    assert_eq!(texts(ENGLISH, "GitHub"), ["github", "git", "hub"]);
}

#[test]
fn words_of_every_script_are_found() {
    assert_eq!(texts(Tokenizer::default(), "Größe, naïve: l'été"), ["große", "naive", "l", "ete"]);
    assert_eq!(texts(Tokenizer::default(), "создай задачу"), ["создаи", "задачу"]);
    assert_eq!(texts(Tokenizer::default(), "新規タスク"), ["新", "規", "タスク"]);
    assert_eq!(texts(Tokenizer::default(), "e\u{301}a \u{fb01}le ＡＢＣ"), ["ea", "file", "abc"]);
}

#[test]
fn inflections_share_a_term_where_the_language_is_known() {
    assert_eq!(terms(Language::English, "deploying deployed deploys"), ["deploy", "deploy", "deploy"]);
    assert_eq!(terms(Language::German, "Häuser Haus"), ["haus", "haus"]);
    assert_eq!(terms(Language::French, "continuellement continuelle"), ["continuel", "continuel"]);
    assert_eq!(texts(Tokenizer::default(), "deploying"), ["deploying"]);
    assert_eq!(Tokenizer::default().word("deploying").term, "deploying");
}

#[test]
fn common_words_are_those_of_the_language() {
    assert!(ENGLISH.word("The").is_common);
    assert!(!ENGLISH.word("theme").is_common);
    assert!(!Tokenizer { language: Some(Language::German) }.word("the").is_common);
    assert!(!Tokenizer::default().word("the").is_common);
}

#[test]
fn encoded_data_is_not_indexed_as_a_word() {
    assert!(texts(ENGLISH, &"a".repeat(65)).is_empty());
    assert_eq!(texts(ENGLISH, &"a".repeat(64)).len(), 1);
}

proptest! {
    #[test]
    fn any_text_can_be_read_in_any_language(text in any::<String>()) {
        for language in Language::all() {
            for word in (Tokenizer { language: Some(*language) }).words(&text) {
                prop_assert!(!word.text.is_empty() && !word.text.contains(char::is_whitespace));
            }
        }
    }
}
