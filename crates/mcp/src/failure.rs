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
pub(crate) enum Fate {
    /// The server did not run it, and a new connection may help.
    NotRun,
    /// The server did not run it, because it wants arguments in headers that only the list of tools names.
    WantsHeaders,
    /// It may be running, or done, or lost on the way.
    Unknown,
    /// The server decided, or nobody else will decide otherwise.
    Settled,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) fate: Fate,
}

/// The server's own words, as the source of an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Told(pub(crate) String);

impl Failure {
    fn unavailable(source: impl std::error::Error + Send + Sync + 'static, fate: Fate) -> Self {
        Self { error: Error::Unavailable(Box::new(source)), fate }
    }

    pub(crate) fn protocol(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { error: Error::Protocol(Box::new(source)), fate: Fate::Settled }
    }

    fn answered(error: &ErrorData) -> Self {
        let message = told(&error.message);
        let fate = match error.code {
            // The server was replaced by one that speaks another version than we agreed on.
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => Fate::NotRun,
            ErrorCode::HEADER_MISMATCH => Fate::WantsHeaders,
            _ => Fate::Settled,
        };
        match error.code {
            ErrorCode::INTERNAL_ERROR => Self::unavailable(Told(message), fate),
            ErrorCode::PARSE_ERROR => Self::protocol(Told(message)),
            code => Self { error: Error::Rejected { code: Some(code.0.into()), message }, fate },
        }
    }

    fn transport(error: DynamicTransportError) -> Self {
        match error.error.downcast::<StreamableHttpError<exchange::Failure>>() {
            Ok(error) => Self::from(*error),
            Err(other) => Self::unavailable(Told(told(&other.to_string())), Fate::Unknown),
        }
    }
}

impl From<exchange::Failure> for Failure {
    fn from(failure: exchange::Failure) -> Self {
        match failure {
            exchange::Failure::Connect(_) => Self::unavailable(failure, Fate::NotRun),
            exchange::Failure::Broken(_) => Self::unavailable(failure, Fate::Unknown),
            exchange::Failure::TooLarge(_) | exchange::Failure::NotJsonRpc(_) => Self::protocol(failure),
            exchange::Failure::Token(error) => Self { error, fate: Fate::Settled },
            exchange::Failure::Status { status, ref told } => match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PAYLOAD_TOO_LARGE => {
                    let message = format!("HTTP {status}: {told}");
                    let code = Some(status.as_u16().into());
                    Self { error: Error::Rejected { code, message }, fate: Fate::Settled }
                }
                // At once is too early for another try, so the caller decides when.
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                    Self::unavailable(failure, Fate::Settled)
                }
                status if status.is_server_error() => Self::unavailable(failure, Fate::Settled),
                // Not what MCP answers to a request that it knows: perhaps another server than we shook hands with.
                _ => Self { error: Error::Protocol(Box::new(failure)), fate: Fate::NotRun },
            },
        }
    }
}

impl From<StreamableHttpError<exchange::Failure>> for Failure {
    fn from(error: StreamableHttpError<exchange::Failure>) -> Self {
        match error {
            StreamableHttpError::Client(failure) => failure.into(),
            StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
                Self::unavailable(Told("the session has expired".to_owned()), Fate::NotRun)
            }
            StreamableHttpError::UnexpectedContentType(kind) => {
                let kind = kind.unwrap_or_else(|| "nothing".to_owned());
                Self::protocol(Told(format!("the answer is {kind}, not JSON")))
            }
            StreamableHttpError::Deserialize(error) => Self::protocol(error),
            other => Self::unavailable(Told(told(&other.to_string())), Fate::Unknown),
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
            other => Self::unavailable(Told(told(&other.to_string())), Fate::Unknown),
        }
    }
}

/// No tool can have run before the handshake was done, so every failure of it is settled.
impl From<ClientInitializeError> for Failure {
    fn from(error: ClientInitializeError) -> Self {
        let failure = match error {
            ClientInitializeError::TransportError { error, .. } => Self::transport(error),
            ClientInitializeError::JsonRpcError(error) => Self::answered(&error),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::from(*fallback),
            error @ (ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled) => {
                Self::unavailable(Told(told(&error.to_string())), Fate::Settled)
            }
            other => Self::protocol(Told(told(&other.to_string()))),
        };
        Self { fate: Fate::Settled, ..failure }
    }
}
