//! What agents may ask of a provider: a few paths of the OpenAI and Anthropic protocols.

use http::{Method, StatusCode};

use crate::error::ApiError;

/// A path that may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    ChatCompletions,
    Responses,
    Messages,
    Embeddings,
    Models,
}

const ENDPOINTS: [(&str, Endpoint); 5] = [
    ("chat/completions", Endpoint::ChatCompletions),
    ("responses", Endpoint::Responses),
    ("messages", Endpoint::Messages),
    ("embeddings", Endpoint::Embeddings),
    ("models", Endpoint::Models),
];

/// The provider and the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'p> {
    pub(super) provider: &'p str,
    pub(super) endpoint: Endpoint,
}

impl<'p> Target<'p> {
    /// Parses `/egress/{provider}/{path}`. The path is compared as it is written, so that nothing encoded or
    /// relative passes.
    pub(super) fn parse(method: &Method, path: &'p str) -> Result<Self, ApiError> {
        let rest = path.strip_prefix("/egress/").and_then(|rest| rest.split_once('/'));
        let found = rest.and_then(|(provider, path)| {
            let endpoint = ENDPOINTS.into_iter().find(|(known, _)| *known == path)?.1;
            Some(Self { provider, endpoint })
        });
        let Some(target) = found else {
            let known = ENDPOINTS.map(|(known, _)| known).join(", ");
            let message = format!("Agents may not ask for this path; they may ask for {known}.");
            return Err(ApiError::new(StatusCode::FORBIDDEN, "path_not_allowed", message));
        };
        if *method != target.endpoint.method() {
            let message = format!("{path} takes {} only.", target.endpoint.method());
            return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message));
        }
        Ok(target)
    }
}

impl Endpoint {
    pub(super) fn method(self) -> Method {
        if self == Self::Models { Method::GET } else { Method::POST }
    }

    pub(super) fn path(self) -> &'static str {
        ENDPOINTS.into_iter().find(|(_, known)| *known == self).map_or("", |(path, _)| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_paths_are_asked_for() {
        let parse = |method: Method, path: &'static str| {
            Target::parse(&method, path).map_err(|error| error.status.as_u16())
        };
        for (path, endpoint) in [
            ("/egress/openai/chat/completions", Endpoint::ChatCompletions),
            ("/egress/openai/responses", Endpoint::Responses),
            ("/egress/openai/messages", Endpoint::Messages),
            ("/egress/openai/embeddings", Endpoint::Embeddings),
        ] {
            assert_eq!(parse(Method::POST, path), Ok(Target { provider: "openai", endpoint }));
            assert_eq!(parse(Method::GET, path), Err(405));
            assert!(path.ends_with(endpoint.path()));
        }
        assert!(parse(Method::GET, "/egress/openai/models").is_ok());
        for path in [
            "/egress/openai/files",
            "/egress/openai/../models",
            "/egress/openai/chat/../models",
            "/egress/openai/models/",
            "/egress/openai/models/x",
            "/egress/openai/%6dodels",
            "/egress/openai//models",
            "/egress/openai",
        ] {
            assert_eq!(parse(Method::GET, path), Err(403), "{path}");
        }
    }
}
