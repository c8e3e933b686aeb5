//! Environment variables: the program's prefix, where `__` nests, and plain names that other tools set.

use std::collections::BTreeMap;

use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map},
};

use crate::{
    Error, Program,
    flags::parse,
    renamed::{insert, present_key, warning},
    sources,
};

/// The variables that are settings of a program.
#[derive(Debug)]
pub(crate) struct Environment {
    /// By dotted key: the variable's name and its value.
    settings: BTreeMap<String, (String, String)>,
    pub(crate) config_file: Option<String>,
}

impl Environment {
    /// Keeps the variables that are settings. One that has the prefix but names no setting is refused: a
    /// mistyped security setting must not pass for a set one.
    pub(crate) fn new(
        program: &Program,
        known: impl Fn(&str) -> bool,
        variables: impl IntoIterator<Item = (String, String)>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let mut settings = BTreeMap::new();
        // Under plain names and former keys: a variable for the present key counts instead.
        let mut fallbacks = BTreeMap::new();
        let mut config_file = None;
        for (name, value) in variables {
            if let Some((_, key)) = program.plain_variables.iter().find(|(known, _)| *known == name) {
                fallbacks.insert((*key).to_owned(), (name, value));
            } else if let Some(rest) = name.strip_prefix(program.prefix) {
                if rest == "CONFIG" {
                    config_file = Some(value).filter(|path| !path.is_empty());
                    continue;
                }
                let key = rest.to_ascii_lowercase().replace("__", ".");
                if let Some(present) = present_key(program.renamed, &key) {
                    warnings.push(warning(&key, present));
                    fallbacks.insert(present.to_owned(), (name, value));
                } else if known(&key) {
                    settings.insert(key, (name, value));
                } else {
                    return Err(Error::UnknownVariable { name, program: program.name });
                }
            }
        }
        for (key, entry) in fallbacks {
            settings.entry(key).or_insert(entry);
        }
        Ok(Self { settings, config_file })
    }
}

impl Provider for &Environment {
    fn metadata(&self) -> Metadata {
        let names: BTreeMap<String, String> =
            self.settings.iter().map(|(key, (name, _))| (key.clone(), name.clone())).collect();
        Metadata::named(sources::ENVIRONMENT).interpolater(move |_: &Profile, keys: &[&str]| {
            let key = keys.join(".");
            names.get(&key).cloned().unwrap_or(key)
        })
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = Dict::new();
        for (key, (_, value)) in &self.settings {
            insert(&mut dict, key, parse(value));
        }
        Ok(Profile::Default.collect(dict))
    }
}
