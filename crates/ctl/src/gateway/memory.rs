//! `cynodectl memory`.

mod files;
mod ingest;
mod pdf;
mod read;
mod root;
mod rules;

use std::time::Duration;

use api::{
    ChangedMemories, FoundMemory, MemoryAddress, MemoryChanges, MemoryContent, MemoryFilter, MemorySearch,
    MemorySource,
};
use serde_json::json;

pub(crate) use self::pdf::print_pdf;
use super::{ApiRequest, Gateway, cells, print_json, print_list, print_outcome};
use crate::{
    cli::Memory,
    error::{Error, Exit},
    print,
};

/// Texts of one page of the list.
const PAGE: usize = 10_000;
/// Paths of one request.
const DELETED_AT_ONCE: usize = 500;
/// Longer than the gateway waits for texts, so that it can say that they came too slowly.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) async fn run(gateway: &Gateway, command: Memory, json: bool) -> Result<Exit, Error> {
    match command {
        Memory::Ingest(command) => ingest::run(gateway, command, json).await,
        Memory::PdfText => print_pdf(),
        Memory::Search { query, at, prefix, limit } => {
            let wanted = MemorySearch { query, prefix, limit: Some(limit) };
            let path = ["memory", &at.profile, "search"];
            let found: Vec<FoundMemory> = gateway.ask(ApiRequest::get(&path).query(&wanted)).await?;
            print_found(&found, json);
            Ok(Exit::Done)
        }
        Memory::List { prefix, at } => {
            let sources = list(gateway, &at.profile, prefix).await?;
            let head = ["PATH", "SOURCE", "CHUNKS", "BYTES", "UPDATED", "EXPIRES"];
            Ok(print_list(&sources, json, "no memories", &head, |it| {
                cells!(it, path, source, chunks, bytes, updated_at, expires_at)
            }))
        }
        Memory::Show { path, at } => show(gateway, &at.profile, &path, json).await,
        Memory::Delete { path, at, all_below, yes } => {
            let paths =
                if all_below { below(gateway, &at.profile, &path).await? } else { vec![path.clone()] };
            let what = format!("delete {} memories of {}?", paths.len(), print::sanitize(&at.profile));
            if !yes && !print::confirm(&what) {
                return Err(Error::NotConfirmed);
            }
            let mut deleted = 0;
            for paths in paths.chunks(DELETED_AT_ONCE) {
                let changes = MemoryChanges { delete: paths.to_vec(), ..MemoryChanges::default() };
                deleted += change(gateway, &at.profile, &changes).await?.deleted;
            }
            if deleted == 0 {
                let message = format!("memory {} not found", print::sanitize(&path));
                return Err(Error::Refused { code: "not_found".into(), message, field: None });
            }
            Ok(print_outcome(json, &json!({ "deleted": deleted }), &format!("{deleted} deleted")))
        }
    }
}

async fn change(gateway: &Gateway, profile: &str, changes: &MemoryChanges) -> Result<ChangedMemories, Error> {
    gateway.ask(ApiRequest::post(&["memory", profile]).body(changes).within(CHANGE_TIMEOUT)).await
}

/// Returns the paths of all memories in a folder; of the whole profile if its name is empty.
async fn below(gateway: &Gateway, profile: &str, folder: &str) -> Result<Vec<String>, Error> {
    let folder = folder.trim_end_matches('/');
    let prefix = (!folder.is_empty()).then(|| format!("{folder}/"));
    Ok(list(gateway, profile, prefix).await?.into_iter().map(|it| it.path).collect())
}

/// Returns all memories whose path begins with a prefix.
async fn list(gateway: &Gateway, profile: &str, prefix: Option<String>) -> Result<Vec<MemorySource>, Error> {
    let mut sources: Vec<MemorySource> = Vec::new();
    loop {
        let after = sources.last().map(|source| source.path.clone());
        let filter = MemoryFilter { prefix: prefix.clone(), after, limit: Some(PAGE) };
        let page: Vec<MemorySource> =
            gateway.ask(ApiRequest::get(&["memory", profile]).query(&filter)).await?;
        let is_last = page.len() < PAGE;
        sources.extend(page);
        if is_last {
            return Ok(sources);
        }
    }
}

/// Returns a piece of a text; the first one without a cursor.
async fn read_piece(
    gateway: &Gateway,
    profile: &str,
    path: &str,
    cursor: Option<String>,
) -> Result<MemoryContent, Error> {
    let at = MemoryAddress { path: path.to_owned(), cursor };
    gateway.ask(ApiRequest::get(&["memory", profile, "text"]).query(&at)).await
}

async fn show(gateway: &Gateway, profile: &str, path: &str, json: bool) -> Result<Exit, Error> {
    let (mut cursor, mut ends_line) = (None, true);
    loop {
        let piece = read_piece(gateway, profile, path, cursor).await?;
        if json {
            print_json(&piece);
        } else {
            print::text(&print::sanitize(&piece.text.replace("\r\n", "\n")));
            ends_line = piece.text.ends_with('\n');
        }
        cursor = piece.next_cursor;
        if cursor.is_none() {
            if !ends_line {
                print::line("");
            }
            return Ok(Exit::Done);
        }
    }
}

fn print_found(found: &[FoundMemory], json: bool) {
    if json {
        found.iter().for_each(print_json);
    } else if found.is_empty() {
        print::line("nothing found");
    }
    for memory in found.iter().filter(|_| !json) {
        let FoundMemory { path, first_line, last_line, score, text, .. } = memory;
        print::line(&format!("{}:{first_line}-{last_line}  {score:.3}", print::one_line(path)));
        text.lines().for_each(|line| print::line(&format!("    {}", print::sanitize(line))));
    }
}
