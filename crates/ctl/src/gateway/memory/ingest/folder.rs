//! The memories of a folder, brought up to date with its files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use api::{MemoryChanges, MemorySource, PutMemory};
use contract::memory::INGESTED;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::{
    super::{
        super::Gateway,
        DELETED_AT_ONCE, change,
        files::{Found, Stamp, Walk, walk},
        list,
        read::{NoText, read},
    },
    summary::Summary,
};
use crate::{cli::Ingest, error::Error, print};

/// Texts of one request, and the bytes after which it is sent.
const MAX_BATCH: usize = 200;
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of a digest that tell folders of the same name apart.
const FOLDER_BYTES: usize = 4;

/// The folder, and what is known of it.
pub(super) struct Folder<'g> {
    gateway: &'g Gateway,
    command: Ingest,
    root: PathBuf,
    /// First part of the paths of its memories, with a slash.
    prefix: String,
    /// What its memories have as source. It tells the folder from others of its name, and not where it is.
    source: String,
    /// Files as they were when the memories were last brought up to date.
    seen: Option<BTreeMap<String, Stamp>>,
}

/// Digests by path of what the gateway has; none where the text has to be sent again.
type Known = BTreeMap<String, Option<String>>;

impl<'g> Folder<'g> {
    pub(super) async fn new(
        gateway: &'g Gateway,
        command: Ingest,
        name: String,
        root: PathBuf,
    ) -> Result<Self, Error> {
        let place = std::path::absolute(&command.folder).unwrap_or_else(|_| root.clone());
        let place = Sha256::digest(place.as_os_str().as_encoded_bytes());
        let place = HEXLOWER.encode(place.get(..FOLDER_BYTES).unwrap_or_default());
        let (prefix, source) = (format!("{name}/"), format!("{INGESTED}{name}#{place}"));
        let folder = Self { gateway, command, root, prefix, source, seen: None };
        if !folder.command.moved && folder.list().await?.iter().any(|it| folder.is_of_another(it)) {
            return Err(Error::OtherFolder(name));
        }
        Ok(folder)
    }

    /// Returns whether a memory was ingested from another folder of the same name.
    fn is_of_another(&self, memory: &MemorySource) -> bool {
        memory.source.starts_with(INGESTED) && memory.source != self.source
    }

    async fn list(&self) -> Result<Vec<MemorySource>, Error> {
        list(self.gateway, &self.command.at.profile, Some(self.prefix.clone())).await
    }

    pub(super) fn has_changed(&self) -> bool {
        let walk = walk(&self.root);
        let now: BTreeMap<&str, Stamp> = walk.files.iter().map(|found| (&*found.path, found.stamp)).collect();
        let Some(seen) = &self.seen else { return true };
        !now.into_iter().eq(seen.iter().map(|(path, stamp)| (&**path, *stamp)))
    }

    /// Brings the memories of the folder up to date.
    pub(super) async fn update(&mut self) -> Result<Summary, Error> {
        self.seen = None;
        let ingested = self.list().await?.into_iter().filter(|it| it.source.starts_with(INGESTED));
        // One with other tags is sent again.
        let is_current = |it: &MemorySource| it.tags == self.command.tags && it.source == self.source;
        let mut known: Known =
            ingested.map(|it| (it.path.clone(), is_current(&it).then_some(it.digest))).collect();
        let walk = walk(&self.root);
        if let Some(why) = walk.unknown_rules {
            return Err(Error::IgnoreRules(why));
        }
        let seen = walk.files.iter().map(|found| (found.path.clone(), found.stamp)).collect();
        if walk.files.is_empty() && !walk.is_incomplete && !known.is_empty() && !self.command.allow_empty {
            self.seen = Some(seen);
            return Err(Error::EmptyFolder(self.command.folder.clone()));
        }
        let mut summary = Summary::default();
        self.remove_gone(&walk, &mut known, &mut summary).await?;
        walk.skipped.into_iter().for_each(|(path, why)| summary.skip(path, why));
        self.send_files(walk.files, known, &mut summary).await?;
        self.seen = Some(seen);
        Ok(summary)
    }

