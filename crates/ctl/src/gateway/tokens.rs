//! `cynodectl tokens`.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use api::{IssuedToken, Me, NewToken, RotatedToken, Token, TokenFilter};
use serde_json::json;

use super::{ApiRequest, Gateway, cells, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::Tokens,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Tokens, json: bool) -> Result<Exit, Error> {
    match command {
        Tokens::Issue { agent, label, user, task, node, profile, lives, out } => {
            let (user_id, task_id) = (user, task);
            let new = NewToken { user_id, task_id, node, profile, lives, ..NewToken::new(label, agent) };
            issue(gateway, &new, out.as_deref(), json).await
        }
        Tokens::List { state } => {
            let filter = TokenFilter { state, ..TokenFilter::default() };
            let tokens: Vec<Token> = gateway.ask(ApiRequest::get(&["tokens"]).query(&filter)).await?;
            let head = ["ID", "LABEL", "FOR", "USER", "TASK", "NODE", "PROFILE", "STATE", "EXPIRES", "BY"];
            Ok(print_list(&tokens, json, "no tokens", &head, |token| {
                cells!(
                    token, id, label, agent, user_id, task_id, node, profile, state, expires_at, created_by
                )
            }))
        }
        Tokens::Revoke { id } => {
            let token: Token = gateway.ask(ApiRequest::delete(&["tokens", &id])).await?;
            let text = format!("{} ({}) is revoked", token.id, token.label);
            Ok(print_outcome(json, &token, &text))
        }
        Tokens::RotateAdmin => rotate_admin(gateway, json).await,
    }
}

/// Rotates the admin token. The gateway writes the new token to its own file; it is also written to the file
/// of this client if that file contains a token that was revoked.
async fn rotate_admin(gateway: &Gateway, json: bool) -> Result<Exit, Error> {
    let me: Me = gateway.ask(ApiRequest::get(&["me"])).await?;
    let named = gateway.token_file();
    // If the file is a symbolic link, its target is replaced, not the link.
    let file = named.canonicalize().map_err(|error| Error::File(named.to_owned(), error))?;
    let next = temporary_file(&file);
    // Created before the rotation: a file that cannot be written must fail before there is a secret to lose.
    drop(std::fs::remove_file(&next));
    create_private_file(&next, "")?;
    let rotated = gateway.ask(ApiRequest::post(&["tokens", "rotate-admin"])).await;
    let rotated: RotatedToken = match rotated {
        Ok(rotated) => rotated,
        Err(error) => {
            drop(std::fs::remove_file(&next));
            return Err(error);
        }
    };
    let is_revoked = rotated.revoked.contains(&me.token_id);
    let is_written = std::fs::read_to_string(&file).is_ok_and(|text| text.trim() == rotated.secret);
    if is_revoked && !is_written {
        overwrite(&next, &format!("{}\n", rotated.secret))?;
        std::fs::rename(&next, &file).map_err(|error| Error::Write(file.clone(), error))?;
    } else {
        drop(std::fs::remove_file(&next));
    }
    if json {
        let mut shown = json!(rotated);
        if let Some(shown) = shown.as_object_mut() {
            shown.remove("secret");
        }
        print::json(&shown);
        return Ok(Exit::Done);
    }
    print_fields!(rotated.token, id, label, expires_at);
    print_fields!(rotated, file);
    if is_revoked {
        print::note(&format!("the new token is in {}; the old one is refused", named.display()));
    } else {
        print::note(&format!("the token in {} is a different one and was not changed", named.display()));
    }
    Ok(Exit::Done)
}

/// Returns a path beside the file, unique to this process: two operators may share the file.
fn temporary_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".rotated-{}", std::process::id()));
    PathBuf::from(name)
}

/// Issues a token and prints it, with its secret unless that is written to a file.
pub(super) async fn issue(
    gateway: &Gateway,
    new: &NewToken,
    out: Option<&Path>,
    json: bool,
) -> Result<Exit, Error> {
    if let Some(path) = out {
        // Created first: a file that cannot be written must fail before there is a secret to lose.
        create_private_file(path, "")?;
    }
    let issued = gateway.ask(ApiRequest::post(&["tokens"]).body(new)).await;
    let issued: IssuedToken = match (issued, out) {
        (Ok(issued), _) => issued,
        (Err(error), Some(path)) => {
            // Created above and empty; an error is ignored, since the file then shows that it was left
            // behind.
            drop(std::fs::remove_file(path));
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    if let Some(path) = out {
        overwrite(path, &format!("{}\n", issued.secret))?;
    }
    if json {
        match out {
            Some(_) => print_json(&issued.token),
            None => print_json(&issued),
        }
        return Ok(Exit::Done);
    }
    print_fields!(issued.token, id, label, agent, user_id, task_id, profile);
    print_fields!(issued.token, is_front_end, on_disconnect, expires_at);
    match out {
        Some(path) => print::note(&format!("the secret is in {}", path.display())),
        None => {
            print_fields!(issued, secret);
            print::note("store it now: it is not shown again");
        }
    }
    Ok(Exit::Done)
}

/// Creates a new file that only its owner can read. Fails if it exists.
pub(crate) fn create_private_file(path: &Path, text: &str) -> Result<(), Error> {
    let write_error = |error| Error::Write(path.to_owned(), error);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(write_error)?;
    file.write_all(text.as_bytes()).map_err(write_error)
}

/// Writes to an existing file and syncs it.
pub(super) fn overwrite(path: &Path, text: &str) -> Result<(), Error> {
    let write_error = |error| Error::Write(path.to_owned(), error);
    let mut file = OpenOptions::new().write(true).open(path).map_err(write_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(write_error)
}
