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

    /// Returns what is to be shown, in this order.
    pub(super) fn describe(&mut self, update: Update) -> Vec<Shown> {
        match (update, &mut self.0) {
            (Update::Text(delta), Text::Content(text)) => {
                text.push(&delta).into_iter().map(Shown::Content).collect()
            }
            (Update::Text(delta), Text::Reasoning(draft)) => {
                draft.push(&delta).into_iter().map(Shown::Reasoning).collect()
            }
            (Update::Text(_), Text::Off) => Vec::new(),
            (Update::Progress(event), text) => {
                let Some(line) = line(&event) else { return Vec::new() };
                // The text before a tool call has ended.
                let (rest, before) = match text {
                    Text::Content(text) => (text.flush(), String::new()),
                    Text::Reasoning(draft) => (None, draft.end().unwrap_or_default()),
                    Text::Off => (None, String::new()),
                };
                let line = Shown::Reasoning(format!("{before}{line}\n"));
                rest.map(Shown::Content).into_iter().chain([line]).collect()
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

#[cfg(test)]
mod tests {
    use subjects::{Delta, HandoffId, Kind};

    use super::*;

    fn text(turn: u32, sequence: u64, text: &str) -> Update {
        let handoff_id = HandoffId::now();
        Update::Text(Delta { handoff_id, attempt: 1, turn, r#try: 1, sequence, text: text.to_owned() })
    }

    fn calling(name: &str) -> Update {
        Update::Progress(Box::new(Event {
            handoff_id: HandoffId::now(),
            kind: Kind::Chat,
            instance: "manager-1".parse().unwrap(),
            attempt: 1,
            progress: Progress::Calling,
            name: Some(name.to_owned()),
            elapsed_ms: 0,
            step: None,
            act: None,
            outcome: None,
            ms: None,
            tries: None,
            fault: None,
            tools: Vec::new(),
            planned: None,
        }))
    }

    fn content(boundary: Boundary, text: &str) -> Shown {
        Shown::Content(Piece { boundary, text: text.to_owned() })
    }

    #[test]
    fn all_of_a_text_is_shown_before_the_call_and_the_turn_that_follow_it() {
        let mut progress = Progressing::new(Drafts::Content);
        let updates = [
            text(0, 0, "I look up sk-"),
            calling("db.task.list"),
            text(1, 0, "I also use sk-"),
            text(2, 0, "There"),
            text(2, 1, " are none."),
        ];
        let shown: Vec<Shown> = updates.into_iter().flat_map(|update| progress.describe(update)).collect();
        let expected = [
            content(Boundary::None, "I look up "),
            content(Boundary::None, "sk-"),
            Shown::Reasoning("→ db.task.list\n".to_owned()),
            content(Boundary::NextTurn, "I also use "),
            content(Boundary::None, "sk-"),
            content(Boundary::NextTurn, "There"),
            content(Boundary::None, " are none."),
        ];
        assert_eq!(shown, expected);
        assert_eq!(progress.finish("There are none."), None);
    }

    /// G11: a text that goes on after a call is read with what was shown of it.
    #[test]
    fn secret_around_a_call_is_not_shown() {
        let mut progress = Progressing::new(Drafts::Content);
        let updates = [
            text(0, 0, "sk-Q7r"),
            calling("db.task.list"),
            text(0, 1, "T2mZx9LkW4vNc8BdY5hJp3"),
            text(0, 2, " ."),
        ];
        let shown: Vec<Shown> = updates.into_iter().flat_map(|update| progress.describe(update)).collect();
        assert_eq!(shown.last(), Some(&content(Boundary::None, "[redacted:secret] .")));
    }
}
