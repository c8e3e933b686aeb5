use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    client::{Ask, Gateway},
    lines, list, word,
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
            let tokens: Vec<Value> = gateway.get(Ask { path: &["tokens"], query }).await?;
            let head = ["ID", "LABEL", "FOR", "USER", "TASK", "STATE", "EXPIRES", "BY"];
            let members = ["id", "label", "agent", "user_id", "task_id", "state", "expires_at", "created_by"];
            Ok(list(&tokens, json, "no tokens", &head, |token| {
                members.map(|member| word(token, member)).into()
            }))
        }
        Tokens::Revoke { id } => {
            let token = gateway.change(Method::DELETE, Ask::path(&["tokens", &id]), None).await?;
            if json {
                print::json(&token);
            } else {
                print::line(&format!("{} ({}) is revoked", word(&token, "id"), word(&token, "label")));
            }
            Ok(Exit::Done)
        }
        Tokens::RotateAdmin => rotate_admin(gateway, json).await,
    }
}

/// The gateway keeps the new token in its own file. Ours gets it too, if the token in it is the one that was replaced.
async fn rotate_admin(gateway: &Gateway, json: bool) -> Result<Exit, Error> {
    let me: Value = gateway.get(Ask::path(&["me"])).await?;
    let named = gateway.token_file();
    // Through a link the file itself is replaced, not the link.
    let file = named.canonicalize().map_err(|error| Error::File(named.to_owned(), error))?;
    let next = next_to(&file);
    // Better found out now than with a secret in hand that nobody can keep.
    drop(std::fs::remove_file(&next));
    create(&next, "")?;
    let rotated = gateway.change(Method::POST, Ask::path(&["tokens", "rotate-admin"]), None).await;
    let mut rotated = match rotated {
        Ok(rotated) => rotated,
        Err(error) => {
            drop(std::fs::remove_file(&next));
            return Err(error);
        }
    };
    let secret = rotated["secret"].as_str().unwrap_or_default().to_owned();
    let revoked = rotated["revoked"].as_array().is_some_and(|ids| ids.contains(&me["token_id"]));
    let has_it = std::fs::read_to_string(&file).is_ok_and(|text| text.trim() == secret);
    if revoked && !has_it {
        write(&next, &format!("{secret}\n"))?;
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
    lines(&rotated, &["id", "label", "expires_at", "file"]);
    if revoked {
        print::note(&format!("the new token is in {}; the old one is refused from now on", named.display()));
    } else {
        print::note(&format!("the token in {} is another one, and stays as it is", named.display()));
    }
    Ok(Exit::Done)
}

fn next_to(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    // Two operators may share the file.
    name.push(format!(".rotated-{}", std::process::id()));
    PathBuf::from(name)
}

async fn issue(gateway: &Gateway, new: &Value, out: Option<&Path>, json: bool) -> Result<Exit, Error> {
    if let Some(path) = out {
        // Better found out now than with a secret in hand that nobody can keep.
        create(path, "")?;
    }
    let issued = gateway.change(Method::POST, Ask::path(&["tokens"]), Some(new)).await;
    let mut token = match (issued, out) {
        (Ok(token), _) => token,
        (Err(error), Some(path)) => {
            // Ours and empty; what cannot be removed says that by being there.
            drop(std::fs::remove_file(path));
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    if let Some(path) = out {
        let secret = token["secret"].as_str().unwrap_or_default().to_owned();
        write(path, &format!("{secret}\n"))?;
        if let Some(token) = token.as_object_mut() {
            token.remove("secret");
        }
    }
    if json {
        print::json(&token);
        return Ok(Exit::Done);
    }
    lines(&token, &["id", "label", "agent", "user_id", "task_id", "expires_at"]);
    match (out, token["secret"].as_str()) {
        (Some(path), _) => print::note(&format!("the secret is in {}", path.display())),
        (None, Some(secret)) => {
            print::line(&format!("{:14}{}", "secret", print::safe(secret)));
            print::note("keep it now: it is not shown again");
        }
        (None, None) => {}
    }
    Ok(Exit::Done)
}

/// Writes a file that was not there before, for its owner alone.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), Error> {
    let wrong = |error| Error::Write(path.to_owned(), error);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(wrong)?;
    file.write_all(text.as_bytes()).map_err(wrong)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let wrong = |error| Error::Write(path.to_owned(), error);
    let mut file = OpenOptions::new().write(true).open(path).map_err(wrong)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(wrong)
}
