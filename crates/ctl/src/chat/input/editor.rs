//! Line editing and history at a terminal.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc as blocking,
};

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use rustyline::{Config, DefaultEditor, error::ReadlineError};
use tokio::sync::mpsc;

use super::InputEvent;

const HISTORY_LINES: usize = 1_000;

/// An editor on a thread of its own, since reading a terminal blocks. The thread ends with the process.
pub(super) struct Editor {
    prompts: blocking::Sender<String>,
    events: mpsc::Receiver<InputEvent>,
    /// The terminal as it was: a process that ends while a line is being edited must not leave it in raw
    /// mode.
    before: Option<Termios>,
}

impl Editor {
    /// Starts the editor. Lines are kept in `history`; without it, or if it cannot be used, they last for
    /// this chat.
    pub(super) fn start(history: Option<PathBuf>) -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        let (prompts, requests) = blocking::channel::<String>();
        let (sender, events) = mpsc::channel(1);
        std::thread::spawn(move || edit(history.as_deref(), &requests, &sender));
        Self { prompts, events, before }
    }

    pub(super) async fn line(&mut self, prompt: &str) -> InputEvent {
        if self.prompts.send(prompt.to_owned()).is_err() {
            return InputEvent::End;
        }
        self.events.recv().await.unwrap_or(InputEvent::End)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The terminal may be gone, and then there is nothing to restore.
            let _restored = tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, before);
        }
    }
}

/// Reads one line for each prompt.
fn edit(
    history: Option<&Path>,
    prompts: &blocking::Receiver<String>,
    events: &mpsc::Sender<InputEvent>,
) -> Option<()> {
    let config = Config::builder().max_history_size(HISTORY_LINES).ok()?.auto_add_history(true).build();
    let mut editor = DefaultEditor::with_config(config).ok()?;
    if let Some(path) = history {
        if let Some(folder) = path.parent() {
            drop(fs::create_dir_all(folder));
        }
        // Absent the first time.
        drop(editor.load_history(path));
    }
    while let Ok(prompt) = prompts.recv() {
        let event = match editor.readline(&prompt) {
            Ok(line) => {
                if let Some(path) = history {
                    drop(editor.append_history(path));
                }
                InputEvent::Line(line)
            }
            Err(ReadlineError::Interrupted) => InputEvent::Interrupt,
            Err(_) => InputEvent::End,
        };
        events.blocking_send(event).ok()?;
    }
    None
}
