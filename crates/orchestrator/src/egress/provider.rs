//! One external provider: its address, its key, its models and prices.

use std::{io, path::Path, time::Duration};

use bytes::Bytes;
use contract::egress::{Consumption, Limits};
use http::{HeaderMap, HeaderName, header};
use reqwest::{Client, RequestBuilder, Response, redirect};
use rustls::crypto::{CryptoProvider, ring};

use super::{
    credential::{Credential, KeyFile},
    mask::Mask,
    paths::Target,
    usage::Tokens,
};
use crate::config;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const USER_AGENT: &str = concat!("cynode/", env!("CARGO_PKG_VERSION"));

/// Headers of an agent's request that are passed on. All others stay here: its token, its lease, cookies,
/// headers of the connection, and traces.
const PASSED_ON: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("openai-beta"),
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("anthropic-beta"),
];

#[derive(Debug)]
pub(super) struct Provider {
    settings: config::Provider,
    key: Option<KeyFile>,
    http: Client,
}

/// A reply of a provider that has begun, and what takes the provider's key out of it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) response: Response,
    pub(super) mask: Mask,
}

/// Why a provider could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("the file with its key cannot be read")]
    Key(#[source] io::Error),
    #[error("its server does not answer")]
    Send(#[source] reqwest::Error),
}

impl Provider {
    pub(super) fn new(settings: &config::Provider) -> Result<Self, reqwest::Error> {
        if CryptoProvider::get_default().is_none() {
            // Fails if another thread installed a provider first, which is fine.
            drop(ring::default_provider().install_default());
        }
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect or a proxy could send the key to another server.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .user_agent(USER_AGENT)
            .build()?;
        let key = settings.key_file.clone().map(|path| KeyFile::new(path, settings.auth));
        Ok(Self { settings: settings.clone(), key, http })
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the file that holds its key.
    pub(super) fn key_file(&self) -> Option<&Path> {
        self.settings.key_file.as_deref()
    }

    pub(super) fn limits(&self) -> Limits {
        self.settings.limits
    }

    /// Returns whether users may use only so much of the provider.
    pub(super) fn has_budget(&self) -> bool {
        self.settings.limits != Limits::default()
    }

    /// Returns the most tokens of a reply under a budget.
    pub(super) fn max_completion_tokens(&self) -> u64 {
        self.settings.max_completion_tokens
    }

    /// Returns the member of chat completions that limits a reply.
    pub(super) fn limit_field(&self) -> &'static str {
        self.settings.limit_field
    }

    pub(super) fn includes_usage(&self) -> bool {
        self.settings.include_usage
    }

    pub(super) fn allows_model(&self, model: &str) -> bool {
        let models = &self.settings.models;
        models.is_empty() || models.iter().any(|pattern| matches(pattern, model))
    }

    /// Returns what tokens cost.
    pub(super) fn cost(&self, tokens: Tokens) -> Consumption {
        let prices = self.settings.prices;
        let usd = tokens.prompt as f64 * prices.prompt + tokens.completion as f64 * prices.completion;
        Consumption { prompt_tokens: tokens.prompt, completion_tokens: tokens.completion, usd: usd / 1e6 }
    }

    /// Sends a request with the provider's key. Returns when the reply begins.
    pub(super) async fn ask(
        &self,
        target: &Target<'_>,
        headers: &HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Asked, AskError> {
        let credential = self.key.as_ref().map(KeyFile::credential).transpose().map_err(AskError::Key)?;
        let mask = Mask::new(credential.as_ref().map(|credential| credential.secret.as_str()));
        let mut url = self.settings.url.clone();
        url.set_path(&format!("{}/{}", url.path().trim_end_matches('/'), target.endpoint.path()));
        let mut request = self.http.request(target.endpoint.method(), url);
        // In an encoded reply neither the key nor the usage could be found.
        request = request.header(header::ACCEPT_ENCODING, "identity");
        for name in PASSED_ON {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let request = with_credential(request, credential);
        // The address is left out: agents and users must not see it.
        let response = request.send().await.map_err(|error| AskError::Send(error.without_url()))?;
        Ok(Asked { response, mask })
    }
}

fn with_credential(request: RequestBuilder, credential: Option<Credential>) -> RequestBuilder {
    match credential {
        Some(Credential { name, value, .. }) => request.header(name, value),
        None => request,
    }
}

/// Returns whether a name matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_matched_by_patterns() {
        for (pattern, name, expected) in [
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-50", false),
            ("gpt-*", "gpt-5", true),
            ("gpt-*", "agpt-5", false),
            ("*", "", true),
            ("*-mini", "gpt-5-mini", true),
            ("*-mini", "gpt-5-mini-x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
