//! Form and query fields, and protection against forged forms.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Form,
    extract::{FromRequest, FromRequestParts, Query, Request},
};
use http::{
    HeaderMap,
    header::{HOST, HeaderName, ORIGIN},
    request::Parts,
};

use super::{Console, Failure, session::Session};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
pub(super) const CSRF: &str = "csrf";

/// Form or query fields by name. If a name occurs twice, the last value counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Returns the trimmed value; empty if the field is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |text| text.trim())
    }

    /// Returns the trimmed value; `None` if the field is missing or empty.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.given(name).map(str::to_owned)
    }

    /// Returns whether a checkbox is checked.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.given(name).is_some()
    }

    /// Returns the value as it is; empty if the field is missing.
    pub(super) fn exact(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns the non-empty lines of a text area.
    pub(super) fn lines(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).lines().map(str::trim).filter(|line| !line.is_empty())
    }

    /// Sets the initial value of a field.
    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Vec<(String, String)>> for Fields {
    fn from(pairs: Vec<(String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// Reads the query parameters.
impl FromRequestParts<Arc<Console>> for Fields {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Failure> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, console).await;
        // A malformed query counts as empty.
        Ok(query.map_or_else(|_| Self::default(), |Query(pairs)| pairs.into()))
    }
}

/// A form that was sent from a page of the same session: origin, session and CSRF token are verified.
pub(super) struct PostedForm {
    pub(super) session: Session,
    pub(super) fields: Fields,
}

impl FromRequest<Arc<Console>> for PostedForm {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Failure> {
        check_origin(request.headers())?;
        let (mut parts, body) = request.into_parts();
        let session = Session::from_request_parts(&mut parts, console).await?;
        let UnverifiedForm(fields) =
            UnverifiedForm::from_request(Request::from_parts(parts, body), console).await?;
        if session.matches_csrf(fields.text(CSRF)) {
            Ok(Self { session, fields })
        } else {
            Err(Failure::ForgedForm)
        }
    }
}

/// A form without session, as on the login page. Only its origin is verified.
pub(super) struct UnverifiedForm(pub(super) Fields);

impl FromRequest<Arc<Console>> for UnverifiedForm {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Failure> {
        check_origin(request.headers())?;
        let form = Form::<Vec<(String, String)>>::from_request(request, console).await;
        form.map(|Form(pairs)| Self(pairs.into())).map_err(|_| Failure::UnreadableForm)
    }
}

/// Refuses forms from other sites. Browsers send the origin `null`, because the pages set `no-referrer`; then
/// `Sec-Fetch-Site`, which no page can forge, decides.
fn check_origin(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(Failure::ForgedForm);
    }
    match (text(ORIGIN), text(HOST)) {
        (None | Some("null"), _) => Ok(()),
        (Some(origin), Some(host)) => {
            let origin_host = origin.split_once("://").map(|(_, origin_host)| origin_host);
            if origin_host.is_some_and(|origin_host| origin_host.eq_ignore_ascii_case(host)) {
                Ok(())
            } else {
                Err(Failure::ForgedForm)
            }
        }
        (Some(_), None) => Err(Failure::ForgedForm),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn forms_of_other_sites_are_refused() {
        for (origin, site, expected) in [
            ("", "", true),
            ("http://localhost:8791", "", true),
            ("null", "same-origin", true),
            ("null", "cross-site", false),
            ("http://localhost:8791", "same-site", false),
            ("http://localhost:9999", "", false),
            ("https://evil.example", "", false),
            ("localhost:8791", "", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost:8791"));
            for (name, value) in [(ORIGIN, origin), (FETCH_SITE, site)] {
                if !value.is_empty() {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            assert_eq!(check_origin(&headers).is_ok(), expected, "{origin} {site}");
        }
    }
}
