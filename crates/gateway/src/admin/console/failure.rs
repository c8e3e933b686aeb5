use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{
    HOME, flash, page,
    parts::{address, mark},
    session::Session,
};
use crate::admin::Error;

/// Why there is another page than the one that was asked for.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Leads to the login, and from there to `next`.
    NotIn {
        next: String,
        /// They were in before.
        ended: bool,
    },
    Refused(Error),
    NoPage,
    Method,
    /// The form was not sent from a page of this session.
    Forged,
    Unreadable,
    Host,
    Broken,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl IntoResponse for Failure {
    /// The page itself is made where it is known who is in.
    fn into_response(self) -> Response {
        if let Self::NotIn { next, ended } = &self {
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
        let (status, title, text) = self.told();
        let body = html! {
            p .lead { (text) }
            p { (self.way_on()) }
        };
        let mut response = match session {
            Some(session) => page::page(session, None, title, &body),
            None => page::bare(title, &html! { (mark()) h1 { (title) } (body) }),
        };
        *response.status_mut() = status;
        response
    }

    fn told(&self) -> (StatusCode, &'static str, String) {
        match self {
            Self::Refused(error) => {
                (error.status(), title(error), flash::sentence(&error.to_string()))
            }
            Self::NoPage => {
                (StatusCode::NOT_FOUND, "Page not found", "This address does not exist.".to_owned())
            }
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Method not allowed",
                "Use the buttons and forms of the console to make changes.".to_owned(),
            ),
            Self::Forged => (
                StatusCode::FORBIDDEN,
                "This form cannot be trusted",
                "It was not sent from a page of your present session, so nothing was changed. Open the page again \
                 and repeat what you did."
                    .to_owned(),
            ),
            Self::Unreadable => (
                StatusCode::BAD_REQUEST,
                "This form cannot be read",
                "It is too large or not a form. Nothing was changed.".to_owned(),
            ),
            Self::Host => (
                StatusCode::FORBIDDEN,
                "Not under this name",
                "The console is not served under the name in the address. Names that it answers to are listed in \
                 the setting admin.hosts of the gateway."
                    .to_owned(),
            ),
            Self::Broken | Self::NotIn { .. } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Something went wrong",
                "The gateway could not make this page. Its log says more.".to_owned(),
            ),
        }
    }

    fn way_on(&self) -> Markup {
        match self {
            Self::Host => html! {},
            Self::Refused(Error::Unavailable) => html! {
                "The store does not answer. Calls of agents are denied until it does. Reload the page to try again."
            },
            _ => html! { a .button .quiet href=(HOME) { "To the overview" } },
        }
    }
}

fn title(error: &Error) -> &'static str {
    match error {
        Error::NotFound { .. } => "Not found",
        Error::Invalid { .. } => "This cannot be done so",
        Error::Forbidden(_) => "You may not do this",
        Error::Conflict(_) => "This does not go together",
        Error::Unreachable(_) => "The server does not answer",
        Error::Unavailable => "Not available at the moment",
        Error::Unrecorded => "Not recorded yet",
    }
}
