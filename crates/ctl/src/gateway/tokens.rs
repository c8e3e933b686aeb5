//! `cynodectl tokens`.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::{ApiRequest, Gateway},
    field, print_fields, print_list,
};
use crate::{
    cli::Tokens,
    error::{Error, Exit},
    print,
};

pub(super) async fn run(gateway: &Gateway, command: Tokens, json: bool) -> Result<Exit, Error> {
    match command {
        Tokens::Issue { agent, label, user, task, lives, out } => {
            let new =
                json!({ "agent": agent, "label": label, "user_id": user, "task_id": task, "lives": lives });
            issue(gateway, &new, out.as_deref(), json).await
        }
        Tokens::List { state } => {
            let query = state.into_iter().map(|state| ("state", state)).collect();
            let tokens: Vec<Value> = gateway.get(ApiRequest { path: &["tokens"], query }).await?;
            let head = ["ID", "LABEL", "FOR", "USER", "TASK", "STATE", "EXPIRES", "BY"];
            let members = ["id", "label", "agent", "user_id", "task_id", "state", "expires_at", "created_by"];
            Ok(print_list(&tokens, json, "no tokens", &head, |token| {
                members.map(|member| field(token, member)).into()
            }))
        }
        Tokens::Revoke { id } => {
            let token = gateway.change(Method::DELETE, ApiRequest::path(&["tokens", &id]), None).await?;
            if json {
                print::json(&token);
            } else {
                print::line(&format!("{} ({}) is revoked", field(&token, "id"), field(&token, "label")));
            }
            Ok(Exit::Done)
        }
        Tokens::RotateAdmin => rotate_admin(gateway, json).await,
    }
}

/// Rotates the admin token. The gateway writes the new token to its own file; it is also written to the file
/// of this client if that file contains a token that was revoked.
async fn rotate_admin(gateway: &Gateway, json: bool) -> Result<Exit, Error> {
    let me: Value = gateway.get(ApiRequest::path(&["me"])).await?;
    let named = gateway.token_file();
    // If the file is a symbolic link, its target is replaced, not the link.
    let file = named.canonicalize().map_err(|error| Error::File(named.to_owned(), error))?;
    let next = temporary_file(&file);
    // Created before the rotation: a file that cannot be written must fail before there is a secret to lose.
    drop(std::fs::remove_file(&next));
    create_private_file(&next, "")?;
    let rotated = gateway.change(Method::POST, ApiRequest::path(&["tokens", "rotate-admin"]), None).await;
    let mut rotated = match rotated {
        Ok(rotated) => rotated,
        Err(error) => {
            drop(std::fs::remove_file(&next));
            return Err(error);
        }
    };
    let secret = rotated["secret"].as_str().unwrap_or_default().to_owned();
    let revoked = rotated["revoked"].as_array().is_some_and(|ids| ids.contains(&me["token_id"]));
    let is_written = std::fs::read_to_string(&file).is_ok_and(|text| text.trim() == secret);
    if revoked && !is_written {
        overwrite(&next, &format!("{secret}\n"))?;
        std::fs::rename(&next, &file).map_err(|error| Error::Write(file.clone(), error))?;
    } else {
        drop(std::fs::remove_file(&next));
    }
    if let Some(rotated) = rotated.as_object_mut() {
        rotated.remove("secret");
    }
    if json {
        print::json(&rotated);
        return Ok(Exit::Done);
    }
    print_fields(&rotated, &["id", "label", "expires_at", "file"]);
    if revoked {
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

async fn issue(gateway: &Gateway, new: &Value, out: Option<&Path>, json: bool) -> Result<Exit, Error> {
    if let Some(path) = out {
        // Created first: a file that cannot be written must fail before there is a secret to lose.
        create_private_file(path, "")?;
    }
    let issued = gateway.change(Method::POST, ApiRequest::path(&["tokens"]), Some(new)).await;
    let mut token = match (issued, out) {
        (Ok(token), _) => token,
        (Err(error), Some(path)) => {
            // Created above and empty; an error is ignored, since the file then shows that it was left
            // behind.
            drop(std::fs::remove_file(path));
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    if let Some(path) = out {
        let secret = token["secret"].as_str().unwrap_or_default().to_owned();
        overwrite(path, &format!("{secret}\n"))?;
        if let Some(token) = token.as_object_mut() {
            token.remove("secret");
        }
    }
    if json {
        print::json(&token);
        return Ok(Exit::Done);
    }
    print_fields(&token, &["id", "label", "agent", "user_id", "task_id", "expires_at"]);
    match (out, token["secret"].as_str()) {
        (Some(path), _) => print::note(&format!("the secret is in {}", path.display())),
        (None, Some(secret)) => {
            print::line(&format!("{:14}{}", "secret", print::sanitize(secret)));
            print::note("store it now: it is not shown again");
        }
        (None, None) => {}
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
fn overwrite(path: &Path, text: &str) -> Result<(), Error> {
    let write_error = |error| Error::Write(path.to_owned(), error);
    let mut file = OpenOptions::new().write(true).open(path).map_err(write_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(write_error)
}
