//! Reads the text of a file.

use std::{
    io::{self, Write},
    path::Path,
    process::Stdio,
    time::Duration,
};

use nix::sys::resource::{Resource, setrlimit};
use tokio::{process::Command, time::timeout};

use crate::error::{Error, Exit};

/// The largest text that the gateway keeps, and the largest PDF that is read.
const MAX_TEXT_BYTES: u64 = 4 << 20;
const MAX_PDF_BYTES: u64 = 32 << 20;
const PDF_TIMEOUT: Duration = Duration::from_secs(20);
/// What reading a PDF may take.
const PDF_MEMORY_BYTES: u64 = 1 << 30;

/// Why a file gives no text.
#[derive(Debug)]
pub(super) enum NoText {
    /// It never will, unless it is changed.
    Refused(String),
    /// It could not be read now.
    Unreadable(io::Error),
}

/// Reads a file. `bytes` is its size when it was listed.
pub(super) async fn read(file: &Path, bytes: u64) -> Result<String, NoText> {
    let is_pdf = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pdf"));
    let limit = if is_pdf { MAX_PDF_BYTES } else { MAX_TEXT_BYTES };
    if bytes > limit {
        return refuse(format!("it has {bytes} bytes; at most {limit} are taken: split it"));
    }
    let text = match is_pdf {
        true => read_pdf(file).await?,
        false => decode(std::fs::read(file).map_err(NoText::Unreadable)?)?,
    };
    // A form feed begins a page, in the same line.
    let text = text.trim_start_matches('\u{feff}').replace('\u{c}', " ");
    if text.len() as u64 > MAX_TEXT_BYTES {
        return refuse(format!(
            "its text has {} bytes; at most {MAX_TEXT_BYTES} are taken: split it",
            text.len()
        ));
    }
    let is_wrong = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if let Some(wrong) = text.chars().find(|c| is_wrong(*c)) {
        return refuse(format!("not text: it has the control character U+{:04X}", u32::from(wrong)));
    }
    if text.trim().is_empty() {
        return refuse("it has no text".to_owned());
    }
    Ok(text)
}

fn refuse<T>(why: String) -> Result<T, NoText> {
    Err(NoText::Refused(why))
}

fn decode(content: Vec<u8>) -> Result<String, NoText> {
    String::from_utf8(content).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        NoText::Refused(format!("not UTF-8 text, from byte {at}: convert it, or leave it out"))
    })
}

/// Reads a PDF in a process of its own: a hostile one may make the reader overflow its stack, take all memory
/// or never end.
async fn read_pdf(file: &Path) -> Result<String, NoText> {
    let program = std::env::current_exe().map_err(NoText::Unreadable)?;
    let mut reader = Command::new(program);
    reader.args(["memory", "pdf-text", "--"]).arg(file).env_clear().kill_on_drop(true);
    reader.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
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

/// Writes the text of a PDF to standard output, or to standard error why it has none. Limits what this
/// process may take.
pub(crate) fn print_pdf(file: &Path) -> Result<Exit, Error> {
    let seconds = PDF_TIMEOUT.as_secs();
    let limits = [
        (Resource::RLIMIT_AS, PDF_MEMORY_BYTES),
        (Resource::RLIMIT_CPU, seconds),
        (Resource::RLIMIT_CORE, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, most, most).map_err(|error| Error::Input(error.into()))?;
    }
    let content = std::fs::read(file).map_err(|error| Error::File(file.to_owned(), error))?;
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
