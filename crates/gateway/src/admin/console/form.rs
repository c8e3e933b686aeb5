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

/// What somebody filled in, by the names of the fields. Of two fields of one name the last counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Without the space around it; empty when it was not given.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |text| text.trim())
    }

    /// An empty field is one that was not filled in.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.given(name).map(str::to_owned)
    }

    /// Of a checkbox.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.given(name).is_some()
    }

    /// The lines of a large field that have something in them.
    pub(super) fn lines(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).lines().map(str::trim).filter(|line| !line.is_empty())
    }

    /// Fills in what the form begins with.
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

/// The part of an address after the `?`.
impl FromRequestParts<Arc<Console>> for Fields {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Failure> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, console).await;
        // An address that cannot be read asks for nothing in particular.
        Ok(query.map_or_else(|_| Self::default(), |Query(pairs)| pairs.into()))
    }
}

/// A form that was sent from a page of ours, by whoever is in.
pub(super) struct Posted {
    pub(super) session: Session,
    pub(super) fields: Fields,
}

impl FromRequest<Arc<Console>> for Posted {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Failure> {
        from_here(request.headers())?;
        let (mut parts, body) = request.into_parts();
        let session = Session::from_request_parts(&mut parts, console).await?;
        let Unproven(fields) = Unproven::from_request(Request::from_parts(parts, body), console).await?;
        if session.is_word(fields.text(CSRF)) { Ok(Self { session, fields }) } else { Err(Failure::Forged) }
    }
}

/// A form that may come from anybody.
pub(super) struct Unproven(pub(super) Fields);

impl FromRequest<Arc<Console>> for Unproven {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Failure> {
        from_here(request.headers())?;
        let form = Form::<Vec<(String, String)>>::from_request(request, console).await;
        form.map(|Form(pairs)| Self(pairs.into())).map_err(|_| Failure::Unreadable)
    }
}

/// What browsers say about the page that sends a form. Since our pages ask for no referrer, they send `null` as its origin;
/// then `Sec-Fetch-Site`, which no page can forge, says the same.
fn from_here(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(Failure::Forged);
    }
    match (text(ORIGIN), text(HOST)) {
        (None | Some("null"), _) => Ok(()),
        (Some(origin), Some(host)) => {
            let named = origin.split_once("://").map(|(_, named)| named);
            if named.is_some_and(|named| named.eq_ignore_ascii_case(host)) {
                Ok(())
            } else {
                Err(Failure::Forged)
            }
        }
        (Some(_), None) => Err(Failure::Forged),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn forms_of_other_sites_are_told_from_ours() {
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
            assert_eq!(from_here(&headers).is_ok(), expected, "{origin} {site}");
        }
    }
}
