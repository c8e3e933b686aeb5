//! Reads the text of a file.

use std::{io, path::Path};

use super::pdf::read_pdf;

/// The largest text that the gateway keeps, and the largest PDF that is read.
pub(super) const MAX_TEXT_BYTES: u64 = 4 << 20;
const MAX_PDF_BYTES: u64 = 32 << 20;

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

pub(super) fn refuse<T>(why: String) -> Result<T, NoText> {
    Err(NoText::Refused(why))
}

pub(super) fn decode(content: Vec<u8>) -> Result<String, NoText> {
    String::from_utf8(content).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        NoText::Refused(format!("not UTF-8 text, from byte {at}: convert it, or leave it out"))
    })
}