    /// Removes memories of files that are gone, first: they may make room for others.
    async fn remove_gone(&self, walk: &Walk, known: &mut Known, summary: &mut Summary) -> Result<(), Error> {
        if walk.is_incomplete {
            print::note("some folders could not be read; nothing is removed before all can");
            return Ok(());
        }
        let there: BTreeSet<String> = walk.files.iter().map(|found| self.path_of(&found.path)).collect();
        let gone: Vec<String> = known.keys().filter(|path| !there.contains(*path)).cloned().collect();
        known.retain(|path, _| there.contains(path));
        self.remove(&gone, summary).await
    }

    async fn send_files(
        &self,
        files: Vec<Found>,
        mut known: Known,
        summary: &mut Summary,
    ) -> Result<(), Error> {
        let (mut batch, mut size, total) = (Vec::new(), 0, files.len());
        // Texts whose files have none any more.
        let mut stale: Vec<String> = Vec::new();
        for (number, Found { file, path: relative, stamp }) in files.into_iter().enumerate() {
            print::progress(&bar(number, total));
            let path = self.path_of(&relative);
            let before = known.remove(&path);
            let text = match read(&file, stamp).await {
                Ok(text) => text,
                Err(NoText::Refused(why)) => {
                    stale.extend(before.map(|_| path));
                    summary.skip(relative, why);
                    continue;
                }
                Err(NoText::Unreadable(error)) => {
                    let kept = if before.is_some() { "; its former text is kept" } else { "" };
                    summary.skip(relative, format!("{error}{kept}"));
                    continue;
                }
            };
            if before == Some(Some(HEXLOWER.encode(&Sha256::digest(&text)))) {
                summary.unchanged += 1;
                continue;
            }
            size += text.len();
            let (source, tags) = (self.source.clone(), self.command.tags.clone());
            let new = PutMemory { path, text, source, tags, expires_in_seconds: None };
            batch.push((new, before.is_some()));
            if batch.len() >= MAX_BATCH || size >= BATCH_BYTES {
                self.send(std::mem::take(&mut batch), summary).await?;
                size = 0;
            }
        }
        self.send(batch, summary).await?;
        self.remove(&stale, summary).await
    }

    /// Sends texts, each with whether it replaces one. If the gateway refuses one of them, each is sent
    /// alone, so that the others are kept. A former text that cannot be replaced is removed.
    async fn send(&self, texts: Vec<(PutMemory, bool)>, summary: &mut Summary) -> Result<(), Error> {
        if texts.is_empty() {
            return Ok(());
        }
        let put = texts.iter().map(|(new, _)| new.clone()).collect();
        let changes = MemoryChanges { put, delete: Vec::new() };
        let refusal = match change(self.gateway, &self.command.at.profile, &changes).await {
            Ok(done) => {
                summary.changed += done.changed + done.unchanged;
                return Ok(());
            }
            Err(Error::Refused { code, message, .. }) if is_about_texts(&code) => message,
            Err(error) => return Err(error),
        };
        if texts.len() > 1 {
            for text in texts {
                Box::pin(self.send(vec![text], summary)).await?;
            }
            return Ok(());
        }
        for (PutMemory { path, .. }, replaces) in texts {
            let removed = if replaces { "; its former text is removed" } else { "" };
            summary.skip(path.replacen(&self.prefix, "", 1), format!("{refusal}{removed}"));
            summary.refused += 1;
            if replaces {
                self.remove(&[path], summary).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, paths: &[String], summary: &mut Summary) -> Result<(), Error> {
        for gone in paths.chunks(DELETED_AT_ONCE) {
            let changes = MemoryChanges { delete: gone.to_vec(), ..MemoryChanges::default() };
            summary.removed += change(self.gateway, &self.command.at.profile, &changes).await?.deleted;
        }
        Ok(())
    }

    fn path_of(&self, relative: &str) -> String {
        format!("{}{relative}", self.prefix)
    }
}

/// Returns whether a refusal is about what was sent: another text may be taken. Others concern all texts.
fn is_about_texts(code: &str) -> bool {
    matches!(code, "invalid" | "too_large" | "conflict")
}

fn bar(done: usize, total: usize) -> String {
    const WIDTH: usize = 30;
    let filled = done * WIDTH / total.max(1);
    format!("[{}{}] {done} of {total} files", "#".repeat(filled), ".".repeat(WIDTH - filled))
}
