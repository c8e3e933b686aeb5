//! A handoff's life, as its journal tells it.

mod words; // records in words

use broker::Broker;
use futures_util::StreamExt;
use operate::run::{self, Page, Run, Said};
use serde_json::json;
use subjects::{Answer, HandoffId};

use crate::{
    answer, cli,
    error::{Error, Exit},
    print,
};
use words::Story;

pub(crate) async fn run(broker: &Broker, command: cli::Journal, json: bool) -> Result<Exit, Error> {
    let cli::Journal::Show { handoff, follow } = command;
    let mut teller = Teller { story: Story::default(), json };
    if follow { teller.follow(broker, handoff).await } else { teller.tell_all(broker, handoff).await }
}

struct Teller {
    story: Story,
    json: bool,
}

impl Teller {
    async fn tell_all(&mut self, broker: &Broker, id: HandoffId) -> Result<Exit, Error> {
        let Some(run) = Run::read(broker, id).await? else { return Err(Error::NoJournal(id)) };
        let is_answered = run.answer().is_some();
        for page in run.pages {
            self.tell(page);
        }
        if !is_answered && !self.json {
            for line in self.story.so_far() {
                print::line(&line);
            }
        }
        Ok(Exit::Done)
    }

    /// From the beginning, then as it happens, until it is answered.
    async fn follow(&mut self, broker: &Broker, id: HandoffId) -> Result<Exit, Error> {
        let mut pages = run::follow(broker, id).await?;
        if !self.json {
            print::note("following until it is answered; Ctrl-C ends it");
        }
        while let Some(page) = pages.next().await {
            let page = page?;
            let exit = match &page.said {
                Said::Answer { answer: found, .. } => Some(answer::exit(found)),
                Said::Entry(_) | Said::Unreadable(_) => None,
            };
            self.tell(page);
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
        Ok(Exit::Done)
    }

    fn tell(&mut self, Page { sequence, said }: Page) {
        match (self.json, said) {
            (true, Said::Entry(entry)) => print::json(&json!({ "sequence": sequence, "entry": entry })),
            (true, Said::Unreadable(why)) => {
                print::json(&json!({ "sequence": sequence, "torn": why.to_string() }));
            }
            (true, Said::Answer { answer: found, .. }) => match *found {
                Answer::Completion(found) => print::json(&json!({ "sequence": sequence, "answer": found })),
                Answer::Findings(found) => print::json(&json!({ "sequence": sequence, "answer": found })),
            },
            (false, Said::Entry(entry)) => {
                for line in self.story.entry(&entry) {
                    print::line(&line);
                }
            }
            (false, Said::Unreadable(why)) => {
                print::line(&format!("message {sequence} cannot be read: {}", print::safe(&why.to_string())));
            }
            (false, Said::Answer { at, answer }) => {
                for line in self.story.answer(at, &answer) {
                    print::line(&line);
                }
            }
        }
    }
}
