mod notations;

use super::*;

/// Secrets are assembled at run time, so that no scanner takes this file for a leak.
pub(crate) const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1RoQ7rT2mZx9LkW4vNc8Bd";
const BASE32: &str = "AQ7RT2MZXLKW4VNCBDY5HJP3GSF6AEUROQ7RT2MZXLKW4VNCBDY5HJPA";

/// Returns texts with a secret, and the part of the secret that must not be written.
pub(crate) fn shapes() -> Vec<(String, &'static str)> {
    let with = |begins: &str| (format!("{begins}{BODY}"), BODY);
    let mut shapes: Vec<_> = [
        "cyn_",
        "sk-",
        "sk-ant-api03-",
        "sk-proj-",
        "xai-",
        "gsk_",
        "hf_",
        "r8_",
        "AIza",
        "ya29.",
        "ghp_",
        "gho_",
        "github_pat_",
        "glpat-",
        "npm_",
        "xoxb-",
        "xoxp-",
        "xapp-",
        "sk_live_",
        "pk_test_",
    ]
    .map(with)
    .into();
    shapes.extend(["SU", "SA", "SO", "SN", "SC", "SX"].map(|begins| (format!("{begins}{BASE32}"), BASE32)));
    let upper = "Q7RT2MZX9LKW4VNC";
    shapes.extend(["AKIA", "ASIA"].map(|begins| (format!("{begins}{upper}"), upper)));
    shapes.push((format!("AGE-SECRET-KEY-1{BASE32}"), BASE32));
    shapes.push((format!("SG.{BODY}.{BODY}"), BODY));
    shapes.push((format!("eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.{BODY}.{BODY}"), BODY));
    shapes.push((format!("Bearer {BODY}"), BODY));
    shapes.push((format!("bearer {BODY}"), BODY));
    shapes.push((format!("Authorization: Basic {BODY}"), BODY));
    shapes.push((format!("basic {BODY}=="), BODY));
    shapes.push((format!("nats://worker:{BODY}@nats.internal:4222"), BODY));
    shapes.push((format!("nats://{BODY}@nats.internal:4222,tls://b:4222"), BODY));
    shapes.push((format!("nats://a:4222,tls://worker:{BODY}@b:4222"), BODY));
    shapes.push((format!("postgres://worker:{BODY}@db/cynode?sslmode=require"), BODY));
    shapes.push((format!("worker:{BODY}@nats.internal:4222"), BODY));
    for name in
        ["password", "PASSWORD", "passwd", "db_password", "token", "access_token", "X-Api-Key", "api_key"]
    {
        shapes.push((format!("{name}={BODY}"), BODY));
        shapes.push((format!("{name}: {BODY}"), BODY));
        shapes.push((format!("{name} = \"{BODY} with spaces\""), BODY));
        shapes.push((format!("{{\"{name}\":\"{BODY}\",\"user\":\"bob\"}}"), BODY));
        shapes.push((format!("{{'{name}': '{BODY}'}}"), BODY));
        shapes.push((format!("Settings {{ {name}: Some(\"{BODY}\") }}"), BODY));
        shapes.push((format!("https://api.example/v1?{name}={BODY}&page=2"), BODY));
    }
    for text in [
        "--password BODY",
        "--password=BODY",
        "mysql --user bob --db-password 'BODY' shop",
        "login --token \"BODY\"",
        "[\"--api-key\", \"BODY\"]",
        "<password>BODY</password>",
        "<wsse:Password Type=\"Text\">BODY</wsse:Password>",
        "<apiKey>\n  BODY\n</apiKey>",
        "curl -u bob:BODY https://api.example",
        "curl -sSu bob:BODY https://api.example",
        "curl https://api.example \\\n  --user 'bob:BODY'",
        "curl --user=bob:BODY https://api.example",
        "password：BODY",
        "密码：BODY",
        "token ＝ BODY",
        "password:\nBODY",
        "The **token**:\n```\nBODY\n```",
        "https://hooks.slack.com/services/T01ABCDEF/B02ABCDEF/BODY",
        "https://api.telegram.org/bot123456789:AABODY/getMe",
        "123456789:AABODY",
        "env:\n- name: DB_PASSWORD\n  value: BODY\n- name: MODE",
        "- name: DB_PASSWORD\n  value: \"BODY\"",
        "{\"name\":\"X-Api-Key\",\"value\":\"BODY\"}",
        "[{\"name\": \"token\",\n  \"value\": \"BODY\"}]",
        "{ key = 'api_key', value = 'BODY' }",
    ] {
        shapes.push((text.replace("BODY", BODY), BODY));
    }
    shapes.push((format!("{{\"password\":\"quo\\\"te{BODY}\"}}"), BODY));
    shapes.push((format!("Cookie: session={BODY}; other={BODY}"), BODY));
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        let (begin, end) =
            (format!("-----BEGIN {kind}PRIVATE KEY-----"), format!("-----END {kind}PRIVATE KEY-----"));
        shapes.push((format!("{begin}\n{BODY}\n{BODY}\n{end}\n"), BODY));
        shapes.push((format!("{begin}\n{BODY}\n{BODY}"), BODY));
    }
    shapes.push((
        format!(
            "-----BEGIN NATS USER JWT-----\neyJ0eXAiOiJKV1Q.{BODY}.{BODY}\n------END NATS USER JWT------"
        ),
        BODY,
    ));
    shapes.push((
        format!("-----BEGIN USER NKEY SEED-----\nSU{BASE32}\n------END USER NKEY SEED------"),
        BASE32,
    ));
    shapes
}

