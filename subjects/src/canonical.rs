//! Canonical JSON: equal values have the same text, whatever the order of their members.

use data_encoding::HEXLOWER;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// Returns the SHA-256 of the canonical text in hex.
pub fn digest(object: &Map<String, Value>) -> String {
    let mut out = String::new();
    write_object(object, &mut out);
    HEXLOWER.encode(&Sha256::digest(out))
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(object) => write_object(object, out),
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(value, out);
            }
            out.push(']');
        }
        simple => out.push_str(&simple.to_string()),
    }
}

fn write_object(object: &Map<String, Value>, out: &mut String) {
    let mut members: Vec<_> = object.iter().collect();
    members.sort_by(|a, b| a.0.cmp(b.0));
    out.push('{');
    for (at, (name, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&Value::from(name.as_str()).to_string());
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_depend_on_the_order_of_members() {
        let read = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
        let one = text(&read(r#"{"b":[1,{"d":null,"c":"\n"}],"a":1.5}"#));
        assert_eq!(one, r#"{"a":1.5,"b":[1,{"c":"\n","d":null}]}"#);
        assert_eq!(one, text(&read(r#"{"a":1.5,"b":[1,{"c":"\n","d":null}]}"#)));
        assert_ne!(one, text(&read(r#"{"a":1.5,"b":[{"c":"\n","d":null},1]}"#)));
    }
}
