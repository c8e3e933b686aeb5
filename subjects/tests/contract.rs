//! Compares the generated files (schemas, AsyncAPI, vectors) with the types. `make contract` regenerates
//! them.

mod contract {
    pub(crate) mod examples;
}

use std::{
    fs,
    path::{Path, PathBuf},
};

use contract::examples;
use serde_json::{Value, json};
use subjects::{Answer, Body, Encoding, Handoff, Kind, Role, Subject, decode, schema, signature};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a file with its expected content. If `UPDATE_CONTRACT` is set, writes the file first.
#[track_caller]
fn check_file(path: &str, expected: &[u8]) {
    let path: PathBuf = root().join(path);
    if std::env::var_os("UPDATE_CONTRACT").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, expected).unwrap();
    }
    let found =
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run `make contract`", path.display()));
    assert!(
        found == expected,
        "{} has drifted from the types; run `make contract` and review",
        path.display()
    );
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap();
    text.push(b'\n');
    text
}

#[test]
fn schemas_and_asyncapi_match_the_types() {
    for document in schema::documents() {
        check_file(&format!("schemas/{}", document.file()), &pretty(&document.schema));
    }
    let asyncapi = serde_yaml_ng::to_string(&schema::asyncapi(env!("CARGO_PKG_VERSION"))).unwrap();
    check_file("asyncapi.yaml", asyncapi.as_bytes());
}

#[test]
fn no_schema_or_vector_is_left_over() {
    let mut expected: Vec<String> = schema::documents().iter().map(schema::Document::file).collect();
    expected.sort();
    assert_eq!(files("schemas"), expected);
    let mut expected: Vec<String> = examples::names()
        .iter()
        .flat_map(|name| [format!("{name}.json"), format!("{name}.msgpack")])
        .collect();
    expected.extend(["refused.json".to_owned(), "signature.json".to_owned()]);
    expected.sort();
    assert_eq!(files("vectors"), expected);
}

fn files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn golden_handoffs_encode_to_their_vectors_and_decode_back() {
    for (name, handoff) in examples::handoffs() {
        let json: Value = serde_json::from_slice(&handoff.encode(Encoding::Json).unwrap()).unwrap();
        check_file(&format!("vectors/{name}.json"), &pretty(&json));
        check_file(&format!("vectors/{name}.msgpack"), &handoff.encode(Encoding::MessagePack).unwrap());
        for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
            let bytes = fs::read(root().join(format!("vectors/{name}.{extension}"))).unwrap();
            let decoded = Handoff::decode(handoff.kind(), &Body::inspect(encoding, &bytes));
            assert_eq!(decoded, Ok(handoff.clone()), "{name}.{extension}");
        }
    }
}

#[test]
fn golden_answers_encode_to_their_vectors_and_decode_back() {
    for (name, answer) in examples::answers() {
        let role = match &answer {
            Answer::Completion(_) => Role::ProjectManager,
            Answer::Findings(_) => Role::ProjectAnalyst,
        };
        let json: Value = serde_json::from_slice(&answer.encode(Encoding::Json).unwrap()).unwrap();
        check_file(&format!("vectors/{name}.json"), &pretty(&json));
        check_file(&format!("vectors/{name}.msgpack"), &answer.encode(Encoding::MessagePack).unwrap());
        for (encoding, extension) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
            let bytes = fs::read(root().join(format!("vectors/{name}.{extension}"))).unwrap();
            assert_eq!(Answer::decode(role, encoding, &bytes).unwrap(), answer, "{name}.{extension}");
        }
    }
}

/// P4, P14, W7: handoffs that are invalid or not for the project manager are refused with a specific code.
#[test]
fn refused_vectors_are_refused_with_the_code_they_name() {
    let refused = examples::refused();
    let file: Vec<Value> = refused
        .iter()
        .map(|(name, kind, body, code)| {
            json!({
                "name": name, "subject": Subject::Handoff(*kind).to_string(), "body": body,
                "code": code.as_str(),
            })
        })
        .collect();
    check_file("vectors/refused.json", &pretty(&Value::Array(file)));
    for (name, kind, body, code) in refused {
        let refusal = Handoff::decode(kind, &Body::inspect(Encoding::Json, body.as_bytes())).expect_err(name);
        assert_eq!(refusal.code, code, "{name}: {refusal}");
    }
}

#[test]
fn the_signature_vector_is_verified_by_its_own_key() {
    let (_, handoff) = examples::handoffs().remove(0);
    let body = handoff.encode(Encoding::Json).unwrap();
    let key = examples::signing_key();
    let subject = handoff.subject().to_string();
    let body_of = Body::inspect(Encoding::Json, &body);
    let signed = signature::SignatureBase::new(&subject, body_of.envelope_fields(), &body).unwrap();
    let header = signed.sign(&key).unwrap();
    let vector = json!({
        "seed": key.seed().unwrap(),
        "public_key": key.public_key(),
        "subject": subject,
        "body": String::from_utf8(body.clone()).unwrap(),
        "signed_text": signed.text(),
        "header": { "Cynode-Signature": header },
    });
    check_file("vectors/signature.json", &pretty(&vector));
    let trusted = [signature::TrustedProducer { key: key.public_key(), subjects: None }];
    assert_eq!(signature::verify(&trusted, Some(&header), &signed), Ok(()));
}

#[test]
fn unknown_fields_are_ignored() {
    let (_, handoff) = examples::handoffs().remove(0);
    let mut value: Value = decode(Encoding::Json, &handoff.encode(Encoding::Json).unwrap()).unwrap();
    value["from_the_future"] = json!({ "a": [1, 2, 3] });
    value["scope"]["tenant"] = json!("t1");
    value["payload"]["seed"] = json!(7);
    let bytes = serde_json::to_vec(&value).unwrap();
    assert_eq!(Handoff::decode(Kind::Chat, &Body::inspect(Encoding::Json, &bytes)), Ok(handoff));
}
