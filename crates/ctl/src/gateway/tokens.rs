use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

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
    }
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
