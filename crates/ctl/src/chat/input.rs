//! Lines that a person types or a script pipes in, and signals.

mod editor;

use std::{
    io::{BufRead, IsTerminal},
    path::PathBuf,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use crate::error::Error;
use editor::Editor;

/// A line of input, its end, or a signal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputEvent {
    Line(String),
    /// End of input.
    End,
    /// Ctrl-C.
    Interrupt,
    Terminate,
}

/// Standard input and the signals of this process.
pub(crate) struct Input {
    /// `None` until the first line is requested: input is not consumed before.
    source: Option<Source>,
    /// Keeps the lines of earlier chats.
    history: Option<PathBuf>,
    interrupt: Signal,
    terminate: Signal,
}

enum Source {
    /// The reading thread cannot be stopped; it ends with the process.
    Pipe(mpsc::Receiver<String>),
    Terminal(Editor),
}

impl Input {
    pub(crate) fn start(history: Option<PathBuf>) -> Result<Self, Error> {
        Ok(Self {
            source: None,
            history,
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
        })
    }

    /// Prompts for the next line, if a person is there to see the prompt.
    pub(crate) async fn line(&mut self, prompt: &str) -> InputEvent {
        let source = self.source.get_or_insert_with(|| Source::open(self.history.take()));
        let line = async {
            match source {
                Source::Pipe(lines) => lines.recv().await.map_or(InputEvent::End, InputEvent::Line),
                Source::Terminal(editor) => editor.line(prompt).await,
            }
        };
        tokio::select! {
            event = line => event,
            event = next_signal(&mut self.interrupt, &mut self.terminate) => event,
        }
    }

    /// Waits for a signal.
    pub(crate) async fn signal(&mut self) -> InputEvent {
        next_signal(&mut self.interrupt, &mut self.terminate).await
    }
}

impl Source {
    fn open(history: Option<PathBuf>) -> Self {
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            Self::Terminal(Editor::start(history))
        } else {
            Self::Pipe(read_lines())
        }
    }
}

fn read_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

async fn next_signal(interrupt: &mut Signal, terminate: &mut Signal) -> InputEvent {
    tokio::select! {
        Some(()) = interrupt.recv() => InputEvent::Interrupt,
        Some(()) = terminate.recv() => InputEvent::Terminate,
        else => std::future::pending().await,
    }
}
