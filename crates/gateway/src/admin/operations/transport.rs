use url::Url;

use crate::{
    admin::{Actor, Error},
    policy::is_public_url,
    upstreams::{Http, Reach, Stdio, Transport},
};

const FIELD: &str = "transport";
const LONGEST: usize = 2048;
const MOST: usize = 64;

impl Transport {
    /// Whether it makes sense, whoever asks for it.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Http(http) => http.check(),
            Self::Stdio(stdio) => stdio.check(),
        }
    }

    /// What of it only an administrator may ask for, if anything.
    pub(super) fn needs_admin(&self) -> Option<&'static str> {
        match self {
            Self::Stdio(_) => Some("only an administrator may have programs started"),
            Self::Http(Http { token_file: Some(_), .. }) => {
                Some("only an administrator may name files of the gateway's machine")
            }
            Self::Http(Http { reach: Some(Reach::Anywhere), .. }) => {
                Some("only an administrator may let a server be inside")
            }
            Self::Http(Http { url, .. }) if !is_public_url(url) => {
                Some("only an administrator may install servers at addresses inside")
            }
            Self::Http(_) => None,
        }
    }

    /// As it is stored: with where the server may be, since that depends on who says so.
    pub(super) fn kept(&self, actor: &Actor) -> String {
        let mut kept = self.clone();
        if let Self::Http(http) = &mut kept {
            let by_default = if actor.is_admin() { Reach::Anywhere } else { Reach::Public };
            http.reach.get_or_insert(by_default);
        }
        // Strings in structs: these always become JSON.
        serde_json::to_string(&kept).unwrap_or_default()
    }

    /// As it is shown: what follows the `?` of an address is often a key.
    pub(super) fn shown(text: &str) -> Option<Self> {
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
    fn check(&self) -> Result<(), Error> {
        let url = Url::parse(self.url.trim()).ok().filter(|url| self.url.len() <= LONGEST && url.has_host());
        let url = url.ok_or_else(|| {
            Error::invalid(FIELD, "the URL is not one; write it as https://tools.example.com/mcp")
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::invalid(FIELD, "the URL must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let right = "the URL must not hold a name or password; put the token into a file and name that";
            return Err(Error::invalid(FIELD, right));
        }
        self.token_file.as_deref().map_or(Ok(()), path)
    }
}

impl Stdio {
    fn check(&self) -> Result<(), Error> {
        if self.argv.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(Error::invalid(FIELD, "argv needs at least the program"));
        }
        let sizes = [self.argv.len(), self.env.len(), self.secret_env.len()];
        let texts = self.argv.iter().chain(self.env.values());
        if sizes.into_iter().any(|size| size > MOST) || texts.clone().any(|text| text.len() > LONGEST) {
            let right = format!("at most {MOST} arguments and variables of {LONGEST} bytes each");
            return Err(Error::invalid(FIELD, right));
        }
        if texts.clone().any(|text| text.contains('\0')) {
            return Err(Error::invalid(FIELD, "no argument or variable may hold a NUL"));
        }
        let is_name = |name: &String| {
            !name.is_empty() && name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        };
        if let Some(name) = self.env.keys().chain(self.secret_env.keys()).find(|name| !is_name(name)) {
            return Err(Error::invalid(FIELD, format!("`{}` is no name of a variable", name.escape_debug())));
        }
        self.secret_env.values().try_for_each(|file| path(file))?;
        self.folder.as_deref().map_or(Ok(()), path)
    }
}

fn path(text: &str) -> Result<(), Error> {
    let is_path = text.starts_with('/') && text.len() <= LONGEST && !text.contains('\0');
    if is_path {
        Ok(())
    } else {
        Err(Error::invalid(FIELD, "files and folders are named from the root, as /etc/…"))
    }
}
