//! The id in a path.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

use crate::error::ApiError;

/// The one parameter of a path. Refused in OpenAI's shape if it is not text.
#[derive(Clone, Debug)]
pub(crate) struct PathId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let wrong = |_| ApiError::invalid("id", "The id in the path is not UTF-8.");
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Self(id))
    }
}
