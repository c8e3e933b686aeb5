//! What the terminal shows while a handoff is worked on.

use std::time::{Duration, Instant};

use operate::label;
use subjects::{Answer, Delta, Event, Progress, StepOutcome};

use crate::print;

/// How often the status line is rewritten.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

/// Shows one handoff: text while the model writes it, tool calls as they happen, and a status line.
pub(super) struct Screen {
    started: Instant,
    status: String,
    /// Attempt, turn and try of the text that is being written.
    turn: Option<(u32, u32, u32)>,
    /// Text of that turn that is already on the screen.
    shown: String,
}

impl Screen {
    pub(super) fn start() -> Self {
        let mut screen = Self {
            started: Instant::now(),
            status: "waiting for a manager".to_owned(),
            turn: None,
            shown: String::new(),
        };
        screen.tick();
        screen
    }

    /// Waits until the status line is to be rewritten.
    pub(super) async fn wait_for_tick(&self) {
        tokio::time::sleep(TICK_INTERVAL).await;
    }

    /// Rewrites the status line, unless text is being written.
    pub(super) fn tick(&mut self) {
        if self.shown.is_empty() {
            print::progress(&format!("  … {}, {} s", self.status, self.started.elapsed().as_secs()));
        }
    }

    /// Clears the status line, or ends the text that is being written.
    pub(super) fn clear(&mut self) {
        if self.shown.is_empty() {
            print::progress("");
        } else {
            print::text("\n");
        }
    }

    pub(super) fn event(&mut self, event: &Event) {
        let name = event.name.as_deref().map_or_else(String::new, print::sanitize);
        let again = if event.attempt > 1 { format!(", attempt {}", event.attempt) } else { String::new() };
        self.status = match event.progress {
            Progress::Working | Progress::Offered | Progress::Thinking => {
                format!("{} is thinking{again}", event.instance)
            }
            Progress::Planned => {
                self.line(&match event.planned {
                    Some(1) => "  → a plan of one step".to_owned(),
                    steps => format!("  → a plan of {} steps", steps.unwrap_or(0)),
                });
                format!("{} creates tasks{again}", event.instance)
            }
            Progress::Calling => {
                self.line(&format!("  → {name}"));
                format!("{} waits for {name}{again}", event.instance)
            }
            Progress::Called => {
                if let Some(outcome @ (StepOutcome::Failed | StepOutcome::Rejected)) = event.outcome {
                    self.line(&format!("  → {name}: {}", label(&outcome)));
                }
                format!("{} continues{again}", event.instance)
            }
            Progress::Thought | Progress::Selected | Progress::NotCalled | Progress::Verified => {
                format!("{} continues{again}", event.instance)
            }
            // Only in the status line: there may be many while a server is away.
            Progress::TryFailed => {
                let why = event.fault.map_or_else(|| "failed".to_owned(), |fault| label(&fault));
                format!("{} tries {name} again: {why}{again}", event.instance)
            }
            Progress::Verifying => {
                self.line(&format!("  → an analyst verifies {name}"));
                "waiting for an analyst".to_owned()
            }
        };
        self.tick();
    }

    pub(super) fn delta(&mut self, delta: &Delta) {
        let turn = (delta.attempt, delta.turn, delta.r#try);
        if self.turn.is_some_and(|shown| shown > turn) {
            return;
        }
        if self.turn.replace(turn).is_some_and(|shown| shown < turn) {
            // The text before belongs to an earlier turn or to an abandoned try.
            self.end_text();
        }
        if self.shown.is_empty() {
            print::progress("");
        }
        print::text(&print::sanitize(&delta.text));
        self.shown.push_str(&delta.text);
    }

    /// Prints the answer, except for text that is already on the screen.
    pub(super) fn answer(&mut self, found: &Answer) {
        let text = match found {
            Answer::Completion(completion) => {
                completion.message.as_ref().map(|message| message.content.as_str())
            }
            Answer::Findings(_) => None,
        };
        match text.and_then(|text| text.strip_prefix(self.shown.as_str())).filter(|_| !self.shown.is_empty())
        {
            Some(rest) => {
                print::text(&print::sanitize(rest));
                self.end_text();
            }
            None => {
                self.end_text();
                print::progress("");
                if let Some(text) = text {
                    print::line(&print::sanitize(text));
                }
            }
        }
    }

    fn line(&mut self, text: &str) {
        self.end_text();
        print::progress("");
        print::line(text);
    }

    fn end_text(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            print::text("\n");
        }
    }
}
