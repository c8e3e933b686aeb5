//! The browser's console messages.

use fantoccini::{Client, wd::WebDriverCompatibleCommand};
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// A console message of a page, or of the browser about a page.
#[derive(Clone, Debug)]
pub struct Message {
    /// `SEVERE`, `WARNING`, `INFO` or `DEBUG`.
    pub level: String,
    /// Such as `security`, `network`, `javascript` or `console-api`.
    pub source: String,
    pub text: String,
}

impl Message {
    /// Returns whether the message reports a violation of the Content-Security-Policy.
    pub fn is_violation(&self) -> bool {
        self.text.contains("Content Security Policy")
    }

    pub fn is_error(&self) -> bool {
        self.level == "SEVERE" || self.is_violation()
    }
}

/// Returns the messages since the last call.
pub(super) async fn read(client: &Client) -> Vec<Message> {
    let log = client.issue_cmd(Extension("se/log", json!({"type": "browser"}))).await;
    let log = log.expect("chromedriver keeps the console");
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let message = |entry: &Value| Message {
        level: text(entry, "level"),
        source: text(entry, "source"),
        text: text(entry, "message"),
    };
    log.as_array().expect("a list").iter().map(message).collect()
}

/// A command that chromedriver adds to the WebDriver standard: its path and its parameters.
#[derive(Debug)]
pub(super) struct Extension(pub(super) &'static str, pub(super) Value);

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _url: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.1.to_string()))
    }
}
