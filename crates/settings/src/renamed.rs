//! Settings under former keys: accepted, with a warning.

use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

/// The present key of a setting that was given under a former one.
pub(crate) fn present_key<'a>(renamed: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    renamed.iter().find(|(former, _)| *former == key).map(|(_, present)| *present)
}

pub(crate) fn warning(former: &str, present: &str) -> String {
    format!("setting {former} is deprecated: use {present}")
}

/// Puts a value at a dotted key and creates the levels between. A value where a section belongs stays, to be
/// refused.
pub(crate) fn insert(dict: &mut Dict, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            dict.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = dict.entry(first.to_owned()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// A file whose former keys are moved to the present ones. Where both are given, the present one counts.
pub(crate) struct RenamedFile<P> {
    source: P,
    data: Map<Profile, Dict>,
}

impl<P: Provider> RenamedFile<P> {
    pub(crate) fn read(
        source: P,
        renamed: &[(&str, &str)],
        warnings: &mut Vec<String>,
    ) -> Result<Self, Box<figment::Error>> {
        let mut data = source.data().map_err(Box::new)?;
        for dict in data.values_mut() {
            for (former, present) in renamed {
                let Some(value) = take(dict, former) else { continue };
                warnings.push(warning(former, present));
                if !contains(dict, present) {
                    insert(dict, present, value);
                }
            }
        }
        Ok(Self { source, data })
    }
}

impl<P: Provider> Provider for RenamedFile<P> {
    fn metadata(&self) -> Metadata {
        self.source.metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(self.data.clone())
    }
}

/// Removes the value at a dotted key. A section is not a value: `nats.tls` was a setting once and is a
/// section now.
fn take(dict: &mut Dict, key: &str) -> Option<Value> {
    let Some((first, rest)) = key.split_once('.') else {
        return if matches!(dict.get(key), Some(Value::Dict(..))) { None } else { dict.remove(key) };
    };
    let Some(Value::Dict(_, inner)) = dict.get_mut(first) else { return None };
    let taken = take(inner, rest);
    if inner.is_empty() {
        dict.remove(first);
    }
    taken
}

fn contains(dict: &Dict, key: &str) -> bool {
    match key.split_once('.') {
        None => dict.contains_key(key),
        Some((first, rest)) => {
            matches!(dict.get(first), Some(Value::Dict(_, inner)) if contains(inner, rest))
        }
    }
}
