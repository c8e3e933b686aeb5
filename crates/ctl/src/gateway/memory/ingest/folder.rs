//! The memories of a folder, brought up to date with its files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use api::{ChangedMemories, MemoryChanges, MemoryFolder, MemorySource, PutMemory};
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
    /// The name of the folder in the memory profile.
    name: String,
    /// First part of the paths of its memories, with a slash, and what they have as source, now or before.
    /// The first source is the one of new memories.
    target: MemoryFolder,
    /// Files as they were when the memories were last brought up to date.
    seen: Option<BTreeMap<String, Stamp>>,
}

/// Digests by path of what the gateway has; none where the text has to be sent again.
type Known = BTreeMap<String, Option<String>>;

impl<'g> Folder<'g> {
    /// Finds the folder in the memory profile by where it is, however its path is written. One that is not
    /// there yet gets a name.
    pub(super) async fn new(
        gateway: &'g Gateway,
        command: Ingest,
        name: String,
        root: PathBuf,
    ) -> Result<Self, Error> {
        let mut places = vec![digest_place(&root)];
        // Earlier releases took folders for another if their paths were written in another way.
        places.extend(std::path::absolute(&command.folder).map(|typed| digest_place(&typed)));
        let there = list(gateway, &command.at.profile, None).await?;
        let names = names_of(&there, &places);
        let is_chosen = command.name.is_some() || command.moved || names.contains(&*name);
        let name = names.first().filter(|_| !is_chosen).map_or(name, |known| (*known).to_owned());
        for other in names.iter().filter(|other| **other != name) {
            let other = print::one_line(other);
            print::note(&format!("the same folder is also below {other}/, from another ingest of it"));
        }
        let mut sources: Vec<String> =
            places.iter().map(|place| format!("{INGESTED}{name}#{place}")).collect();
        sources.dedup();
        let mut folder = Self { gateway, command, root, target: MemoryFolder::default(), name, seen: None };
        folder.target = MemoryFolder { prefix: format!("{}/", folder.name), sources };
        let below = there.into_iter().filter(|memory| memory.path.starts_with(&folder.target.prefix));
        let others: BTreeSet<String> =
            below.filter(|memory| folder.is_of_another(memory)).map(|memory| memory.source).collect();
        if !folder.command.moved && !others.is_empty() {
            return Err(Error::OtherFolder(folder.name));
        }
        folder.target.sources.extend(others);
        Ok(folder)
    }

    /// Returns whether a memory was ingested from another folder of the same name.
    fn is_of_another(&self, memory: &MemorySource) -> bool {
        memory.source.starts_with(INGESTED) && !self.target.sources.contains(&memory.source)
    }

    fn source(&self) -> &str {
        self.target.sources.first().map_or(INGESTED, String::as_str)
    }

    /// Lists what is below the name of the folder. Fails if some of it is of another folder.
    async fn list(&self) -> Result<Vec<MemorySource>, Error> {
        let prefix = Some(self.target.prefix.clone());
        let there = list(self.gateway, &self.command.at.profile, prefix).await?;
        match there.iter().any(|memory| self.is_of_another(memory)) {
            true => Err(Error::OtherFolder(self.name.clone())),
            false => Ok(there),
        }
    }

    /// Makes changes, unless another ingest has taken the name of the folder since it was looked at.
    async fn change(&self, put: Vec<PutMemory>, delete: Vec<String>) -> Result<ChangedMemories, Error> {
        let changes = MemoryChanges { put, delete, folder: Some(self.target.clone()) };
        match change(self.gateway, &self.command.at.profile, &changes).await {
            Err(refusal @ Error::Refused { .. }) => self.list().await.and(Err(refusal)),
            done => done,
        }
    }

    pub(super) fn has_changed(&self) -> bool {
        let Ok(walk) = walk(&self.root) else { return true };
        let now: BTreeMap<&str, Stamp> = walk.files.iter().map(|found| (&*found.path, found.stamp)).collect();
        let Some(seen) = &self.seen else { return true };
        !now.into_iter().eq(seen.iter().map(|(path, stamp)| (&**path, *stamp)))
    }

    /// Brings the memories of the folder up to date.
    pub(super) async fn update(&mut self) -> Result<Summary, Error> {
        self.seen = None;
        let ingested = self.list().await?.into_iter().filter(|it| it.source.starts_with(INGESTED));
        // One with other tags is sent again.
        let is_current = |it: &MemorySource| it.tags == self.command.tags && it.source == self.source();
        let mut known: Known =
            ingested.map(|it| (it.path.clone(), is_current(&it).then_some(it.digest))).collect();
        let walk = walk(&self.root).map_err(Error::IgnoreRules)?;
        let seen = walk.files.iter().map(|found| (found.path.clone(), found.stamp)).collect();
        let is_empty = walk.files.is_empty() && walk.unknown.is_empty();
        if is_empty && !known.is_empty() && !self.command.allow_empty {
            self.seen = Some(seen);
            return Err(Error::EmptyFolder(self.command.folder.clone()));
        }
        let mut summary = Summary::new(walk.unruled);
        self.remove_gone(&walk, &mut known, &mut summary).await?;
        walk.skipped.into_iter().for_each(|(path, why)| summary.skip(path, why));
        self.send_files(walk.files, known, &mut summary).await?;
        self.seen = Some(seen);
        Ok(summary)
    }

    /// Removes memories of files that are gone, first: they may make room for others.
    async fn remove_gone(&self, walk: &Walk, known: &mut Known, summary: &mut Summary) -> Result<(), Error> {
        if !walk.unknown.is_empty() {
            print::note("some folders could not be read; nothing below them is removed before they can");
        }
        let there: BTreeSet<String> = walk.files.iter().map(|found| self.path_of(&found.path)).collect();
        let may_be_there =
            |path: &str| walk.may_have(path.strip_prefix(&*self.target.prefix).unwrap_or(path));
        let is_gone = |path: &&String| !there.contains(*path) && !may_be_there(path);
        let gone: Vec<String> = known.keys().filter(is_gone).cloned().collect();
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
            let (source, tags) = (self.source().to_owned(), self.command.tags.clone());
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
        let refusal = match self.change(put, Vec::new()).await {
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
            summary.skip(path.replacen(&self.target.prefix, "", 1), format!("{refusal}{removed}"));
            summary.refused += 1;
            if replaces {
                self.remove(&[path], summary).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, paths: &[String], summary: &mut Summary) -> Result<(), Error> {
        for gone in paths.chunks(DELETED_AT_ONCE) {
            summary.removed += self.change(Vec::new(), gone.to_vec()).await?.deleted;
        }
        Ok(())
    }

    fn path_of(&self, relative: &str) -> String {
        format!("{}{relative}", self.target.prefix)
    }
}

/// Returns what tells folders of the same name apart: it says nothing about where they are.
fn digest_place(folder: &Path) -> String {
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    HEXLOWER.encode(digest.get(..FOLDER_BYTES).unwrap_or_default())
}

/// Returns the names under which a folder was ingested, by where it is.
fn names_of<'m>(memories: &'m [MemorySource], places: &[String]) -> BTreeSet<&'m str> {
    let name = |memory: &'m MemorySource| {
        let (name, place) = memory.source.strip_prefix(INGESTED)?.rsplit_once('#')?;
        places.iter().any(|known| known == place).then_some(name)
    };
    memories.iter().filter_map(name).collect()
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
