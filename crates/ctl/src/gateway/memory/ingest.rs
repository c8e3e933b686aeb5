//! `cynodectl memory ingest`: makes memories of the files of a folder.
//!
//! What the gateway has decides what is left to do: a file whose digest it has is skipped. So a run that was
//! killed is continued by the next one, and no file is half there, since each request is one transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use api::{MemoryChanges, MemorySource, PutMemory};
use data_encoding::HEXLOWER;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    super::{Gateway, print_json},
    DELETED_AT_ONCE, change,
    files::{Found, Stamp, walk},
    list,
    read::{NoText, read},
};
use crate::{
    cli::Ingest,
    error::{Error, Exit},
    print,
};

/// Texts of one request, and the bytes after which it is sent.
const MAX_BATCH: usize = 200;
const BATCH_BYTES: usize = 1 << 20;
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// What a run did.
#[derive(Debug, Default, Serialize)]
struct Summary {
    changed: usize,
    unchanged: usize,
    removed: usize,
    skipped: Vec<Skipped>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Skipped {
    path: String,
    why: String,
}

/// The folder, and what is known of it.
struct Folder<'g> {
    gateway: &'g Gateway,
    command: Ingest,
    name: String,
    /// Files that were looked at, as they were then.
    seen: BTreeMap<String, Stamp>,
}

pub(super) async fn run(gateway: &Gateway, command: Ingest, json: bool) -> Result<Exit, Error> {
    let root = command.folder.canonicalize().map_err(|error| Error::File(command.folder.clone(), error))?;
    let of_folder = root.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = command.name.clone().or(of_folder).unwrap_or_else(|| "root".to_owned());
    let (is_watching, mut folder) = (command.watch, Folder { gateway, command, name, seen: BTreeMap::new() });
    report(&folder.update(&root).await?, json);
    if !is_watching {
        return Ok(Exit::Done);
    }
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Error::Input)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(Error::Input)?;
    print::note("watching for changes; Ctrl-C ends it");
    loop {
        tokio::select! {
            _ = interrupted.recv() => return Ok(Exit::Done),
            _ = terminated.recv() => return Ok(Exit::Done),
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
        }
        if folder.has_changed(&root) {
            report(&folder.update(&root).await?, json);
        }
    }
}

fn report(summary: &Summary, json: bool) {
    print::progress("");
    if json {
        return print_json(summary);
    }
    for Skipped { path, why } in &summary.skipped {
        print::line(&format!("skipped {}: {}", print::sanitize(path), print::sanitize(why)));
    }
    let Summary { changed, unchanged, removed, skipped } = summary;
    let skipped = skipped.len();
    print::line(&format!(
        "{changed} new or changed, {unchanged} unchanged, {removed} removed, {skipped} skipped"
    ));
}

impl Folder<'_> {
    fn has_changed(&self, root: &Path) -> bool {
        let walk = walk(root);
        let now: BTreeMap<&str, Stamp> = walk.files.iter().map(|found| (&*found.path, found.stamp)).collect();
        !now.into_iter().eq(self.seen.iter().map(|(path, stamp)| (&**path, *stamp)))
    }

    /// Brings the memories of the folder up to date.
    async fn update(&mut self, root: &Path) -> Result<Summary, Error> {
        let (prefix, source) = (format!("{}/", self.name), format!("ingest:{}", self.name));
        let known = list(self.gateway, &self.command.at.profile, Some(prefix.clone())).await?;
        let own = known.into_iter().filter(|it| it.source == source);
        // One with other tags is sent again.
        let digest_of = |it: MemorySource| (it.tags == self.command.tags).then_some(it.digest);
        let mut known: BTreeMap<String, Option<String>> =
            own.map(|it| (it.path.clone(), digest_of(it))).collect();
        let walk = walk(root);
        let mut summary = Summary::default();
        summary.skipped.extend(walk.skipped.into_iter().map(|(path, why)| Skipped { path, why }));
        let (mut batch, mut size, mut is_incomplete) = (Vec::new(), 0, walk.is_incomplete);
        self.seen = walk.files.iter().map(|found| (found.path.clone(), found.stamp)).collect();
        let total = walk.files.len();
        for (number, Found { file, path, stamp }) in walk.files.into_iter().enumerate() {
            print::progress(&bar(number, total));
            let text = match read(&file, stamp.bytes()).await {
                Ok(text) => text,
                Err(NoText::Refused(why)) => {
                    summary.skipped.push(Skipped { path, why });
                    continue;
                }
                Err(NoText::Unreadable(error)) => {
                    is_incomplete = true;
                    summary.skipped.push(Skipped { path, why: error.to_string() });
                    continue;
                }
            };
            let path = format!("{prefix}{path}");
            let digest = HEXLOWER.encode(&Sha256::digest(&text));
            if known.remove(&path).flatten() == Some(digest) {
                summary.unchanged += 1;
                continue;
            }
            size += text.len();
            let (source, tags) = (source.clone(), self.command.tags.clone());
            batch.push(PutMemory { path, text, source, tags, expires_in_seconds: None });
            if batch.len() >= MAX_BATCH || size >= BATCH_BYTES {
                self.send(std::mem::take(&mut batch), &mut summary).await?;
                size = 0;
            }
        }
        self.send(batch, &mut summary).await?;
        if is_incomplete {
            print::note("some files could not be read; nothing is removed before all can");
        } else {
            self.remove(known.into_keys().collect(), &mut summary).await?;
        }
        Ok(summary)
    }

    /// Sends texts. If the gateway refuses one of them, each is sent alone, so that the others are kept.
    async fn send(&self, texts: Vec<PutMemory>, summary: &mut Summary) -> Result<(), Error> {
        if texts.is_empty() {
            return Ok(());
        }
        let changes = MemoryChanges { put: texts, delete: Vec::new() };
        match change(self.gateway, &self.command.at.profile, &changes).await {
            Ok(done) => summary.changed += done.changed + done.unchanged,
            Err(Error::Refused { message, .. }) if changes.put.len() == 1 => {
                let path = changes.put.into_iter().map(|new| new.path).collect();
                summary.skipped.push(Skipped { path, why: message });
            }
            Err(Error::Refused { .. }) => {
                for text in changes.put {
                    Box::pin(self.send(vec![text], summary)).await?;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes memories of files that are gone, or that have no text any more.
    async fn remove(&self, paths: BTreeSet<String>, summary: &mut Summary) -> Result<(), Error> {
        let paths: Vec<String> = paths.into_iter().collect();
        for gone in paths.chunks(DELETED_AT_ONCE) {
            let changes = MemoryChanges { delete: gone.to_vec(), ..MemoryChanges::default() };
            summary.removed += change(self.gateway, &self.command.at.profile, &changes).await?.deleted;
        }
        Ok(())
    }
}

fn bar(done: usize, total: usize) -> String {
    const WIDTH: usize = 30;
    let filled = done * WIDTH / total.max(1);
    format!("[{}{}] {done} of {total} files", "#".repeat(filled), ".".repeat(WIDTH - filled))
}
