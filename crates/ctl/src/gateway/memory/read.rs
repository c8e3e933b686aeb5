//! Reads the text of a file.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::{
    files::{Found, Stamp},
    pdf::read_pdf,
};

/// The largest text that the gateway keeps, and the largest PDF that is read.
pub(super) const MAX_TEXT_BYTES: u64 = 4 << 20;
pub(super) const MAX_PDF_BYTES: u64 = 32 << 20;

/// Why a file gives no text.
#[derive(Debug)]
pub(super) enum NoText {
    /// It cannot be read unless it is changed.
    Refused(String),
    /// It could not be read now.
    Unreadable(io::Error),
}

/// Reads a file that is as it was listed, and still is when it was read.
pub(super) async fn read(found: &Found) -> Result<String, NoText> {
    let (listed, bytes) = (found.stamp, found.stamp.bytes());
    let extension = Path::new(&found.path).extension();
    let is_pdf = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("pdf"));
    let limit = if is_pdf { MAX_PDF_BYTES } else { MAX_TEXT_BYTES };
    if bytes > limit {
        return refuse(format!("it has {bytes} bytes; at most {limit} are taken: split it"));
    }
    let opened = open(found)?;
    let text = match is_pdf {
        true => read_pdf(opened.try_clone().map_err(NoText::Unreadable)?).await,
        false => read_text(&opened, limit),
    };
    // What was read may be half of it, which may also be why it was refused.
    check_unchanged(&opened, listed)?;
    // A form feed begins a page, in the same line.
    let text = text?.trim_start_matches('\u{feff}').replace('\u{c}', " ");
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

fn read_text(opened: &File, limit: u64) -> Result<String, NoText> {
    let mut content = Vec::new();
    opened.take(limit + 1).read_to_end(&mut content).map_err(NoText::Unreadable)?;
    decode(content)
}

/// Opens a file. Another one that took its place since it was listed, as by a symbolic link to a file of the
/// operator, is not read.
fn open(found: &Found) -> Result<File, NoText> {
    let opened = found.open().map_err(NoText::Unreadable)?;
    check_unchanged(&opened, found.stamp)?;
    Ok(opened)
}

/// Fails if a file is not as it was listed.
fn check_unchanged(opened: &File, listed: Stamp) -> Result<(), NoText> {
    let now = Stamp::of(&opened.metadata().map_err(NoText::Unreadable)?);
    match now == listed {
        true => Ok(()),
        false => Err(NoText::Unreadable(io::Error::other("changed while it was read; ingest again"))),
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{super::files::walk, *};

    /// A folder that others write to may change while a long ingest is at work.
    #[tokio::test]
    async fn file_that_took_the_place_of_a_listed_one_is_not_read() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("docs");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(outer.path().join("secret.md"), "a secret").unwrap();
        let file = folder.join("a.md");
        std::fs::write(&file, "an otter").unwrap();
        let listed = walk(&folder).unwrap().files.remove(0);
        assert_eq!(read(&listed).await.unwrap(), "an otter");
        std::fs::remove_file(&file).unwrap();
        symlink(outer.path().join("secret.md"), &file).unwrap();
        assert!(matches!(read(&listed).await, Err(NoText::Unreadable(_))));
        std::fs::remove_file(&file).unwrap();
        std::fs::hard_link(outer.path().join("secret.md"), &file).unwrap();
        let why = read(&listed).await.unwrap_err();
        assert!(matches!(why, NoText::Unreadable(why) if why.to_string().contains("changed")));
    }

    /// What was read of a file that was written meanwhile is neither its former nor its new text.
    #[test]
    fn file_that_is_written_while_it_is_open_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.md");
        std::fs::write(&file, "an otter").unwrap();
        let found = walk(folder.path()).unwrap().files.remove(0);
        let (opened, listed) = (open(&found).unwrap(), found.stamp);
        assert_eq!(read_text(&opened, MAX_TEXT_BYTES).unwrap(), "an otter");
        check_unchanged(&opened, listed).unwrap();
        std::fs::write(&file, "an otter and another").unwrap();
        let why = check_unchanged(&opened, listed).unwrap_err();
        assert!(matches!(why, NoText::Unreadable(why) if why.to_string().contains("changed")));
    }
}
