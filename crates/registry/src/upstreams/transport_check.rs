//! Validation of transports, and their stored and displayed form.

use policy::is_public_url;
use url::Url;

use super::transport::{Http, Reach, Stdio, Transport};

const MAX_TEXT_BYTES: usize = 2048;
const MAX_ENTRIES: usize = 64;

impl Transport {
    /// Checks that the transport is valid, regardless of the actor.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Http(http) => http.check(),
            Self::Stdio(stdio) => stdio.check(),
        }
    }

    /// Returns why only an administrator may use this transport; `None` if users may, too.
    pub fn admin_only_reason(&self) -> Option<&'static str> {
        match self {
            Self::Stdio(_) => Some("only an administrator may register servers that are started as programs"),
            Self::Http(Http { token_file: Some(_), .. }) => {
                Some("only an administrator may refer to files on the gateway's machine")
            }
            Self::Http(Http { reach: Some(Reach::Anywhere), .. }) => {
                Some("only an administrator may allow internal addresses")
            }
            Self::Http(Http { url, .. }) if !is_public_url(url) => {
                Some("only an administrator may register servers at internal addresses")
            }
            Self::Http(_) => None,
        }
    }

    /// Returns the stored form. The reach is filled in now, since its default depends on who
    /// stores it.
    pub fn to_stored(&self, by_admin: bool) -> String {
        let mut stored = self.clone();
        if let Self::Http(http) = &mut stored {
            let default = if by_admin { Reach::Anywhere } else { Reach::Public };
            http.reach.get_or_insert(default);
        }
        subjects::encode_json_text(&stored)
    }

    /// Parses the stored form for display. The query of a URL is hidden, since it is often a key.
    pub fn for_display(text: &str) -> Option<Self> {
        let mut transport = serde_json::from_str(text).ok()?;
        if let Self::Http(Http { url, .. }) = &mut transport
            && let Some(at) = url.find('?')
        {
            url.replace_range(at.., "?…");
        }
        Some(transport)
    }
}

impl Http {
    fn check(&self) -> Result<(), String> {
        let url =
            Url::parse(self.url.trim()).ok().filter(|url| self.url.len() <= MAX_TEXT_BYTES && url.has_host());
        let url =
            url.ok_or_else(|| String::from("invalid URL; for example https://tools.example.com/mcp"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(String::from("the URL must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let message =
                "the URL must not contain a name or password; put the token into a file and set token_file";
            return Err(String::from(message));
        }
        self.token_file.as_deref().map_or(Ok(()), check_path)
    }
}

impl Stdio {
    fn check(&self) -> Result<(), String> {
        if self.argv.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(String::from("argv needs at least the program"));
        }
        let sizes = [self.argv.len(), self.env.len(), self.secret_env.len()];
        let texts = self.argv.iter().chain(self.env.values());
        if sizes.into_iter().any(|size| size > MAX_ENTRIES)
            || texts.clone().any(|text| text.len() > MAX_TEXT_BYTES)
        {
            let message =
                format!("at most {MAX_ENTRIES} arguments and variables of {MAX_TEXT_BYTES} bytes each");
            return Err(message);
        }
        if texts.clone().any(|text| text.contains('\0')) {
            return Err(String::from("no argument or variable may contain a NUL"));
        }
        let is_name = |name: &String| {
            !name.is_empty() && name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        };
        if let Some(name) = self.env.keys().chain(self.secret_env.keys()).find(|name| !is_name(name)) {
            return Err(format!("`{}` is not a valid variable name", name.escape_debug()));
        }
        self.secret_env.values().try_for_each(|file| check_path(file))?;
        self.folder.as_deref().map_or(Ok(()), check_path)
    }
}

fn check_path(text: &str) -> Result<(), String> {
    let is_path = text.starts_with('/') && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
    if is_path {
        Ok(())
    } else {
        Err(String::from("files and folders must be absolute paths, such as /etc/…"))
    }
}
