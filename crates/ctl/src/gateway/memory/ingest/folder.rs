//! The memories of a folder, brought up to date with its files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
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
        read_piece,
    },
    place::{digest_place, machine},
    summary::Summary,
};
use crate::{cli::Ingest, error::Error, print};

/// Texts of one request, and the bytes after which it is sent.
const MAX_BATCH: usize = 200;
const BATCH_BYTES: usize = 1 << 20;
/// After how long files are tried again that could not be read, or for whose texts the profile had no room,
/// and the gateway is asked whether the name is still of this folder.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The folder, and what is known of it.
pub(super) struct Folder<'g> {
    gateway: &'g Gateway,
    command: Ingest,
    root: PathBuf,
    /// The name of the folder in the memory profile.
    name: String,
    /// First part of the paths of its memories, with a slash, and what they have as source, now or before.
    /// The first source is the one of new memories. None until the folder was looked for at the gateway.
    target: MemoryFolder,
    /// Files as they were when the memories were last brought up to date.
    seen: Option<BTreeMap<String, Stamp>>,
    /// When files are tried again that may be taken then as they are.
    retry_at: Option<Instant>,
    /// The rules of the folder itself could not be read: nothing is done until `retry_at`.
    is_unruled: bool,
    /// When the gateway was last asked what is below the name.
    listed_at: Instant,
}

/// Digests by path of what the gateway has; none where the text has to be sent again.
type Known = BTreeMap<String, Option<String>>;

impl<'g> Folder<'g> {
    pub(super) fn new(gateway: &'g Gateway, command: Ingest, name: String, root: PathBuf) -> Self {
        let target = MemoryFolder::default();
        let listed_at = Instant::now();
        Self {
            gateway,
            command,
            root,
            name,
            target,
            seen: None,
            retry_at: None,
            is_unruled: false,
            listed_at,
        }
    }

    /// Finds the folder in the memory profile by where it is, however its path is written. One that is not
    /// there yet gets a name.
    async fn find(&mut self) -> Result<(), Error> {
        // Earlier releases did not tell machines apart, and took folders for another if their paths were
        // written in another way.
        let mut places = vec![digest_place(&machine(), &self.root), digest_place(&[], &self.root)];
        places.extend(std::path::absolute(&self.command.folder).map(|typed| digest_place(&[], &typed)));
        let there = list(self.gateway, &self.command.at.profile, None).await?;
        let names = names_of(&there, &places);
        let is_chosen = self.command.name.is_some() || self.command.moved || names.contains(&*self.name);
        let known = names.first().filter(|_| !is_chosen);
        let name = known.map_or_else(|| self.name.clone(), |known| (*known).to_owned());
        for other in names.iter().filter(|other| **other != name) {
            let other = print::one_line(other);
            print::note(&format!(
                "this folder was also ingested under the name {other}; both copies are searchable"
            ));
        }
        let mut sources: Vec<String> =
            places.iter().map(|place| format!("{INGESTED}{name}#{place}")).collect();
        sources.dedup();
        let mut target = MemoryFolder { prefix: format!("{name}/"), sources };
        let below = there.iter().filter(|memory| memory.path.starts_with(&target.prefix));
        let others: BTreeSet<String> =
            below.filter(|it| is_of_another(&target, it)).map(|it| it.source.clone()).collect();
        if !self.command.moved && !others.is_empty() {
            return Err(Error::OtherFolder(name));
        }
        target.sources.extend(others);
        (self.name, self.target) = (name, target);
        Ok(())
    }

    fn source(&self) -> &str {
        self.target.sources.first().map_or(INGESTED, String::as_str)
    }

    /// Lists what is below the name of the folder. Fails if some of it is of another folder.
    async fn list(&self) -> Result<Vec<MemorySource>, Error> {
        let prefix = Some(self.target.prefix.clone());
        let there = list(self.gateway, &self.command.at.profile, prefix).await?;
        match there.iter().any(|memory| is_of_another(&self.target, memory)) {
            true => Err(Error::OtherFolder(self.name.clone())),
            false => Ok(there),
        }
    }

    /// Makes changes, unless another ingest has taken the name of the folder since it was read.
    async fn change(&self, put: Vec<PutMemory>, delete: Vec<String>) -> Result<ChangedMemories, Error> {
        let changes = MemoryChanges { put, delete, folder: Some(self.target.clone()) };
        match change(self.gateway, &self.command.at.profile, &changes).await {
            Err(refusal @ Error::Refused { .. }) => self.list().await.and(Err(refusal)),
            done => done,
        }
    }

