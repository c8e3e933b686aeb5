//! HTTP client for the gateway's admin API.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{
    Method, Response, Url, header::AUTHORIZATION, header::CONTENT_TYPE, header::HeaderValue, redirect,
};
use rustls::crypto::{CryptoProvider, ring};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{cli::GatewayLink, error::Error};

/// Written by cynode-gateway with its default data folder, as with `make run`.
const DEFAULT_TOKEN_FILE: &str = ".cynode/gateway/admin.token";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Long, since adding an upstream waits for that upstream.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// Path segments below `/api/v1`, and the query.
pub(crate) struct ApiRequest<'a> {
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Vec<(&'static str, String)>,
}

impl<'a> ApiRequest<'a> {
    pub(crate) fn path(path: &'a [&'a str]) -> Self {
        Self { path, query: Vec::new() }
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

    pub(super) async fn get<T: DeserializeOwned>(&self, request: ApiRequest<'_>) -> Result<T, Error> {
        self.read(self.send(Method::GET, request, None, Some(RESPONSE_TIMEOUT)).await?).await
    }

    pub(crate) async fn list(&self, path: &[&str]) -> Result<Vec<Value>, Error> {
        self.get(ApiRequest::path(path)).await
    }

    /// Sends a request that changes something. Returns `null` for an empty response.
    pub(crate) async fn change(
        &self,
        method: Method,
        request: ApiRequest<'_>,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let response = self.send(method, request, body, Some(RESPONSE_TIMEOUT)).await?;
        if response.status() == reqwest::StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        self.read(response).await
    }

    /// Sends a GET request without a timeout, for a response that is streamed.
    pub(super) async fn stream(&self, request: ApiRequest<'_>) -> Result<Response, Error> {
        self.send(Method::GET, request, None, None).await
    }

    pub(super) fn unreachable(&self, error: reqwest::Error) -> Error {
        Error::GatewayUnreachable(self.base.to_string(), error.without_url())
    }

    async fn send(
        &self,
        method: Method,
        request: ApiRequest<'_>,
        body: Option<&Value>,
        within: Option<Duration>,
    ) -> Result<Response, Error> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        let mut builder = self.http.request(method, url).header(AUTHORIZATION, self.token.clone());
        if let Some(body) = body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        if let Some(within) = within {
            builder = builder.timeout(within);
        }
        let response = builder.send().await.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.rejection(response).await) }
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, Error> {
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body).map_err(|error| Error::GatewayResponse(error.to_string()))
    }

    /// Reads the error of a response that is not a success.
    async fn rejection(&self, response: Response) -> Error {
        let status = response.status();
        let body: Value = match self.read(response).await {
            Ok(body) => body,
            Err(Error::GatewayUnreachable(url, error)) => return Error::GatewayUnreachable(url, error),
            Err(_) => {
                return Error::GatewayResponse(format!(
                    "{status} without an error body; is this the gateway's admin API?"
                ));
            }
        };
        let text = |member: &str| body["error"][member].as_str().map(crate::print::sanitize);
        match (text("code"), text("message")) {
            (Some(code), Some(message)) => Error::Refused { code, message, field: text("field") },
            _ => Error::GatewayResponse(format!(
                "{status} without an error body; is this the gateway's admin API?"
            )),
        }
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
