//! Checks the model settings.
//!
//! P15: a worker holds no provider key and connects to no provider. External models are reached through the
//! egress.

use std::{path::PathBuf, time::Duration};

use settings::{Error, Text};

use super::{Check, HOUR, SECOND};
use crate::config::{Backend, Egress, Endpoint, Inference, Prices, Profile, Provider, ToolMode, raw};

/// Host name suffixes of providers.
const PROVIDER_HOSTS: [&str; 16] = [
    "openai.com",
    "openai.azure.com",
    "anthropic.com",
    "googleapis.com",
    "mistral.ai",
    "cohere.com",
    "cohere.ai",
    "groq.com",
    "together.xyz",
    "together.ai",
    "openrouter.ai",
    "deepseek.com",
    "x.ai",
    "perplexity.ai",
    "fireworks.ai",
    "amazonaws.com",
];

/// Prefixes of provider keys.
const KEY_PREFIXES: [&str; 9] = ["sk-", "sk_", "AIza", "gsk_", "xai-", "pplx-", "AKIA", "hf_", "fw_"];

impl Check<'_> {
    pub(super) fn inference(&self, raw: &raw::Inference, gateway: &raw::Gateway) -> Result<Inference, Error> {
        let backend = match raw.backend.0.as_str() {
            "auto" if raw.recording.is_some() => self.replay(raw)?,
            "auto" if raw.base_url.is_some() || !raw.providers.is_empty() => self.endpoints(raw, gateway)?,
            "auto" | "offline" => Backend::Offline {
                delay: self.duration("inference.offline_delay", &raw.offline_delay, Duration::ZERO..=HOUR)?,
            },
            "openai" => self.endpoints(raw, gateway)?,
            "replay" => self.replay(raw)?,
            other => {
                let right = "a backend: auto, offline, openai (any OpenAI-compatible server) or replay";
                return Err(self.wrong("inference.backend", other, right));
            }
        };
        Ok(Inference {
            backend,
            timeout: self.duration("inference.timeout", &raw.timeout, SECOND..=HOUR)?,
            tries: self.number("inference.tries", &raw.tries, 1..=20)?,
            patience: self.duration("inference.patience", &raw.patience, Duration::ZERO..=HOUR)?,
            skills: self.boolean("inference.skills", &raw.skills)?,
            tool_mode: self.tool_mode("inference.tool_mode", &raw.tool_mode)?,
            profiles: raw.profiles.iter().map(|it| self.profile(it)).collect::<Result<_, _>>()?,
            prices: self.prices(&raw.price)?,
            record_to: raw.record_to.as_ref().map(|text| PathBuf::from(&text.0)),
        })
    }

    fn tool_mode(&self, key: &str, text: &Text) -> Result<Option<ToolMode>, Error> {
        let modes = [("auto", None), ("native", Some(ToolMode::Native)), ("typed", Some(ToolMode::Typed))];
        self.choice(key, text, &modes)
    }

    fn profile(&self, raw: &raw::ModelProfile) -> Result<Profile, Error> {
        let key = "inference.profiles";
        if raw.model.trim().is_empty() {
            return Err(self.wrong(key, &raw.model, "a model's name in `model`, as in qwen*"));
        }
        let wrong = |name: &str, value: String, right: &str| {
            Err(self.wrong(key, &format!("{name} = {value}"), &format!("{right} for model `{}`", raw.model)))
        };
        match raw {
            raw if raw.temperature.is_some_and(|it| !(0.0..=2.0).contains(&it)) => {
                return wrong(
                    "temperature",
                    raw.temperature.unwrap_or_default().to_string(),
                    "a number from 0 to 2",
                );
            }
            raw if raw.context_tokens.is_some_and(|it| it < 1_024) => {
                return wrong(
                    "context_tokens",
                    raw.context_tokens.unwrap_or_default().to_string(),
                    "at least 1024",
                );
            }
            raw if raw.max_tokens == Some(0) => return wrong("max_tokens", "0".to_owned(), "at least 1"),
            _ => {}
        }
        let tool_mode = match &raw.tool_mode {
            Some(mode) => self.tool_mode(key, &Text(mode.clone()))?,
            None => None,
        };
        Ok(Profile {
            model: raw.model.clone(),
            tool_mode,
            context_tokens: raw.context_tokens,
            temperature: raw.temperature,
            max_tokens: raw.max_tokens,
            parallel_calls: raw.parallel_calls,
            stop: raw.stop.clone(),
        })
    }

    fn replay(&self, raw: &raw::Inference) -> Result<Backend, Error> {
        let Some(recording) = &raw.recording else {
            let problem = "is `replay`, which needs inference.recording: the file to answer from";
            return Err(self.refuse("inference.backend", problem));
        };
        Ok(Backend::Replay { recording: self.file("inference.recording", recording)? })
    }

    fn endpoints(&self, raw: &raw::Inference, gateway: &raw::Gateway) -> Result<Backend, Error> {
        let local = raw.base_url.as_ref().map(|url| self.local(url, raw)).transpose()?;
        let egress = self.egress(raw, gateway)?;
        if local.is_none() && egress.is_none() {
            let problem = "needs inference.base_url, as in http://127.0.0.1:8080/v1, or inference.providers \
                           behind inference.egress_url";
            return Err(self.refuse("inference.backend", problem));
        }
        Ok(Backend::Endpoints { local, egress })
    }

    fn local(&self, url: &Text, raw: &raw::Inference) -> Result<Endpoint, Error> {
        let url = self.url("inference.base_url", url)?;
        if let Some(provider) = provider_of(&url) {
            let problem = format!(
                "`{url}` is {provider}'s own server; external models are reached through the egress alone: \
                 set inference.egress_url and inference.providers"
            );
            return Err(self.refuse("inference.base_url", problem));
        }
        let Some(model) = &raw.model else {
            let problem = "is missing: say which model to ask for at inference.base_url";
            return Err(self.refuse("inference.model", problem));
        };
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.0.clone());
        Ok(Endpoint {
            base_url: url,
            model: model.0.clone(),
            fast_model: text(&raw.fast_model),
            strong_model: text(&raw.strong_model),
            token_file: self.token_file("inference.token_file", raw.token_file.as_ref())?,
        })
    }

    fn egress(&self, raw: &raw::Inference, gateway: &raw::Gateway) -> Result<Option<Egress>, Error> {
        let Some(url) = &raw.egress_url else {
            if raw.providers.is_empty() {
                return Ok(None);
            }
            let problem = "are reached through the egress alone: set inference.egress_url";
            return Err(self.refuse("inference.providers", problem));
        };
        let url = self.url("inference.egress_url", url)?;
        if let Some(provider) = provider_of(&url) {
            let problem = format!("`{url}` is {provider}'s own server, not an egress");
            return Err(self.refuse("inference.egress_url", problem));
        }
        let mut providers = Vec::new();
        for provider in &raw.providers {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if provider.name.is_empty() || !provider.name.chars().all(is_name) || provider.name == "local" {
                let right = "a provider's name: letters, digits, - and _; not `local`";
                return Err(self.wrong("inference.providers", &provider.name, right));
            }
            providers.push(Provider { name: provider.name.clone(), model: provider.model.clone() });
        }
        // The egress takes the token that the gateway issued for this agent.
        let token_file = match &raw.egress_token_file {
            Some(_) => self.token_file("inference.egress_token_file", raw.egress_token_file.as_ref())?,
            None => self.token_file("gateway.token_file", gateway.token_file.as_ref())?,
        };
        Ok(Some(Egress { url, token_file, providers }))
    }

    /// Returns the path of a token file. Refuses a provider key, given directly or in the file; it is
    /// recognised by its prefix.
    fn token_file(&self, key: &str, text: Option<&Text>) -> Result<Option<PathBuf>, Error> {
        let Some(text) = text else { return Ok(None) };
        if looks_like_a_key(&text.0) {
            return Err(self.refuse(key, "is a key itself; it takes the path of a file"));
        }
        let path = self.file(key, text)?;
        let held = std::fs::read_to_string(&path).map_err(|error| Error::File(path.clone(), error))?;
        if looks_like_a_key(held.trim()) {
            let problem = format!(
                "{} holds what looks like a provider's key; a worker holds none, the egress does",
                path.display()
            );
            return Err(self.refuse(key, problem));
        }
        Ok(Some(path))
    }

    pub(super) fn url(&self, key: &str, text: &Text) -> Result<String, Error> {
        let url = text.0.trim().trim_end_matches('/');
        let parsed = reqwest::Url::parse(url).ok();
        let is_http =
            parsed.as_ref().is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_http {
            return Err(self.wrong(key, &text.0, "an http:// or https:// URL"));
        }
        let has_secret = parsed.is_some_and(|url| {
            let has_user = !url.username().is_empty() || url.password().is_some();
            has_user || url.query().is_some() || url.fragment().is_some()
        });
        if has_secret {
            let problem = "carries a user name, a password or a query; secrets come from a token file";
            return Err(self.refuse(key, problem));
        }
        Ok(url.to_owned())
    }

    fn prices(&self, raw: &raw::Price) -> Result<Option<Prices>, Error> {
        let price = |key: &str, text: &Option<Text>| {
            let parsed = text.as_ref().map(|text| {
                let number = text.0.trim().parse::<f64>().ok().filter(|number| (0.0..=1e6).contains(number));
                number.ok_or_else(|| {
                    self.wrong(key, &text.0, "US dollars for a million tokens, from 0 to 1000000")
                })
            });
            parsed.transpose()
        };
        let prompt = price("inference.price.prompt", &raw.prompt)?;
        let completion = price("inference.price.completion", &raw.completion)?;
        Ok(match (prompt, completion) {
            (None, None) => None,
            (prompt, completion) => {
                Some(Prices { prompt: prompt.unwrap_or(0.0), completion: completion.unwrap_or(0.0) })
            }
        })
    }
}

fn provider_of(url: &str) -> Option<&'static str> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?.trim_end_matches('.').to_ascii_lowercase();
    PROVIDER_HOSTS
        .into_iter()
        .find(|known| host.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

pub(super) fn looks_like_a_key(text: &str) -> bool {
    KEY_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) && text.len() >= 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_recognised_by_their_hosts() {
        for theirs in ["https://api.openai.com/v1", "https://API.Anthropic.com", "https://x.ai./v1"] {
            assert!(provider_of(theirs).is_some(), "{theirs}");
        }
        for ours in ["http://127.0.0.1:8080/v1", "http://openai.internal/v1", "http://notopenai.com/v1"] {
            assert_eq!(provider_of(ours), None, "{ours}");
        }
    }
}
