//! Reads the text of a file.

use std::{io, path::Path, time::Duration};

use tokio::{task::spawn_blocking, time::timeout};

/// The largest text that the gateway keeps, and the largest PDF that is read.
const MAX_TEXT_BYTES: u64 = 4 << 20;
const MAX_PDF_BYTES: u64 = 32 << 20;
const PDF_TIMEOUT: Duration = Duration::from_secs(20);

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
    let content = std::fs::read(file).map_err(NoText::Unreadable)?;
    let text = if is_pdf { read_pdf(content).await? } else { decode(content)? };
    // A form feed ends a page.
    let text = text.trim_start_matches('\u{feff}').replace('\u{c}', "\n");
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

/// Reads a PDF on a thread of its own, since a hostile one may make the reader panic or take forever. A
/// thread that takes too long is left behind, and ends with the process.
async fn read_pdf(content: Vec<u8>) -> Result<String, NoText> {
    let reading = spawn_blocking(move || {
        let document = lopdf::Document::load_mem(&content).map_err(|error| error.to_string())?;
        let pages: Vec<u32> = document.get_pages().into_keys().collect();
        document.extract_text(&pages).map_err(|error| error.to_string())
    });
    match timeout(PDF_TIMEOUT, reading).await {
        Ok(Ok(Ok(text))) => {
            Ok(text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect())
        }
        Ok(Ok(Err(why))) => refuse(format!("not a readable PDF: {why}")),
        Ok(Err(_)) => refuse("not a readable PDF: its reader failed".to_owned()),
        Err(_) => refuse(format!("a PDF that takes longer than {} s to read", PDF_TIMEOUT.as_secs())),
    }
}
