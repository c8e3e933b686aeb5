use std::io::{BufRead, IsTerminal};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use crate::{error::Error, print};

/// What a person does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Line(String),
    /// Nothing more will come.
    End,
    /// Ctrl-C.
    Interrupt,
    Terminate,
}

/// Lines from standard input and the signals of this process. The thread that reads cannot be stopped; it ends with
/// the process.
pub(crate) struct Input {
    /// `None` as long as nobody was asked for anything: what is typed is not ours to take before.
    lines: Option<mpsc::Receiver<String>>,
    interrupt: Signal,
    terminate: Signal,
    is_terminal: bool,
}

impl Input {
    pub(crate) fn start() -> Result<Self, Error> {
        Ok(Self {
            lines: None,
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            is_terminal: std::io::stdin().is_terminal(),
        })
    }

    /// Asks for the next line.
    pub(crate) async fn line(&mut self, prompt: &str) -> Typed {
        if self.is_terminal {
            print::text(prompt);
        }
        let lines = self.lines.get_or_insert_with(read);
        tokio::select! {
            line = lines.recv() => line.map_or(Typed::End, Typed::Line),
            typed = signalled(&mut self.interrupt, &mut self.terminate) => typed,
        }
    }

    /// Ends when a signal comes.
    pub(crate) async fn signal(&mut self) -> Typed {
        signalled(&mut self.interrupt, &mut self.terminate).await
    }
}

fn read() -> mpsc::Receiver<String> {
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

async fn signalled(interrupt: &mut Signal, terminate: &mut Signal) -> Typed {
    tokio::select! {
        Some(()) = interrupt.recv() => Typed::Interrupt,
        Some(()) = terminate.recv() => Typed::Terminate,
        else => std::future::pending().await,
    }
}
