//! Notations in which a value follows its name.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use crate::{StreamRedactor, redact, redact_by_kind};

const VALUE: &str = "Zq7hunterUUU1x";
const NOTATIONS: [&str; 50] = [
    "**Password:** VALUE",
    "__Password:__ VALUE",
    "**password**: VALUE",
    "***Password***: VALUE",
    "`password`: `VALUE`",
    "`password` = VALUE",
    "**Password**: **`VALUE`**",
    "- **API key:** `VALUE`",
    "* **Secret key**: VALUE",
    "Password: ``VALUE``",
    "password := \"VALUE\"",
    "password := VALUE",
    "password == 'VALUE'",
    "if password == VALUE",
    "if (token !== \"VALUE\") {",
    "DB_PASSWORD ?= VALUE",
    "DB_PASSWORD += VALUE",
    "password: |\n  VALUE",
    "password: |\n  VALUE and more\nuser: bob",
    "password: >-\n    VALUE\nuser: bob",
    "db:\r\n  password: |2-\r\n    VALUE\r\n",
    "secret: !vault VALUE",
    "secret: !vault \"VALUE\"",
    "secret: !vault |\n  VALUE",
    "secret_key = \"\"\"\nVALUE\n\"\"\"",
    "secret_key = \"\"\"VALUE\"\"\"",
    "secret_key = '''\nVALUE\n'''",
    "| Password | `VALUE` |",
    "| Password | VALUE |",
    "|Password|VALUE|",
    "| **Password:** | VALUE | bob |",
    "| Name | Value |\n|---|---|\n| API key | VALUE |\n| Port | 8080 |",
    "│ password │ VALUE │",
    "Password:\n> VALUE",
    "**Password:**\n\t> `VALUE`\nDone.",
    "Password: ```\nVALUE\n```",
    "`password`:\nVALUE\n",
    "password\u{a0}=\u{a0}VALUE",
    "Password:\u{a0}VALUE",
    "Password\u{202f}:\u{202f}\"VALUE\"",
    "<password value=\"VALUE\"/>",
    "<password  type='x' value='VALUE' />",
    "<add key=\"DbPassword\" value=\"VALUE\"/>",
    "<input type=\"password\" name=\"pin\" value=\"VALUE\">",
    "machine db.example login bob password VALUE",
    "machine db.example\n  login bob\n  password VALUE\n",
    "let password: &str = \"VALUE\";",
    "password: str = 'VALUE'",
    "password = b\"VALUE\"",
    "password: String::from(\"VALUE\"),",
];
/// Texts that name a secret and contain none.
const PROSE: [&str; 36] = [
    "the password is wrong",
    "**Password:** is required",
    "**Password:**",
    "**Password:**\n\n**User:** bob",
    "`password`: `string`",
    "Password: see the vault",
    "Password: required.",
    "password policy",
    "| Password | Required |",
    "| User | Password |\n|------|----------|\n| bob | unknown |",
    "| `password` | `string` | The password of the user, up to 64 bytes |",
    "| token | password_hash | 12 |",
    "cat token | sha256sum",
    "password: string",
    "interface Login { name: string; password: string; token?: string }",
    "password: &str, token: Option<String>",
    "**Note:** reset your password",
    "Forgot your password? Click here = there.",
    "if token == expected",
    "if (token != null) {",
    "password = \"\"",
    "{\"password\":\"\",\"token\":''}",
    "password = \"\"\"\"\"\"",
    "password: |",
    "password: >-\nuser: bob",
    "password: |\nuser: bob",
    "secret: !vault |\n",
    "password := ",
    "Password:\n> ",
    "Password:\n> the one you chose",
    "<password value=\"\"/>",
    "<password/> has a value = \"x\"",
    "<password type=\"text\"/>\nDone.",
    "A machine with login and password protection",
    "a private key, an API key, an access key and a client key",
    "**Token** __secret__ `password` *pass*",
];

/// Returns texts with the value.
fn notations() -> impl Iterator<Item = String> {
    NOTATIONS.into_iter().map(|notation| notation.replace("VALUE", VALUE))
}

fn in_pieces(pieces: &[&str]) -> String {
    let mut redactor = StreamRedactor::default();
    let mut out: String = pieces.iter().map(|piece| redactor.push(piece)).collect();
    out.push_str(&redactor.finish());
    out
}

/// Not only is the value replaced: all the signs between it and its name stay.
#[track_caller]
fn assert_replaced(text: &str, written: &str, marker: &str) {
    let (before, after) = text.split_once(VALUE).unwrap();
    assert!(!written.contains("hunter") && !written.contains("UUU1x"), "{text:?}\nbecame\n{written:?}");
    assert_eq!(written.matches("[redacted").count(), 1, "{text:?}\nbecame\n{written:?}");
    // A tag may go with the value.
    let before = before.strip_suffix("!vault ").unwrap_or(before);
    assert!(written.starts_with(before), "{text:?}\nbecame\n{written:?}");
    let rest = &written[before.len()..];
    assert!(rest.trim_start_matches("!vault ").starts_with(marker), "{text:?}\nbecame\n{written:?}");
    let last_line = after.rsplit('\n').next().unwrap_or(after);
    assert!(!after.contains('\n') || written.ends_with(last_line), "{text:?}\nbecame\n{written:?}");
}

#[test]
fn values_are_replaced_and_not_the_signs_before_them() {
    for text in notations() {
        assert_replaced(&text, &redact(&text), "[redacted]");
        let once = redact_by_kind(&text);
        assert_replaced(&text, &once, "[redacted:secret]");
        assert_eq!(redact_by_kind(&once), once, "{text:?}");
        for place in [format!("Here it is.\n{text}\nDone."), format!("* One\n\n{text}\n\n* Two")] {
            assert_replaced(&place, &redact(&place), "[redacted]");
        }
    }
}

#[test]
fn values_in_json_are_replaced_and_the_json_stays_valid() {
    for text in notations() {
        let json = serde_json::json!({ "message": format!("a line\n{text}\nanother"), "level": "WARN" });
        let written = redact(&json.to_string()).into_owned();
        assert!(!written.contains("hunter"), "{json}\nbecame\n{written}");
        let still: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(still["level"], "WARN", "{written}");
    }
}

#[test]
fn values_split_over_two_pieces_at_any_place_are_replaced() {
    for text in notations().map(|text| format!("Here it is.\n{text}\nDone.")) {
        let whole = redact_by_kind(&text);
        for (at, _) in text.char_indices() {
            let out = in_pieces(&[&text[..at], &text[at..]]);
            assert_eq!(out, whole, "{:?} and {:?}", &text[..at], &text[at..]);
        }
        let single: Vec<String> = text.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(in_pieces(&single), whole, "{text:?}");
    }
}

#[test]
fn prose_and_types_stay() {
    for text in PROSE {
        assert!(matches!(redact(text), Cow::Borrowed(_)), "{text:?}\nbecame\n{:?}", redact(text));
        for (at, _) in text.char_indices() {
            assert_eq!(in_pieces(&[&text[..at], &text[at..]]), text);
        }
    }
}

/// The time is in proportion to the size, also where every word begins a notation. The bounds leave room for
/// a slow machine; time in proportion to the square of the size would exceed them many times.
#[test]
fn long_texts_are_redacted_in_time() {
    const BYTES: usize = 256 * 1024;
    for unit in
        ["password ", "| password ", "**password:** ", "<password ", "password: |\n", "`", "machine a "]
    {
        let text = unit.repeat(BYTES / unit.len());
        let began = Instant::now();
        redact(&text);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "{unit:?} took {took:?}");
    }
}
