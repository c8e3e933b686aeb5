//! How an upstream is reached: validation, stored and displayed form, and the options of its connection.

use api::{Http, Reach, Stdio, Transport};
use policy::{is_public_address, is_public_url};
use url::Url;

const MAX_TEXT_BYTES: usize = 2048;
const MAX_ENTRIES: usize = 64;

/// Checks that the transport is valid, regardless of the actor.
pub fn check(transport: &Transport) -> Result<(), String> {
    match transport {
        Transport::Http(http) => check_http(http),
        Transport::Stdio(stdio) => check_stdio(stdio),
    }
}

/// Returns why only an administrator may use this transport; `None` if users may, too.
pub fn admin_only_reason(transport: &Transport) -> Option<&'static str> {
    match transport {
        Transport::Stdio(_) => {
            Some("only an administrator may register servers that are started as programs")
        }
        Transport::Http(Http { token_file: Some(_), .. }) => {
            Some("only an administrator may refer to files on the gateway's machine")
        }
        Transport::Http(Http { reach: Some(Reach::Anywhere), .. }) => {
            Some("only an administrator may allow internal addresses")
        }
        Transport::Http(Http { url, .. }) if !is_public_url(url) => {
            Some("only an administrator may register servers at internal addresses")
        }
        Transport::Http(_) => None,
    }
}

/// Returns the stored form. The reach is filled in now, since its default depends on who stores it.
pub fn to_stored(transport: &Transport, by_admin: bool) -> String {
    let mut stored = transport.clone();
    if let Transport::Http(http) = &mut stored {
        let default = if by_admin { Reach::Anywhere } else { Reach::Public };
        http.reach.get_or_insert(default);
    }
    subjects::encode_json_text(&stored)
}

/// Parses the stored form for display. The query of a URL is hidden, since it is often a key.
pub fn for_display(text: &str) -> Option<Transport> {
    let mut transport = serde_json::from_str(text).ok()?;
    if let Transport::Http(Http { url, .. }) = &mut transport
        && let Some(at) = url.find('?')
    {
        url.replace_range(at.., "?…");
    }
    Some(transport)
}

/// Converts into the options of a connection. `has_owner`: an upstream of a user without a configured reach
/// is restricted to public addresses. Fails for a program if `stdio` is off.
pub(super) fn into_upstream(
    transport: Transport,
    stdio: bool,
    has_owner: bool,
) -> Result<upstream::Transport, upstream::Error> {
    match transport {
        Transport::Http(Http { url, token_file, reach }) => {
            let addresses: Option<mcp::AddressFilter> = match reach {
                Some(Reach::Anywhere) => None,
                None if !has_owner => None,
                Some(Reach::Public) | None => Some(is_public_address),
            };
            Ok(upstream::Transport::Http { url, token_file: token_file.map(Into::into), addresses })
        }
        Transport::Stdio(_) if !stdio => {
            Err(upstream::Error::Options("this gateway starts no processes (upstreams.stdio)".to_owned()))
        }
        Transport::Stdio(Stdio { argv, env, secret_env, folder }) => {
            let secret_env = secret_env.into_iter().map(|(name, file)| (name, file.into())).collect();
            Ok(upstream::Transport::Stdio { argv, env, secret_env, folder: folder.map(Into::into) })
        }
    }
}

fn check_http(http: &Http) -> Result<(), String> {
    let url =
        Url::parse(http.url.trim()).ok().filter(|url| http.url.len() <= MAX_TEXT_BYTES && url.has_host());
    let url = url.ok_or_else(|| String::from("invalid URL; for example https://tools.example.com/mcp"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(String::from("the URL must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let message =
            "the URL must not contain a name or password; put the token into a file and set token_file";
        return Err(String::from(message));
    }
    http.token_file.as_deref().map_or(Ok(()), check_path)
}

fn check_stdio(stdio: &Stdio) -> Result<(), String> {
    if stdio.argv.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(String::from("argv needs at least the program"));
    }
    let sizes = [stdio.argv.len(), stdio.env.len(), stdio.secret_env.len()];
    let texts = stdio.argv.iter().chain(stdio.env.values());
    if sizes.into_iter().any(|size| size > MAX_ENTRIES)
        || texts.clone().any(|text| text.len() > MAX_TEXT_BYTES)
    {
        let message = format!("at most {MAX_ENTRIES} arguments and variables of {MAX_TEXT_BYTES} bytes each");
        return Err(message);
    }
    if texts.clone().any(|text| text.contains('\0')) {
        return Err(String::from("no argument or variable may contain a NUL"));
    }
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
    };
    if let Some(name) = stdio.env.keys().chain(stdio.secret_env.keys()).find(|name| !is_name(name)) {
        return Err(format!("`{}` is not a valid variable name", name.escape_debug()));
    }
    stdio.secret_env.values().try_for_each(|file| check_path(file))?;
    stdio.folder.as_deref().map_or(Ok(()), check_path)
}

fn check_path(text: &str) -> Result<(), String> {
    let is_path = text.starts_with('/') && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
    if is_path {
        Ok(())
    } else {
        Err(String::from("files and folders must be absolute paths, such as /etc/…"))
    }
}
