//! Converts errors of rmcp and of the HTTP transport into failures: the error, the fate of the request, and
//! whether to retry.

use http::StatusCode;
use rmcp::{
    ServiceError,
    model::{ErrorCode, ErrorData},
    service::ClientInitializeError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use crate::{Error, error::sanitize, exchange};

/// The fate of a request that returned no result: whether the server may have run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server cannot have run the request.
    NotRun,
    /// The request may be running, completed, or lost on the way.
    Unknown,
    /// The server answered the request with the error.
    Answered,
}

/// Whether an immediate retry of the same request may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    OnNewConnection,
    /// The server expects arguments in headers. Which ones is only known from the list of tools.
    AfterListing,
}

#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub fate: Fate,
    pub retry: Retry,
}

/// An error that consists only of text, used as the source of other errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TextError(pub(crate) String);

/// The connection was lost, as far as rmcp says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct LostError(String);

impl Error {
    /// Returns whether no response arrived, because there is no connection or it was lost.
    pub fn is_unreachable(&self) -> bool {
        let Self::Unavailable(source) = self else { return false };
        let failure = source.downcast_ref::<exchange::Failure>();
        matches!(failure, Some(exchange::Failure::Connect(_) | exchange::Failure::Broken(_)))
            || source.is::<LostError>()
    }

    /// Returns whether the request was certainly not sent: there was no connection, or no token to send.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Token(..) => true,
            Self::Unavailable(source) => {
                matches!(source.downcast_ref::<exchange::Failure>(), Some(exchange::Failure::Connect(_)))
            }
            _ => false,
        }
    }
}

impl Failure {
    fn unavailable(source: impl std::error::Error + Send + Sync + 'static, fate: Fate, retry: Retry) -> Self {
        Self { error: Error::Unavailable(Box::new(source)), fate, retry }
    }

    /// The response could not be understood. The request may have been carried out nevertheless.
    pub(crate) fn protocol(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { error: Error::Protocol(Box::new(source)), fate: Fate::Unknown, retry: Retry::Never }
    }

    /// The server answered with a JSON-RPC error.
    pub(crate) fn answered(error: &ErrorData) -> Self {
        let message = sanitize(&error.message);
        let (fate, retry) = match error.code {
            // The server was replaced by one that does not support the negotiated version.
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => (Fate::NotRun, Retry::OnNewConnection),
            ErrorCode::HEADER_MISMATCH => (Fate::NotRun, Retry::AfterListing),
            _ => (Fate::Answered, Retry::Never),
        };
        match error.code {
            ErrorCode::INTERNAL_ERROR => Self::unavailable(TextError(message), fate, retry),
            ErrorCode::PARSE_ERROR => Self { fate, ..Self::protocol(TextError(message)) },
            code => Self { error: Error::Rejected { code: Some(code.0.into()), message }, fate, retry },
        }
    }

    fn transport(error: DynamicTransportError) -> Self {
        match error.error.downcast::<StreamableHttpError<exchange::Failure>>() {
            Ok(error) => Self::from(*error),
            Err(other) => Self::lost(&other.to_string()),
        }
    }

    /// The connection was lost before the response.
    pub(crate) fn lost(reason: &str) -> Self {
        Self::unavailable(LostError(sanitize(reason)), Fate::Unknown, Retry::OnNewConnection)
    }
}

impl From<exchange::Failure> for Failure {
    fn from(failure: exchange::Failure) -> Self {
        match failure {
            exchange::Failure::Connect(_) => Self::unavailable(failure, Fate::NotRun, Retry::OnNewConnection),
            exchange::Failure::Broken(_) => Self::unavailable(failure, Fate::Unknown, Retry::OnNewConnection),
            exchange::Failure::TooLarge(_) | exchange::Failure::NotJsonRpc(_) => Self::protocol(failure),
            exchange::Failure::Token(error) => Self { error, fate: Fate::NotRun, retry: Retry::Never },
            exchange::Failure::Status { status, ref body } => match status {
                StatusCode::UNAUTHORIZED => {
                    let error = Error::Unauthorized(format!("HTTP {status}: {body}"));
                    Self { error, fate: Fate::Answered, retry: Retry::Never }
                }
                StatusCode::FORBIDDEN | StatusCode::PAYLOAD_TOO_LARGE => {
                    let message = format!("HTTP {status}: {body}");
                    let code = Some(status.as_u16().into());
                    let error = Error::Rejected { code, message };
                    Self { error, fate: Fate::Answered, retry: Retry::Never }
                }
                // An immediate retry is too early; the caller decides when to retry.
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                    Self::unavailable(failure, Fate::Answered, Retry::Never)
                }
                // May come from a proxy whose request to the server timed out.
                status if status.is_server_error() => Self::unavailable(failure, Fate::Unknown, Retry::Never),
                // Not a response that MCP defines; possibly a different server than the one that was
                // connected.
                _ => Self {
                    error: Error::Protocol(Box::new(failure)),
                    fate: Fate::NotRun,
                    retry: Retry::OnNewConnection,
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
                let source = TextError("the session has expired".to_owned());
                Self::unavailable(source, Fate::NotRun, Retry::OnNewConnection)
            }
            StreamableHttpError::UnexpectedContentType(kind) => {
                let kind = kind.unwrap_or_else(|| "nothing".to_owned());
                Self::protocol(TextError(format!("the content type of the response is {kind}, not JSON")))
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
                Self::protocol(TextError(sanitize(&error.to_string())))
            }
            other => Self::lost(&other.to_string()),
        }
    }
}

/// No tool can have run before the handshake completed.
impl From<ClientInitializeError> for Failure {
    fn from(error: ClientInitializeError) -> Self {
        let failure = match error {
            ClientInitializeError::TransportError { error, .. } => Self::transport(error),
            ClientInitializeError::JsonRpcError(error) => Self::answered(&error),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::from(*fallback),
            error @ (ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled) => {
                Self::lost(&error.to_string())
            }
            other => Self::protocol(TextError(sanitize(&other.to_string()))),
        };
        Self { fate: Fate::NotRun, retry: Retry::Never, ..failure }
    }
}
