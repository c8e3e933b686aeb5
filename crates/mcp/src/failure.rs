//! What an error of rmcp means for a call, and what became of the call.

use http::StatusCode;
use rmcp::{
    ServiceError,
    model::{ErrorCode, ErrorData},
    service::ClientInitializeError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use crate::{Error, error::told, exchange};

/// What became of a request that got no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server cannot have run it.
    NotRun,
    /// It may be running, or done, or lost on the way.
    Unknown,
    /// The server answered, and what it said is the error.
    Answered,
}

/// Whether the same request may fare better at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    Never,
    OnNewConnection,
    /// The server wants arguments in headers that only the list of tools names.
    AfterListing,
}

#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub fate: Fate,
    pub again: Again,
}

/// The server's own words, as the source of an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Told(pub(crate) String);

impl Failure {
    fn unavailable(source: impl std::error::Error + Send + Sync + 'static, fate: Fate, again: Again) -> Self {
        Self { error: Error::Unavailable(Box::new(source)), fate, again }
    }

    /// What came is not what we can read. What it was about may have been done all the same.
    pub(crate) fn protocol(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { error: Error::Protocol(Box::new(source)), fate: Fate::Unknown, again: Again::Never }
    }

    pub(crate) fn answered(error: &ErrorData) -> Self {
        let message = told(&error.message);
        let (fate, again) = match error.code {
            // The server was replaced by one that speaks another version than we agreed on.
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => (Fate::NotRun, Again::OnNewConnection),
            ErrorCode::HEADER_MISMATCH => (Fate::NotRun, Again::AfterListing),
            _ => (Fate::Answered, Again::Never),
        };
        match error.code {
            ErrorCode::INTERNAL_ERROR => Self::unavailable(Told(message), fate, again),
            ErrorCode::PARSE_ERROR => Self { fate, ..Self::protocol(Told(message)) },
            code => Self { error: Error::Rejected { code: Some(code.0.into()), message }, fate, again },
        }
    }

    fn transport(error: DynamicTransportError) -> Self {
        match error.error.downcast::<StreamableHttpError<exchange::Failure>>() {
            Ok(error) => Self::from(*error),
            Err(other) => Self::lost(&other.to_string()),
        }
    }

    pub(crate) fn lost(words: &str) -> Self {
        Self::unavailable(Told(told(words)), Fate::Unknown, Again::OnNewConnection)
    }
}

impl From<exchange::Failure> for Failure {
    fn from(failure: exchange::Failure) -> Self {
        match failure {
            exchange::Failure::Connect(_) => Self::unavailable(failure, Fate::NotRun, Again::OnNewConnection),
            exchange::Failure::Broken(_) => Self::unavailable(failure, Fate::Unknown, Again::OnNewConnection),
            exchange::Failure::TooLarge(_) | exchange::Failure::NotJsonRpc(_) => Self::protocol(failure),
            exchange::Failure::Token(error) => Self { error, fate: Fate::NotRun, again: Again::Never },
            exchange::Failure::Status { status, ref told } => match status {
                StatusCode::UNAUTHORIZED => {
                    let error = Error::Unauthorized(format!("HTTP {status}: {told}"));
                    Self { error, fate: Fate::Answered, again: Again::Never }
                }
                StatusCode::FORBIDDEN | StatusCode::PAYLOAD_TOO_LARGE => {
                    let message = format!("HTTP {status}: {told}");
                    let code = Some(status.as_u16().into());
                    let error = Error::Rejected { code, message };
                    Self { error, fate: Fate::Answered, again: Again::Never }
                }
                // At once is too early for another try, so the caller decides when.
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                    Self::unavailable(failure, Fate::Answered, Again::Never)
                }
                // It may come from a machine in between that lost patience with the server.
                status if status.is_server_error() => Self::unavailable(failure, Fate::Unknown, Again::Never),
                // Not what MCP answers to a request that it knows: perhaps another server than we shook hands with.
                _ => Self {
                    error: Error::Protocol(Box::new(failure)),
                    fate: Fate::NotRun,
                    again: Again::OnNewConnection,
                },
            },
        }
    }
}

impl From<StreamableHttpError<exchange::Failure>> for Failure {
    fn from(error: StreamableHttpError<exchange::Failure>) -> Self {
        match error {
            StreamableHttpError::Client(failure) => failure.into(),
            StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
                let words = Told("the session has expired".to_owned());
                Self::unavailable(words, Fate::NotRun, Again::OnNewConnection)
            }
            StreamableHttpError::UnexpectedContentType(kind) => {
                let kind = kind.unwrap_or_else(|| "nothing".to_owned());
                Self::protocol(Told(format!("the answer is {kind}, not JSON")))
            }
            StreamableHttpError::Deserialize(error) => Self::protocol(error),
            other => Self::lost(&other.to_string()),
        }
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => Self::answered(&error),
            ServiceError::TransportSend(error) => Self::transport(error),
            ServiceError::UnexpectedResponse | ServiceError::InputRequiredRoundsExceeded { .. } => {
                Self::protocol(Told(told(&error.to_string())))
            }
            other => Self::lost(&other.to_string()),
        }
    }
}

/// No tool can have run before the handshake was done.
impl From<ClientInitializeError> for Failure {
    fn from(error: ClientInitializeError) -> Self {
        let failure = match error {
            ClientInitializeError::TransportError { error, .. } => Self::transport(error),
            ClientInitializeError::JsonRpcError(error) => Self::answered(&error),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::from(*fallback),
            error @ (ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled) => {
                Self::lost(&error.to_string())
            }
            other => Self::protocol(Told(told(&other.to_string()))),
        };
        Self { fate: Fate::NotRun, again: Again::Never, ..failure }
    }
}
