//! `cynodectl memory ingest`: makes memories of the files of a folder.
//!
//! What the gateway has decides what is left to do: a file whose digest it has is skipped. So a run that was
//! killed is continued by the next one, and no file is half there, since each request is one transaction.

mod folder;
mod place;
mod summary;

use std::{path::Path, time::Duration};

use broker::Chain;
use contract::memory::{MAX_TAG_BYTES, MAX_TAGS};
use tokio::signal::unix::{SignalKind, signal};

use self::{folder::Folder, summary::Summary};
use super::super::Gateway;
use crate::{
    cli::Ingest,
    error::{Error, Exit},
    print,
};

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(gateway: &Gateway, command: Ingest, json: bool) -> Result<Exit, Error> {
    let read = |error| Error::File(command.folder.clone(), error);
    if !std::fs::metadata(&command.folder).map_err(read)?.is_dir() {
        return Err(Error::Other(format!("{} is not a folder", command.folder.display())));
    }
    let root = command.folder.canonicalize().map_err(read)?;
    let name = name_of(&command, &root)?;
    check_tags(&command.tags)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let is_watching = command.watch;
    let mut folder = Folder::new(gateway, command, name, root);
    let work = Box::pin(async {
        match is_watching {
            true => watch(&mut folder, json).await,
            false => Ok(folder.update().await?.report(json)),
        }
    });
    // Each request is one transaction, so that the work may end anywhere. The reader of a PDF ends with it.
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        done = work => return done,
    }
    print::progress("");
    Ok(if is_watching { Exit::Done } else { Exit::Interrupted })
}

/// Follows changes. A gateway that is away, a folder that is empty for now, and rules of it that cannot be
/// read are waited for. Ends when another folder takes the name.
async fn watch(folder: &mut Folder<'_>, json: bool) -> Result<Exit, Error> {
    let (mut trouble, mut last): (Option<String>, Option<Summary>) = (None, None);
    loop {
        let done = if folder.has_changed() {
            folder.update().await.map(Some)
        } else if folder.is_unconfirmed() {
            folder.confirm_name().await.map(|()| None)
        } else {
            tokio::time::sleep(WATCH_INTERVAL).await;
            continue;
        };
        match done {
            Ok(None) => trouble = None,
            Ok(Some(summary)) => {
                trouble = None;
                if last.as_ref().is_none_or(|last| summary.has_news(last)) {
                    summary.report(json);
                }
                if last.is_none() {
                    print::note("watching for changes; Ctrl-C ends it");
                }
                last = Some(summary);
            }
            Err(error) if may_pass(&error) => {
                let message = Chain(&error).to_string();
                if trouble.as_ref() != Some(&message) {
                    print::note(&format!("cynodectl: {message}; trying again"));
                    trouble = Some(message);
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Returns whether a watcher waits for the cause of an error to pass.
fn may_pass(error: &Error) -> bool {
    error.is_unavailable() || matches!(error, Error::EmptyFolder(_) | Error::IgnoreRules(_))
}

/// Returns the first part of the paths: as the folder is called, also if that is a link to another.
fn name_of(command: &Ingest, root: &Path) -> Result<String, Error> {
    let of_folder = command.folder.file_name().or_else(|| root.file_name());
    let of_folder = of_folder.map(|name| name.to_string_lossy().into_owned());
    let name = command.name.clone().or(of_folder).unwrap_or_else(|| "root".to_owned());
    let is_plain = !name.trim().is_empty() && !matches!(&*name, "." | "..") && !name.contains(['/', '\\']);
    if is_plain && !name.contains(char::is_control) {
        return Ok(name);
    }
    let shown = print::one_line(&name);
    Err(Error::Other(format!("`{shown}` is not the name of a folder; choose another one with --name")))
}

fn check_tags(tags: &[String]) -> Result<(), Error> {
    let is_wrong = |tag: &String| tag.trim().is_empty() || tag.len() > MAX_TAG_BYTES;
    if tags.len() > MAX_TAGS || tags.iter().any(is_wrong) {
        let why = format!("at most {MAX_TAGS} tags of 1 to {MAX_TAG_BYTES} bytes are taken");
        return Err(Error::Other(why));
    }
    Ok(())
}
