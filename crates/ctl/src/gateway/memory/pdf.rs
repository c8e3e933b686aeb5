//! Reads the text of a PDF in a process of its own.

#![expect(clippy::disallowed_types, reason = "a hostile PDF must not end the process that ingests it")]

use std::{
    fs::File,
    io::{self, Read, Write},
    process::Stdio,
    time::Duration,
};

use nix::sys::resource::{Resource, setrlimit};
use tokio::{process::Command, time::timeout};

use super::read::{MAX_PDF_BYTES, MAX_TEXT_BYTES, NoText, decode, refuse};
use crate::error::{Error, Exit};

const PDF_TIMEOUT: Duration = Duration::from_secs(20);
/// What reading a PDF may take.
const PDF_MEMORY_BYTES: u64 = 1 << 30;

/// Reads a PDF in a process of its own: a hostile one may make the reader overflow its stack, take all memory
/// or never end.
pub(super) async fn read_pdf(file: File) -> Result<String, NoText> {
    let program = std::env::current_exe().map_err(NoText::Unreadable)?;
    let mut reader = Command::new(program);
    reader.args(["memory", "pdf-text"]).env_clear().kill_on_drop(true);
    reader.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let reading = reader.spawn().map_err(NoText::Unreadable)?.wait_with_output();
    let Ok(done) = timeout(PDF_TIMEOUT, reading).await else {
        return refuse(format!("a PDF that takes longer than {} s to read", PDF_TIMEOUT.as_secs()));
    };
    let done = done.map_err(NoText::Unreadable)?;
    match done.status.code() {
        Some(0) => decode(done.stdout),
        Some(1) => refuse(format!("not a readable PDF: {}", String::from_utf8_lossy(&done.stderr).trim())),
        _ => refuse("not a readable PDF: its reader failed".to_owned()),
    }
}

/// Writes the text of the PDF on standard input to standard output, or to standard error why it has none.
/// Limits what this process may take.
pub(crate) fn print_pdf() -> Result<Exit, Error> {
    let seconds = PDF_TIMEOUT.as_secs();
    let limits = [
        (Resource::RLIMIT_AS, PDF_MEMORY_BYTES),
        (Resource::RLIMIT_CPU, seconds),
        (Resource::RLIMIT_CORE, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, most, most).map_err(|error| Error::Input(error.into()))?;
    }
    let mut content = Vec::new();
    io::stdin().take(MAX_PDF_BYTES).read_to_end(&mut content).map_err(Error::Input)?;
    let read = || {
        let document = lopdf::Document::load_mem(&content)?;
        let pages: Vec<u32> = document.get_pages().into_keys().collect();
        document.extract_text(&pages)
    };
    let text = match read() {
        Ok(text) => text,
        Err(error) => {
            crate::print::note(&error.to_string());
            return Ok(Exit::Failed);
        }
    };
    let text: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    // One byte more than is taken, so that it is refused for its size.
    let end = text.floor_char_boundary(usize::try_from(MAX_TEXT_BYTES + 4).unwrap_or(usize::MAX));
    io::stdout().write_all(text.get(..end).unwrap_or_default().as_bytes()).map_err(Error::Input)?;
    Ok(Exit::Done)
}