#[test]
fn every_rule_compiles() {
    assert_eq!(RULES.len(), rules::sources().len());
}

/// G11: a secret of any known shape, anywhere in a line, is not in the line that is written.
#[test]
fn secrets_of_many_shapes_are_redacted_anywhere_in_a_line() {
    for (text, secret) in shapes() {
        let json = |text: &str| serde_json::json!({ "message": text, "level": "WARN" }).to_string();
        let places = [
            text.clone(),
            format!("{text} and more"),
            format!("the server said: {text}"),
            format!("a line\n{text}\nanother"),
            format!("({text})"),
            format!("error={text}"),
            format!("\u{1b}[3merror\u{1b}[0m\u{1b}[2m=\u{1b}[0m{text}"),
            json(&text),
            json(&format!("a line\n{text}\nanother")),
            json(&json(&text)),
            json(&json(&format!("first\n{text}"))),
        ];
        for place in places {
            let written = redact(&place);
            // Not even half of the secret may be written.
            assert!(!written.contains(&secret[..secret.len() / 2]), "{place}\nbecame\n{written}");
            assert!(!written.contains(&secret[secret.len() / 2..]), "{place}\nbecame\n{written}");
            if place.starts_with("{\"message\"") {
                let still: Result<serde_json::Value, _> = serde_json::from_str(&written);
                assert!(still.is_ok_and(|line| line["level"] == "WARN"), "{written}");
            }
        }
    }
}

