//! What a stream shows before the answer: tool calls as they happen, and the text that a model writes.

use operate::label;
use subjects::{Event, Progress, StepOutcome};

use super::{
    draft::Draft,
    live_text::{Boundary, LiveText, Piece},
};
use crate::{config::Drafts, turns::Update};

/// What a stream shows of the work, and of the text that a model writes meanwhile.
#[derive(Debug)]
pub(super) struct Progressing(Text);

#[derive(Debug)]
enum Text {
    Content(Box<LiveText>),
    Reasoning(Box<Draft>),
    Off,
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Content(Piece),
    /// Not a part of the answer.
    Reasoning(String),
}

impl Progressing {
    pub(super) fn new(drafts: Drafts) -> Self {
        Self(match drafts {
            Drafts::Content => Text::Content(Box::default()),
            Drafts::Reasoning => Text::Reasoning(Box::default()),
            Drafts::Off => Text::Off,
        })
    }

    /// Returns what is to be shown, if anything.
    pub(super) fn describe(&mut self, update: Update) -> Option<Shown> {
        match (update, &mut self.0) {
            (Update::Text(delta), Text::Content(text)) => text.push(&delta).map(Shown::Content),
            (Update::Text(delta), Text::Reasoning(draft)) => draft.push(&delta).map(Shown::Reasoning),
            (Update::Text(_), Text::Off) => None,
            (Update::Progress(event), text) => {
                let line = line(&event)?;
                let before = match text {
                    Text::Reasoning(draft) => draft.end().unwrap_or_default(),
                    Text::Content(_) | Text::Off => String::new(),
                };
                Some(Shown::Reasoning(format!("{before}{line}\n")))
            }
        }
    }

    /// Returns the content that is left to be sent when the answer is known.
    pub(super) fn finish(&mut self, answer: &str) -> Option<Shown> {
        match &mut self.0 {
            Text::Content(text) => text.finish(answer).map(Shown::Content),
            Text::Reasoning(_) | Text::Off => Shown::answer(answer),
        }
    }
}

impl Shown {
    /// Returns what is shown of an answer before which nothing was shown.
    pub(super) fn answer(text: &str) -> Option<Self> {
        let piece = Piece { boundary: Boundary::None, text: text.to_owned() };
        (!text.is_empty()).then_some(Self::Content(piece))
    }
}

/// Describes an event on one line. Most are not worth one.
fn line(event: &Event) -> Option<String> {
    let name = event.name.as_deref().unwrap_or_default();
    match event.progress {
        Progress::Calling => Some(format!("→ {name}")),
        Progress::Called => match event.outcome {
            Some(outcome @ (StepOutcome::Failed | StepOutcome::Rejected)) => {
                Some(format!("→ {name}: {}", label(&outcome)))
            }
            _ => None,
        },
        Progress::Verifying => Some(format!("→ an analyst verifies {name}")),
        Progress::Planned => Some(match event.planned {
            Some(1) => "→ a plan of one step".to_owned(),
            steps => format!("→ a plan of {} steps", steps.unwrap_or(0)),
        }),
        Progress::Working
        | Progress::Thinking
        | Progress::Offered
        | Progress::Thought
        | Progress::Selected
        | Progress::NotCalled
        | Progress::Verified
        | Progress::TryFailed => None,
    }
}
