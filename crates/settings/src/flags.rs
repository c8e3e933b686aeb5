//! Settings that were given on the command line.

use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use crate::{
    Error,
    renamed::{insert, present_key, warning},
    sources,
};

/// The flags that were given, and no others.
#[derive(Clone, Debug, Default)]
pub struct Flags(Vec<(String, Value)>);

impl Flags {
    /// Parses `--set key=value` pairs.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = &'a String>) -> Result<Self, Error> {
        let split = |pair: &String| {
            let (key, value) = pair.split_once('=').ok_or_else(|| Error::Override(pair.clone()))?;
            Ok((key.trim().to_owned(), parse(value)))
        };
        pairs.into_iter().map(split).collect::<Result<_, _>>().map(Self)
    }

    /// Adds a flag that has a name of its own, if it was given.
    #[must_use]
    pub fn with(mut self, key: &str, value: Option<&str>) -> Self {
        self.0.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        self
    }

    /// Moves former keys to the present ones. Where both are given, the present one counts.
    pub(crate) fn rename(mut self, renamed: &[(&str, &str)], warnings: &mut Vec<String>) -> Self {
        let given: Vec<String> = self.0.iter().map(|(key, _)| key.clone()).collect();
        self.0.retain_mut(|(key, _)| {
            let Some(present) = present_key(renamed, key) else { return true };
            warnings.push(warning(key, present));
            present.clone_into(key);
            !given.contains(key)
        });
        self
    }
}

impl Provider for Flags {
    fn metadata(&self) -> Metadata {
        Metadata::named(sources::FLAG)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = Dict::new();
        for (key, value) in &self.0 {
            insert(&mut dict, key, value.clone());
        }
        Ok(Profile::Default.collect(dict))
    }
}

/// Parses `[a, b]` and `{…}`; everything else stays text, and each setting parses its own text.
pub(crate) fn parse(value: &str) -> Value {
    let trimmed = value.trim_start();
    if trimmed.starts_with('[') || trimmed.starts_with('{') {
        // Infallible: figment reads what is neither as a string.
        let Ok(parsed) = value.parse::<Value>();
        return parsed;
    }
    Value::from(value)
}
