//! P15: refuses provider keys in the environment and in the settings.

use settings::Error;

/// Variables that hold the keys of providers.
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

/// Refuses an environment that contains a provider key.
pub(super) fn refuse_variables(environment: &[(String, String)]) -> Result<(), Error> {
    let is_key =
        |(name, value): &&(String, String)| PROVIDER_KEYS.contains(&name.as_str()) && !value.is_empty();
    match environment.iter().find(is_key) {
        None => Ok(()),
        Some((name, _)) => Err(Error::Refused(format!(
            "{name} is set in the environment: a worker holds no provider's key. Unset it; external models \
             are reached through inference.egress_url, and the key belongs there"
        ))),
    }
}

/// Explains why a setting that would hold a key does not exist.
pub(super) fn explain_setting(field: &str) -> Option<String> {
    let is_secret = field.ends_with("key") || field.ends_with("_token");
    is_secret.then(|| {
        format!(
            "`{field}` is refused: a worker holds no provider's key. External models are reached through \
             inference.egress_url; our own tokens come from files (`*_token_file`, `token_file`)"
        )
    })
}
