//! Environment variables: `PMA_…`, where `__` nests, and the plain names that other tools set.

use std::collections::BTreeMap;

use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use super::Error;

pub(super) const NAME: &str = "environment";
const PREFIX: &str = "PMA_";
/// Names the configuration file; not a setting itself.
const CONFIG_FILE: &str = "PMA_CONFIG";

/// Plain names and the settings they stand for. A `PMA_…` variable for the same setting is more specific and wins.
const PLAIN: [(&str, &str); 2] =
    [("PLANNER_MAX_STEPS", "agent.max_steps"), ("MODEL_TEMPERATURE", "agent.temperature")];

/// Under these names the keys of providers are kept.
const PROVIDER_KEYS: [&str; 18] = [
    "OPENAI_API_KEY",
    "OPENAI_ADMIN_KEY",
    "AZURE_OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "MISTRAL_API_KEY",
    "COHERE_API_KEY",
    "CO_API_KEY",
    "GROQ_API_KEY",
    "TOGETHER_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "XAI_API_KEY",
    "PERPLEXITY_API_KEY",
    "FIREWORKS_API_KEY",
    "HF_TOKEN",
];

#[derive(Debug)]
pub(super) struct Environment {
    settings: BTreeMap<String, (String, String)>,
    pub(super) config_file: Option<String>,
}

impl Environment {
    /// P15: a provider's key has no place here, whoever put it there.
    fn refuse_provider_keys(name: &str, value: &str) -> Result<(), Error> {
        let is_key = PROVIDER_KEYS.contains(&name) && !value.is_empty();
        if is_key { Err(Error::ProviderKey { name: name.to_owned() }) } else { Ok(()) }
    }

    /// Keeps the variables that are ours. One that has our prefix but names no setting is refused: a mistyped
    /// security setting must not pass for a set one.
    pub(super) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, Error> {
        let mut settings = BTreeMap::new();
        let mut plain = BTreeMap::new();
        let mut config_file = None;
        let known = super::raw::keys();
        for (name, value) in variables {
            Self::refuse_provider_keys(&name, &value)?;
            if name == CONFIG_FILE {
                config_file = Some(value).filter(|path| !path.is_empty());
            } else if let Some((_, key)) = PLAIN.iter().find(|(known, _)| *known == name) {
                plain.insert((*key).to_owned(), (name, value));
            } else if let Some(rest) = name.strip_prefix(PREFIX) {
                let key = rest.to_ascii_lowercase().replace("__", ".");
                if !known.contains(&key) {
                    return Err(Error::UnknownVariable { name });
                }
                settings.insert(key, (name, value));
            }
        }
        for (key, entry) in plain {
            settings.entry(key).or_insert(entry);
        }
        Ok(Self { settings, config_file })
    }
}

impl Provider for &Environment {
    fn metadata(&self) -> Metadata {
        let names: BTreeMap<String, String> =
            self.settings.iter().map(|(key, (name, _))| (key.clone(), name.clone())).collect();
        Metadata::named(NAME).interpolater(move |_: &Profile, keys: &[&str]| {
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

/// `[a, b]` and `{…}` are read as such; everything else stays text, and each setting reads its own text.
pub(super) fn parse(value: &str) -> Value {
    let trimmed = value.trim_start();
    if trimmed.starts_with('[') || trimmed.starts_with('{') {
        // Infallible: what is neither becomes a string.
        let Ok(parsed) = value.parse::<Value>();
        return parsed;
    }
    Value::from(value)
}

/// Puts a value at a dotted key, making the levels between.
pub(super) fn insert(dict: &mut Dict, key: &str, value: Value) {
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
