//! HTTP client for the gateway's admin API.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use api::ErrorBody;
use reqwest::{
    Method, Response, Url, header::AUTHORIZATION, header::CONTENT_TYPE, header::HeaderValue, redirect,
};
use rustls::crypto::{CryptoProvider, ring};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{cli::GatewayLink, error::Error, print::sanitize};

/// Written by cynode-gateway with its default data folder, as with `make run`.
const DEFAULT_TOKEN_FILE: &str = ".cynode/gateway/admin.token";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Long, since adding an upstream waits for that upstream.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// A request to the admin API.
pub(crate) struct ApiRequest<'a> {
    method: Method,
    /// Path segments below `/api/v1`.
    path: &'a [&'a str],
    query: Vec<(String, String)>,
    /// JSON.
    body: Option<String>,
    /// How long the response may take.
    within: Duration,
}

impl<'a> ApiRequest<'a> {
    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: &'a [&'a str]) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn put(path: &'a [&'a str]) -> Self {
        Self::new(Method::PUT, path)
    }

    pub(super) fn patch(path: &'a [&'a str]) -> Self {
        Self::new(Method::PATCH, path)
    }

    pub(super) fn delete(path: &'a [&'a str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    fn new(method: Method, path: &'a [&'a str]) -> Self {
        Self { method, path, query: Vec::new(), body: None, within: RESPONSE_TIMEOUT }
    }

    /// Sets the query parameters: the fields of a struct or map that are not null.
    pub(super) fn query(mut self, parameters: &impl Serialize) -> Self {
        if let Ok(Value::Object(parameters)) = serde_json::to_value(parameters) {
            let given = parameters.into_iter().filter_map(|(name, value)| match value {
                Value::Null => None,
                Value::String(text) => Some((name, text)),
                other => Some((name, other.to_string())),
            });
            self.query = given.collect();
        }
        self
    }

    /// Sets how long sending the request and reading its response may take.
    pub(super) fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Self {
        self.body = Some(subjects::encode_json_text(body));
        self
    }
}

/// Client with an admin or user token.
pub(crate) struct Gateway {
    http: reqwest::Client,
    base: Url,
    token: HeaderValue,
    token_file: PathBuf,
}

impl Gateway {
    pub(crate) fn open(link: &GatewayLink) -> Result<Self, Error> {
        let invalid = || Error::GatewayAddress(broker::redact_url(&link.gateway));
        let base = Url::parse(&link.gateway).map_err(|_| invalid())?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(invalid());
        }
        let (token_file, token) = read_token(link.admin_token_file.as_deref())?;
        if CryptoProvider::get_default().is_none() {
            // Losing the race against another thread is fine: a provider is installed then.
            drop(ring::default_provider().install_default());
        }
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| Error::GatewayUnreachable(base.to_string(), error))?;
        Ok(Self { http, base, token, token_file })
    }

    /// Returns the file that the token was read from.
    pub(super) fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Sends a request and returns the body of the response; `()` if it has none.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, request: ApiRequest<'_>) -> Result<T, Error> {
        let within = request.within;
        self.read(self.send(request, Some(within)).await?).await
    }

    /// Sends a request without a timeout, for a response that is streamed.
    pub(super) async fn stream(&self, request: ApiRequest<'_>) -> Result<Response, Error> {
        self.send(request, None).await
    }

    pub(super) fn unreachable(&self, error: reqwest::Error) -> Error {
        Error::GatewayUnreachable(self.base.to_string(), error.without_url())
    }

    async fn send(&self, request: ApiRequest<'_>, within: Option<Duration>) -> Result<Response, Error> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        let mut builder = self.http.request(request.method, url).header(AUTHORIZATION, self.token.clone());
        if let Some(body) = request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        if let Some(within) = within {
            builder = builder.timeout(within);
        }
        let response = builder.send().await.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.rejection(response).await) }
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, Error> {
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        let body = if body.is_empty() { &b"null"[..] } else { &body[..] };
        serde_json::from_slice(body).map_err(|error| Error::GatewayResponse(error.to_string()))
    }

    /// Reads the error of a response that is not a success.
    async fn rejection(&self, response: Response) -> Error {
        let status = response.status();
        match self.read(response).await {
            Ok(ErrorBody { error }) => Error::Refused {
                code: sanitize(&error.code),
                message: sanitize(&error.message),
                field: error.field.as_deref().map(sanitize),
            },
            Err(error @ Error::GatewayUnreachable(..)) => error,
            Err(_) => Error::GatewayResponse(format!(
                "{status} without an error body; is this the gateway's admin API?"
            )),
        }
    }
}

impl GatewayLink {
    /// Returns whether a token file is named or there is one at the default path.
    pub(crate) fn has_token(&self) -> bool {
        self.admin_token_file.is_some() || Path::new(DEFAULT_TOKEN_FILE).exists()
    }
}

fn read_token(named: Option<&Path>) -> Result<(PathBuf, HeaderValue), Error> {
    let path = match named {
        Some(path) => path.to_owned(),
        None if Path::new(DEFAULT_TOKEN_FILE).exists() => PathBuf::from(DEFAULT_TOKEN_FILE),
        None => return Err(Error::NoAdminToken),
    };
    let text = std::fs::read_to_string(&path).map_err(|error| Error::File(path.clone(), error))?;
    if text.trim().is_empty() {
        return Err(Error::NotAToken(path));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|_| Error::NotAToken(path.clone()))?;
    header.set_sensitive(true);
    Ok((path, header))
}
