//! Settings of the egress: its listener, and the external providers.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use contract::egress::{Limits, MAX_CALL_SECONDS, MAX_PROVIDER_BYTES};
use settings::{Checker, Error};
use url::Url;

use super::raw;

const PROVIDERS: &str = "egress.providers";
const MAX_BODY_BYTES: usize = 64 << 20;
const MAX_PRICE: f64 = 1e6;
const DEFAULT_COMPLETION_TOKENS: u64 = 4_096;
const MAX_COMPLETION_TOKENS: u64 = 10_000_000;
/// The first one is what OpenAI's models take. Some servers know only the other one.
const LIMIT_FIELDS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// The egress. It is served if there are providers.
#[derive(Clone, Debug)]
pub struct Egress {
    pub listen: SocketAddr,
    pub hosts: Vec<String>,
    pub max_body_bytes: usize,
    pub max_calls: usize,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Longest silence of a provider.
    pub silence: Duration,
    pub providers: Vec<Provider>,
}

/// An external provider. Its key is in a file, and nowhere else.
#[derive(Clone, Debug)]
pub struct Provider {
    pub name: String,
    pub url: Url,
    /// `None`: the server wants no key.
    pub key_file: Option<PathBuf>,
    pub auth: Auth,
    /// Models that may be asked for; `*` stands for any text. All if empty.
    pub models: Vec<String>,
    pub prices: Prices,
    /// What one user may use in a day.
    pub limits: Limits,
    /// The most tokens of one reply, if there are limits.
    pub max_completion_tokens: u64,
    /// The member of chat completions that says so to the provider.
    pub limit_field: &'static str,
    /// Whether streams of chat completions are asked for their usage.
    pub include_usage: bool,
}

/// The header that carries the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`
    Bearer,
    /// The key alone, in this header.
    Header(&'static str),
}

/// US dollars for a million tokens. 0 if they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    pub prompt: f64,
    pub completion: f64,
}

const AUTHS: [(&str, Auth); 4] = [
    ("bearer", Auth::Bearer),
    ("x-api-key", Auth::Header("x-api-key")),
    ("api-key", Auth::Header("api-key")),
    ("x-goog-api-key", Auth::Header("x-goog-api-key")),
];

pub(super) fn check(check: &Checker<'_>, raw: &raw::Egress) -> Result<Egress, Error> {
    if raw.hosts.is_empty() || raw.hosts.iter().any(|host| host.trim().is_empty()) {
        return Err(check.refuse("egress.hosts", "name at least one host, as in [\"egress.internal\"]"));
    }
    let second = Duration::from_secs(1);
    let longest = Duration::from_secs(MAX_CALL_SECONDS);
    let mut providers: Vec<Provider> = Vec::new();
    for provider in &raw.providers {
        let checked = self::provider(check, provider)?;
        if providers.iter().any(|known| known.name == checked.name) {
            return Err(check.refuse(PROVIDERS, format!("`{}` is named twice", checked.name)));
        }
        providers.push(checked);
    }
    Ok(Egress {
        listen: check.address("egress.listen", &raw.listen)?,
        hosts: raw.hosts.clone(),
        max_body_bytes: check.number("egress.max_body_bytes", &raw.max_body_bytes, 1024..=MAX_BODY_BYTES)?,
        max_calls: check.number("egress.max_calls", &raw.max_calls, 1..=100_000)?,
        timeout: check.duration("egress.timeout", &raw.timeout, second..=longest)?,
        silence: check.duration("egress.silence", &raw.silence, second..=longest)?,
        providers,
    })
}

fn provider(check: &Checker<'_>, raw: &raw::Provider) -> Result<Provider, Error> {
    let name = &raw.name;
    let refuse = |problem: String| check.refuse(PROVIDERS, format!("{name}: {problem}"));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > MAX_PROVIDER_BYTES || !name.bytes().all(is_name) || name == "local" {
        let right = "the name of a provider: letters, digits, - and _; not `local`";
        return Err(check.wrong(PROVIDERS, name, right));
    }
    let url = Url::parse(raw.url.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
    let url = url.ok_or_else(|| {
        refuse("`url` must be an HTTP address without a password, as in https://api.openai.com/v1".to_owned())
    })?;
    let auth = raw.auth.as_deref().unwrap_or("bearer");
    let auth = AUTHS.into_iter().find(|(word, _)| *word == auth).map(|(_, auth)| auth);
    let auth = auth
        .ok_or_else(|| refuse(format!("`auth` must be one of {}", AUTHS.map(|(word, _)| word).join(", "))))?;
    let key_file = raw.key_file.as_deref().map(str::trim).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = &key_file {
        if secrets::find(&path.display().to_string()).is_some() {
            return Err(refuse("`key_file` is a key itself; it takes the path of a file".to_owned()));
        }
        secrets::file::read_private(path)
            .map_err(|error| refuse(format!("cannot use `key_file` {}: {error}", path.display())))?;
    }
    let prices = raw.price.map(|price| Prices { prompt: price.prompt, completion: price.completion });
    let is_price = |price: f64| (0.0..=MAX_PRICE).contains(&price);
    if prices.is_some_and(|prices| !is_price(prices.prompt) || !is_price(prices.completion)) {
        return Err(refuse("`price` is US dollars for a million tokens, from 0 to 1000000".to_owned()));
    }
    let raw::Budget { tokens_per_day, usd_per_day } = raw.budget;
    if usd_per_day.is_some_and(|usd| !(0.0..=1e9).contains(&usd)) {
        return Err(refuse("`budget.usd_per_day` must be 0 to 1000000000".to_owned()));
    }
    if usd_per_day.is_some() && prices.is_none() {
        return Err(refuse("`budget.usd_per_day` needs `price`, by which cost is counted".to_owned()));
    }
    let max_completion_tokens = raw.max_completion_tokens.unwrap_or(DEFAULT_COMPLETION_TOKENS);
    if !(1..=MAX_COMPLETION_TOKENS).contains(&max_completion_tokens) {
        return Err(refuse(format!("`max_completion_tokens` must be 1 to {MAX_COMPLETION_TOKENS}")));
    }
    let limit_field = raw.limit_field.as_deref().unwrap_or(LIMIT_FIELDS[0]);
    let limit_field = LIMIT_FIELDS.into_iter().find(|known| *known == limit_field);
    let limit_field = limit_field
        .ok_or_else(|| refuse(format!("`limit_field` must be one of {}", LIMIT_FIELDS.join(", "))))?;
    Ok(Provider {
        name: name.clone(),
        url,
        key_file,
        auth,
        models: raw.models.clone().unwrap_or_default(),
        prices: prices.unwrap_or_default(),
        limits: Limits { tokens_per_day, usd_per_day },
        max_completion_tokens,
        limit_field,
        include_usage: raw.include_usage.unwrap_or(true),
    })
}

/// Explains why a setting that would hold a key does not exist.
pub(super) fn explain_setting(field: &str) -> Option<String> {
    let is_secret = ["key", "token", "secret"].iter().any(|end| field.ends_with(end));
    is_secret.then(|| {
        format!(
            "`{field}` is refused: settings hold no secrets. Put it into a file, and name that in `key_file`"
        )
    })
}
