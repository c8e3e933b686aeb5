//! Reads the text of a PDF in a process of its own.

#![expect(clippy::disallowed_types, reason = "a hostile PDF must not end the process that ingests it")]

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::sys::{
    resource::{Resource, setrlimit},
    signal::Signal,
};
use tokio::{process::Command, time::timeout};

use super::read::{MAX_PDF_BYTES, MAX_TEXT_BYTES, NoText, decode, refuse};
use crate::error::{Error, Exit};

/// Limits on the CPU time and memory of reading a PDF.
const PDF_SECONDS: u64 = 20;
const PDF_MEMORY_BYTES: u64 = 1 << 30;
/// How long a reader is waited for. Longer than what it may compute: a machine may be busy with other things.
const PDF_TIMEOUT: Duration = Duration::from_secs(60);
/// How a process of Rust ends that panicked.
const PANICKED: i32 = 101;

/// Reads a PDF in a process of its own: a hostile one may make the reader overflow its stack, take all memory
/// or never end. The process is in a group of its own, so that what interrupts this one does not end it.
pub(super) async fn read_pdf(file: File) -> Result<String, NoText> {
    let program = std::env::current_exe().map_err(NoText::Unreadable)?;
    let mut reader = Command::new(program);
    reader.args(["memory", "pdf-text"]).env_clear().process_group(0).kill_on_drop(true);
    reader.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let reading = reader.spawn().map_err(NoText::Unreadable)?.wait_with_output();
    let Ok(done) = timeout(PDF_TIMEOUT, reading).await else {
        return not_now(format!("a PDF that was not read within {} s", PDF_TIMEOUT.as_secs()));
    };
    let done = done.map_err(NoText::Unreadable)?;
    match done.status.code() {
        Some(0) => decode(done.stdout),
        Some(1) => refuse(format!("not a readable PDF: {}", String::from_utf8_lossy(&done.stderr).trim())),
        _ if is_fault_of_file(done.status) => refuse("not a readable PDF: its reader failed".to_owned()),
        _ => not_now(format!("the reader of PDFs ended: {}", done.status)),
    }
}

fn not_now<T>(why: String) -> Result<T, NoText> {
    Err(NoText::Unreadable(io::Error::other(why)))
}

/// Returns whether a reader ended because of what it read, which made it crash or take more than it may. What
/// ends it from outside, such as a system that is short of memory, says nothing about the file.
fn is_fault_of_file(status: ExitStatus) -> bool {
    let signal = status.signal().and_then(|number| Signal::try_from(number).ok());
    let of_file = matches!(
        signal,
        Some(Signal::SIGXCPU | Signal::SIGSEGV | Signal::SIGABRT | Signal::SIGBUS | Signal::SIGILL)
    );
    of_file || status.code() == Some(PANICKED)
}

/// Writes the text of the PDF on standard input to standard output, or to standard error why it has none.
/// Limits what this process may take.
pub(crate) fn print_pdf() -> Result<Exit, Error> {
    // At the second limit of time the system kills without a reason; at the first one it says SIGXCPU.
    let limits = [
        (Resource::RLIMIT_AS, PDF_MEMORY_BYTES, PDF_MEMORY_BYTES),
        (Resource::RLIMIT_CPU, PDF_SECONDS, PDF_SECONDS + 5),
        (Resource::RLIMIT_CORE, 0, 0),
    ];
    for (resource, soft, hard) in limits {
        setrlimit(resource, soft, hard).map_err(|error| Error::Input(error.into()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what a file does to its reader is a reason to forget its former text.
    #[test]
    fn end_of_a_reader_is_the_fault_of_the_file_only_if_it_crashed() {
        let of_signal = |signal: Signal| is_fault_of_file(ExitStatus::from_raw(signal as i32));
        for crash in [Signal::SIGXCPU, Signal::SIGSEGV, Signal::SIGABRT, Signal::SIGBUS, Signal::SIGILL] {
            assert!(of_signal(crash), "{crash}");
        }
        for other in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL, Signal::SIGPIPE] {
            assert!(!of_signal(other), "{other}");
        }
        let of_code = |code: i32| is_fault_of_file(ExitStatus::from_raw(code << 8));
        assert!(of_code(PANICKED) && !of_code(64) && !of_code(127));
    }
}
