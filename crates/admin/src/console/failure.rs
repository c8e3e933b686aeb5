//! Error pages.

use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{
    HOME,
    components::{address, logo},
    flash, page,
    session::Session,
};
use crate::Error;

/// Why the requested page cannot be shown.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Redirects to the login page, and from there to `next`.
    SignedOut {
        next: String,
        /// Whether there was a session, which has ended.
        ended: bool,
    },
    Refused(Error),
    PageNotFound,
    MethodNotAllowed,
    /// The form was not sent from a page of this session.
    ForgedForm,
    UnreadableForm,
    Internal,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl IntoResponse for Failure {
    /// Stores the failure in the response; the guard renders the page, since it knows the session.
    fn into_response(self) -> Response {
        if let Self::SignedOut { next, ended } = &self {
            let ended = if *ended { "1" } else { "" };
            return Redirect::to(&address("/console/login", &[("next", next), ("ended", ended)]))
                .into_response();
        }
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl Failure {
    pub(super) fn page(&self, session: Option<&Session>) -> Response {
        let (status, title, text) = self.describe();
        let body = html! {
            p .lead { (text) }
            p { (self.next_step()) }
        };
        let mut response = match session {
            Some(session) => page::page(session, None, title, &body),
            None => page::public_page(title, &html! { (logo()) h1 { (title) } (body) }),
        };
        *response.status_mut() = status;
        response
    }

    /// Returns status, title and text of the page.
    fn describe(&self) -> (StatusCode, &'static str, String) {
        match self {
            Self::Refused(error) => (error.status(), title(error), flash::sentence(&error.to_string())),
            Self::PageNotFound => {
                (StatusCode::NOT_FOUND, "Page not found", "This address does not exist.".to_owned())
            }
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Method not allowed",
                "Use the buttons and forms of the console to make changes.".to_owned(),
            ),
            Self::ForgedForm => (
                StatusCode::FORBIDDEN,
                "This form cannot be trusted",
                "It was not sent from a page of your current session, so nothing was changed. Reload the \
                 page and try again."
                    .to_owned(),
            ),
            Self::UnreadableForm => (
                StatusCode::BAD_REQUEST,
                "This form cannot be read",
                "It is too large or not a form. Nothing was changed.".to_owned(),
            ),
            Self::Internal | Self::SignedOut { .. } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Something went wrong",
                "The gateway could not render this page. See its log for details.".to_owned(),
            ),
        }
    }

    fn next_step(&self) -> Markup {
        match self {
            Self::Refused(Error::Unavailable) => html! {
                "The store does not respond. Agent calls are denied until it does. Reload the page to try \
                 again."
            },
            _ => html! { a .button .quiet href=(HOME) { "Back to the overview" } },
        }
    }
}

fn title(error: &Error) -> &'static str {
    match error {
        Error::NotFound { .. } => "Not found",
        Error::Invalid { .. } => "Invalid input",
        Error::Forbidden(_) => "Not allowed",
        Error::Conflict(_) => "Conflict",
        Error::Unreachable(_) => "Server not reachable",
        Error::Unavailable => "Not available at the moment",
        Error::Unrecorded => "Not recorded yet",
    }
}