    pub(super) fn has_changed(&self) -> bool {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            return true;
        }
        if self.is_unruled {
            return false;
        }
        let Ok(walk) = walk(&self.root) else { return true };
        let now: BTreeMap<&str, Stamp> = walk.files.iter().map(|found| (&*found.path, found.stamp)).collect();
        let Some(seen) = &self.seen else { return true };
        !now.into_iter().eq(seen.iter().map(|(path, stamp)| (&**path, *stamp)))
    }

    /// Returns whether the gateway was not asked for a while. Files that stay as they are give no reason to.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.seen.is_some() && self.listed_at.elapsed() >= RETRY_INTERVAL
    }

    /// Fails if another folder has taken the name.
    pub(super) async fn confirm_name(&mut self) -> Result<(), Error> {
        self.list().await?;
        self.listed_at = Instant::now();
        Ok(())
    }

    /// Brings the memories of the folder up to date.
    pub(super) async fn update(&mut self) -> Result<Summary, Error> {
        (self.seen, self.retry_at, self.is_unruled) = (None, None, false);
        if self.target.sources.is_empty() {
            self.find().await?;
        }
        let there = self.list().await?;
        self.listed_at = Instant::now();
        let has_foreign = there.iter().any(|it| self.is_foreign(it));
        let ingested = there.into_iter().filter(|it| it.source.starts_with(INGESTED));
        // One with other tags is sent again.
        let is_current = |it: &MemorySource| it.tags == self.command.tags && it.source == self.source();
        let mut known: Known =
            ingested.map(|it| (it.path.clone(), is_current(&it).then_some(it.digest))).collect();
        let walk = match walk(&self.root) {
            Ok(walk) => walk,
            Err(why) => {
                (self.is_unruled, self.retry_at) = (true, Some(Instant::now() + RETRY_INTERVAL));
                return Err(Error::IgnoreRules(why));
            }
        };
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
        if has_foreign && summary.kept == 0 {
            self.adopt(&mut summary).await?;
        }
        if summary.kept == 0 {
            // From now on, what has another source is of another folder, which took this one's name.
            self.target.sources.truncate(1);
        }
        self.seen = Some(seen);
        self.retry_at = summary.may_succeed_later.then(|| Instant::now() + RETRY_INTERVAL);
        Ok(summary)
    }

    /// Returns whether a memory was ingested under a source that new memories do not have.
    fn is_foreign(&self, memory: &MemorySource) -> bool {
        memory.source.starts_with(INGESTED) && memory.source != self.source()
    }

    /// Gives this folder's source to former texts that stay because their files cannot be read.
    async fn adopt(&self, summary: &mut Summary) -> Result<(), Error> {
        let there = self.list().await?;
        for MemorySource { path, tags, .. } in there.into_iter().filter(|it| self.is_foreign(it)) {
            let (mut text, mut cursor) = (String::new(), None);
            loop {
                let piece = read_piece(self.gateway, &self.command.at.profile, &path, cursor).await?;
                text.push_str(&piece.text);
                cursor = piece.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let source = self.source().to_owned();
            let new = PutMemory { path, text, source, tags, expires_in_seconds: None };
            self.send(vec![(new, true)], summary).await?;
        }
        Ok(())
    }

    /// Removes memories of files that are gone, first: they may make room for others.
    async fn remove_gone(&self, walk: &Walk, known: &mut Known, summary: &mut Summary) -> Result<(), Error> {
        if !walk.unknown.is_empty() {
            let kept = "texts ingested from them are kept until they can be read";
            print::note(&format!("some folders could not be read; {kept}"));
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
        for (number, found) in files.into_iter().enumerate() {
            print::progress(&bar(number, total));
            // Files that are only read would keep a signal waiting.
            tokio::task::yield_now().await;
            let text = read(&found).await;
            let relative = found.path;
            let path = self.path_of(&relative);
            let before = known.remove(&path);
            let text = match text {
                Ok(text) => text,
                Err(NoText::Refused(why)) => {
                    stale.extend(before.map(|_| path));
                    summary.skip(relative, why);
                    continue;
                }
                Err(NoText::Unreadable(error)) => {
                    let kept = if before.is_some() { "; its former text is kept" } else { "" };
                    summary.skip(relative, format!("{error}{kept}"));
                    summary.may_succeed_later = true;
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
    /// alone, so that the others are kept. A former text that cannot be replaced is removed, unless the text
    /// may be taken as it is when the link is faster.
    async fn send(&self, texts: Vec<(PutMemory, bool)>, summary: &mut Summary) -> Result<(), Error> {
        if texts.is_empty() {
            return Ok(());
        }
        let put = texts.iter().map(|(new, _)| new.clone()).collect();
        let (code, refusal) = match self.change(put, Vec::new()).await {
            Ok(done) => {
                summary.changed += done.changed + done.unchanged;
                return Ok(());
            }
            Err(Error::Refused { code, message, .. }) if is_about_texts(&code) => (code, message),
            Err(error) => return Err(error),
        };
        if texts.len() > 1 {
            for text in texts {
                Box::pin(self.send(vec![text], summary)).await?;
            }
            return Ok(());
        }
        // A link that is slow today says nothing about the text.
        let is_slow = code == "too_slow";
        summary.may_succeed_later |= is_slow || code == "conflict";
        for (PutMemory { path, .. }, replaces) in texts {
            let former = match (replaces, is_slow) {
                (true, true) => "; its former text is kept",
                (true, false) => "; its former text is removed",
                (false, _) => "",
            };
            summary.skip(path.replacen(&self.target.prefix, "", 1), format!("{refusal}{former}"));
            summary.refused += 1;
            summary.kept += usize::from(replaces && is_slow);
            if replaces && !is_slow {
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

/// Returns whether a memory was ingested from another folder of the same name.
fn is_of_another(target: &MemoryFolder, memory: &MemorySource) -> bool {
    memory.source.starts_with(INGESTED) && !target.sources.contains(&memory.source)
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
    matches!(code, "invalid" | "too_large" | "too_slow" | "conflict")
}

fn bar(done: usize, total: usize) -> String {
    const WIDTH: usize = 30;
    let filled = done * WIDTH / total.max(1);
    format!("[{}{}] {done} of {total} files", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_text_is_told_from_one_of_the_caller() {
        assert!(["invalid", "too_large", "too_slow", "conflict"].into_iter().all(is_about_texts));
        assert!(!["unauthenticated", "too_fast", "unrecorded"].into_iter().any(is_about_texts));
    }
}
