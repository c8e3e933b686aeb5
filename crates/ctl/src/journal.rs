//! `cynodectl journal`: the run of a handoff, as text or JSON.

mod render;

use broker::Broker;
use futures_util::StreamExt;
use operate::run::{self, Run, RunContent, RunMessage};
use serde_json::json;
use subjects::{Answer, HandoffId};

use crate::{
    answer, cli,
    error::{Error, Exit},
    print,
};
use render::JournalRenderer;

pub(crate) async fn run(broker: &Broker, command: cli::Journal, json: bool) -> Result<Exit, Error> {
    let cli::Journal::Show { handoff, follow } = command;
    let mut printer = JournalPrinter { renderer: JournalRenderer::default(), json };
    if follow { printer.follow(broker, handoff).await } else { printer.print_all(broker, handoff).await }
}

struct JournalPrinter {
    renderer: JournalRenderer,
    json: bool,
}

impl JournalPrinter {
    async fn print_all(&mut self, broker: &Broker, id: HandoffId) -> Result<Exit, Error> {
        let Some(run) = Run::read(broker, id).await? else { return Err(Error::NoJournal(id)) };
        let is_answered = run.answer().is_some();
        for message in run.messages {
            self.print(message);
        }
        if !is_answered && !self.json {
            for line in self.renderer.summary() {
                print::line(&line);
            }
        }
        Ok(Exit::Done)
    }

    /// Prints the run from the beginning and follows it until the answer.
    async fn follow(&mut self, broker: &Broker, id: HandoffId) -> Result<Exit, Error> {
        let mut messages = run::follow(broker, id).await?;
        if !self.json {
            print::note("following until the handoff is answered; press Ctrl-C to stop");
        }
        while let Some(message) = messages.next().await {
            let message = message?;
            let exit = match &message.content {
                RunContent::Answer { answer: found, .. } => Some(answer::exit(found)),
                RunContent::Entry(_) | RunContent::Unreadable(_) => None,
            };
            self.print(message);
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
        Ok(Exit::Done)
    }

    fn print(&mut self, RunMessage { sequence, content }: RunMessage) {
        match (self.json, content) {
            (true, RunContent::Entry(entry)) => print::json(&json!({ "sequence": sequence, "entry": entry })),
            (true, RunContent::Unreadable(why)) => {
                print::json(&json!({ "sequence": sequence, "torn": why.to_string() }));
            }
            (true, RunContent::Answer { answer: found, .. }) => match *found {
                Answer::Completion(found) => print::json(&json!({ "sequence": sequence, "answer": found })),
                Answer::Findings(found) => print::json(&json!({ "sequence": sequence, "answer": found })),
            },
            (false, RunContent::Entry(entry)) => {
                for line in self.renderer.entry(&entry) {
                    print::line(&line);
                }
            }
            (false, RunContent::Unreadable(why)) => {
                print::line(&format!(
                    "message {sequence} is unreadable: {}",
                    print::sanitize(&why.to_string())
                ));
            }
            (false, RunContent::Answer { at, answer }) => {
                for line in self.renderer.answer(at, &answer) {
                    print::line(&line);
                }
            }
        }
    }
}
