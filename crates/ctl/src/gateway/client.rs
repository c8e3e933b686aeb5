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

/// Where `make run` and the defaults of cynode-gateway put it.
const DEFAULT_TOKEN: &str = ".cynode/gateway/admin.token";
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Adding a server waits for that server.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// What to ask for: segments of a path below `/api/v1`, and what stands behind the `?`.
pub(crate) struct Ask<'a> {
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Vec<(&'static str, String)>,
}

impl<'a> Ask<'a> {
    pub(crate) fn path(path: &'a [&'a str]) -> Self {
        Self { path, query: Vec::new() }
    }
}

/// The gateway, as one who administers sees it.
pub(crate) struct Gateway {
    http: reqwest::Client,
    base: Url,
    token: HeaderValue,
    token_file: PathBuf,
}

impl Gateway {
    pub(crate) fn open(link: &GatewayLink) -> Result<Self, Error> {
        let wrong = || Error::GatewayAddress(broker::without_secrets(&link.gateway));
        let base = Url::parse(&link.gateway).map_err(|_| wrong())?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(wrong());
        }
        let (token_file, token) = token(link.admin_token_file.as_deref())?;
        if CryptoProvider::get_default().is_none() {
            // Lost against another thread is fine: then there is one.
            drop(ring::default_provider().install_default());
        }
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_WITHIN)
            .build()
            .map_err(|error| Error::GatewayUnreachable(base.to_string(), error))?;
        Ok(Self { http, base, token, token_file })
    }

    /// Where the token is from.
    pub(super) fn token_file(&self) -> &Path {
        &self.token_file
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        self.read(self.send(Method::GET, ask, None, Some(ANSWER_WITHIN)).await?).await
    }

    pub(crate) async fn list(&self, path: &[&str]) -> Result<Vec<Value>, Error> {
        self.get(Ask::path(path)).await
    }

    pub(crate) async fn change(
        &self,
        method: Method,
        ask: Ask<'_>,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let response = self.send(method, ask, body, Some(ANSWER_WITHIN)).await?;
        if response.status() == reqwest::StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        self.read(response).await
    }

    /// An answer that comes piece by piece, for as long as it takes.
    pub(super) async fn stream(&self, ask: Ask<'_>) -> Result<Response, Error> {
        self.send(Method::GET, ask, None, None).await
    }

    pub(super) fn lost(&self, error: reqwest::Error) -> Error {
        Error::GatewayUnreachable(self.base.to_string(), error.without_url())
    }

    async fn send(
        &self,
        method: Method,
        ask: Ask<'_>,
        body: Option<&Value>,
        within: Option<Duration>,
    ) -> Result<Response, Error> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(ask.path);
        }
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
        }
        let mut request = self.http.request(method, url).header(AUTHORIZATION, self.token.clone());
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        if let Some(within) = within {
            request = request.timeout(within);
        }
        let response = request.send().await.map_err(|error| self.lost(error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, Error> {
        let body = response.bytes().await.map_err(|error| self.lost(error))?;
        serde_json::from_slice(&body).map_err(|error| Error::GatewayAnswer(error.to_string()))
    }

    async fn refused(&self, response: Response) -> Error {
        let status = response.status();
        let body: Value = match self.read(response).await {
            Ok(body) => body,
            Err(Error::GatewayUnreachable(url, error)) => return Error::GatewayUnreachable(url, error),
            Err(_) => return Error::GatewayAnswer(format!("{status}, and not in the words of a gateway")),
        };
        let text = |member: &str| body["error"][member].as_str().map(crate::print::safe);
        match (text("code"), text("message")) {
            (Some(code), Some(message)) => Error::Refused { code, message, field: text("field") },
            _ => Error::GatewayAnswer(format!("{status}, and not in the words of a gateway")),
        }
    }
}

fn token(named: Option<&Path>) -> Result<(PathBuf, HeaderValue), Error> {
    let path = match named {
        Some(path) => path.to_owned(),
        None if Path::new(DEFAULT_TOKEN).exists() => PathBuf::from(DEFAULT_TOKEN),
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