/// Fields that are named like a secret, as the log writes them.
#[test]
fn fields_are_redacted_in_both_formats() {
    assert_eq!(redact("password=hunter2 user=bob"), "password=[redacted] user=bob");
    let coloured = "\u{1b}[3mpassword\u{1b}[0m\u{1b}[2m=\u{1b}[0mhunter2 \u{1b}[3muser\u{1b}[0m";
    assert!(!redact(coloured).contains("hunter2"));
    assert_eq!(redact(r#"{"token":"hunter2","a":1}"#), r#"{"token":"[redacted]","a":1}"#);
    assert_eq!(redact(r#"{"token":12345,"a":1}"#), r#"{"token":"[redacted]","a":1}"#);
    assert_eq!(redact(r#"{"token":null,"a":1}"#), r#"{"token":null,"a":1}"#);
}

/// Lines without a secret are returned unchanged and are not copied.
#[test]
fn ordinary_lines_are_unchanged() {
    for line in [
        r#"{"timestamp":"2026-01-01T00:00:00Z","level":"INFO","message":"Ready.","address":"127.0.0.1:8790"}"#,
        r#"{"prompt_tokens":12,"max_tokens":400,"token_file":"/run/secrets/token","tries":2}"#,
        "handoff.id=0198c0de-0000-7000-8000-000000000001 trace.id=4bf92f3577b34da6a3ce929d0e0e4736 Answered.",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "nats://127.0.0.1:4222 http://127.0.0.1:8790/mcp?page=2",
        "a basic functionality of task-dispatching-workers and disk-pressure-monitors",
        "seal=ADQ7RT2MZXLKW4VNCBDY5HJP3GSF6AEUROQ7RT2MZXLKW4VNCBDY5HJPA",
        "the token file /run/secrets/gateway.token cannot be read; using the last token.",
        "a bearer token is needed",
        "The password is wrong. The token has expired, and the passphrase was never set.",
        "Pass --password to the program, or --token, which is shorter; --password-file reads a file.",
        "usage: login --user <name> --password <password> [--token-file FILE]",
        "Write <password> where the password goes and <token>where the token goes",
        "I forgot my password\nWhat can I do?",
        "Password\nEmail\nName",
        "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      key: password\n- name: A\n  value: b",
        "db:\n  password:\n    valueFrom:\n      secretKeyRef: {}",
        "Enter your password:\nand then your name.",
        "curl -u sends a name and a password; curl -s https://api.example:8443/v1 does not.",
        "https://hooks.slack.com/ and https://api.telegram.org/ are services; it is 123456:00",
        "口令 and 密码 are words for a password",
    ] {
        assert!(matches!(redact(line), Cow::Borrowed(_)), "{line}\nbecame\n{}", redact(line));
    }
}

#[test]
fn values_of_passwords_are_replaced_and_nothing_else() {
    for (text, expected) in [
        ("login --password hunter2 --verbose", "login --password [redacted] --verbose"),
        ("<password>hunter2</password><user>bob</user>", "<password>[redacted]</password><user>bob</user>"),
        ("curl -u bob:hunter2 https://api.example", "curl -u bob:[redacted] https://api.example"),
        ("curl -u \"bob:two words\" https://api.example", "curl -u \"bob:[redacted]\" https://api.example"),
        ("password:\nhunter2\nDone.", "password:\n[redacted]\nDone."),
        ("Password:\ncorrecthorse\n", "Password:\n[redacted]\n"),
        ("Password\nhunter2\nEmail", "Password\n[redacted]\nEmail"),
        ("- name: TOKEN\n  value: hunter2\n- name: B", "- name: TOKEN\n  value: [redacted]\n- name: B"),
        ("密码：hunter2 谢谢", "密码：[redacted] 谢谢"),
    ] {
        assert_eq!(redact(text), expected, "{text}");
    }
}

#[test]
fn secrets_are_found_in_names_and_names_are_not_taken_for_secrets() {
    for name in [
        format!("thread-sk-{BODY}"),
        format!("ghp_{BODY}"),
        "password=hunter2".to_owned(),
        "token: hunter2".to_owned(),
        "nats://bob:hunter2@host".to_owned(),
        "--password hunter2".to_owned(),
    ] {
        assert!(find_in_name(&name).is_some(), "{name}");
    }
    for name in [
        "oidc:bob@example.com",
        "sk-learn-contrib-extras",
        "0198c0de-0000-7000-8000-000000000001",
        "request-0198c0de-0000-4000-8000-000000000001",
        "Token of the laptop",
        "bearer authentication",
        "alice's password manager",
        "auth0|5f7c8ec7c33c6c004bbafe82",
    ] {
        assert_eq!(find_in_name(name), None, "{name}");
    }
}

#[test]
fn names_of_members_with_a_secret_are_told_apart() {
    for name in
        ["password", "DB_PASSWORD", "X-Api-Key", "Authorization", "Set-Cookie", "gateway.token", "密码"]
    {
        assert!(is_name(name), "{name}");
    }
    for name in ["tokens", "token_file", "max_tokens", "content", "bypass", "id", "key", ""] {
        assert!(!is_name(name), "{name}");
    }
}
