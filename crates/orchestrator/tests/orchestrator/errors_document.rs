//! The table of errors in `docs/chat-api.md` has every code that the program can answer with, and no other.

use std::{collections::BTreeMap, fs, path::Path};

use subjects::ErrorCode;

const DOCUMENT: &str = include_str!("../../../../docs/chat-api.md");

/// Returns the codes of the table, each with the first status of its row.
fn documented() -> BTreeMap<String, String> {
    let section = DOCUMENT.split("\n## Errors\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let codes = rows.flat_map(|row| {
        let (status, codes) = row.trim_matches('|').split_once('|').unwrap();
        let is_code = |word: &&str| word.contains('_') || word.bytes().all(|byte| byte.is_ascii_lowercase());
        let codes = codes.split('`').skip(1).step_by(2).filter(is_code);
        codes.map(|code| (code.to_owned(), status.trim().to_owned())).collect::<Vec<_>>()
    });
    codes.collect()
}

/// Returns the codes in a source file, each with its status if that is beside it.
fn codes_in(source: &str) -> Vec<(String, Option<u16>)> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "'").replace("'\"'", "' '");
    let parts: Vec<&str> = code.split('"').collect();
    let found = parts.chunks(2).filter_map(|pair| {
        let [before, literal] = pair else { return None };
        let before = before.trim_end();
        let status = before.strip_suffix(',').and_then(|before| before.rsplit("StatusCode::").next());
        let status = status.and_then(|name| match name {
            "BAD_REQUEST" => Some(400),
            "UNAUTHORIZED" => Some(401),
            "FORBIDDEN" => Some(403),
            "NOT_FOUND" => Some(404),
            "METHOD_NOT_ALLOWED" => Some(405),
            "REQUEST_TIMEOUT" => Some(408),
            "CONFLICT" => Some(409),
            "PAYLOAD_TOO_LARGE" => Some(413),
            "UNPROCESSABLE_ENTITY" => Some(422),
            "TOO_MANY_REQUESTS" => Some(429),
            "INTERNAL_SERVER_ERROR" => Some(500),
            "BAD_GATEWAY" => Some(502),
            "SERVICE_UNAVAILABLE" => Some(503),
            "GATEWAY_TIMEOUT" => Some(504),
            _ => None,
        });
        let status = status.or_else(|| before.ends_with("unavailable(").then_some(503));
        // The beginning of a pair of a code and its message.
        let arm = before.strip_suffix('(').map(str::trim_end);
        let is_chosen = arm.is_some_and(|arm| arm.ends_with(['>', '{']));
        let is_chosen = is_chosen && literal.contains('_');
        let is_code = status.is_some() || before.ends_with("code:") || is_chosen;
        // Other texts beside a status are those of probes.
        let is_code = is_code && literal.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_code.then(|| ((*literal).to_owned(), status))
    });
    found.collect()
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The egress answers agents, and has a document of its own.
        let is_egress = path.file_stem().is_some_and(|name| name == "egress");
        match path.is_dir() {
            _ if is_egress => {}
            true => sources(&path, found),
            false => found.push(fs::read_to_string(&path).unwrap()),
        }
    }
}

#[test]
fn every_code_is_in_the_table_with_its_status() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let used: Vec<(String, Option<u16>)> = files.iter().flat_map(|source| codes_in(source)).collect();
    assert!(used.len() > 30, "{used:?}");
    let documented = documented();
    for (code, status) in &used {
        let row = documented.get(code).unwrap_or_else(|| panic!("docs/chat-api.md does not list {code}"));
        let is_in_row = status.is_none_or(|status| row.contains(&status.to_string()));
        assert!(is_in_row, "{code} is answered with {status:?}, and the table says {row}");
    }
    let of_turns = ErrorCode::ALL.iter().map(|code| code.as_str());
    let known: Vec<&str> = used.iter().map(|(code, _)| code.as_str()).chain(of_turns).collect();
    for code in documented.keys() {
        assert!(known.contains(&code.as_str()), "docs/chat-api.md lists {code}, which nothing answers with");
    }
}
