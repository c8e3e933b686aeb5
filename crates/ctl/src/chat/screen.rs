use std::time::{Duration, Instant};

use subjects::{Answer, Delta, Event, Progress};

use crate::print;

/// How often the line that says what goes on is written anew.
const EVERY: Duration = Duration::from_millis(500);

/// What is shown of one handoff while its answer is awaited: text as the model writes it, calls as they happen, and a line
/// that says what is waited for.
pub(super) struct Screen {
    started: Instant,
    doing: String,
    /// Of the turn that is being written: which one, and how much of it stands there.
    turn: Option<(u32, u32, u32)>,
    shown: String,
}

impl Screen {
    pub(super) fn start() -> Self {
        let mut screen = Self {
            started: Instant::now(),
            doing: "waiting for a manager".to_owned(),
            turn: None,
            shown: String::new(),
        };
        screen.tick();
        screen
    }

    /// Ends when the line is to be written anew.
    pub(super) async fn due(&self) {
        tokio::time::sleep(EVERY).await;
    }

    /// While text is being written, that is sign of life enough.
    pub(super) fn tick(&mut self) {
        if self.shown.is_empty() {
            print::progress(&format!("  … {}, {} s", self.doing, self.started.elapsed().as_secs()));
        }
    }

    pub(super) fn clear(&mut self) {
        if self.shown.is_empty() {
            print::progress("");
        } else {
            print::text("\n");
        }
    }

    pub(super) fn event(&mut self, event: &Event) {
        let name = event.name.as_deref().map_or_else(String::new, print::safe);
        let again = if event.attempt > 1 { format!(", attempt {}", event.attempt) } else { String::new() };
        self.doing = match event.progress {
            Progress::Working | Progress::Thinking => format!("{} is thinking{again}", event.instance),
            Progress::Calling => {
                self.line(&format!("  → {name}"));
                format!("{} waits for {name}{again}", event.instance)
            }
            Progress::Called => format!("{} continues{again}", event.instance),
            Progress::Verifying => {
                self.line(&format!("  → an analyst verifies {name}"));
                "an analyst is at it".to_owned()
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
            // What was written before was only said on the way, or is void.
            self.end_text();
        }
        if self.shown.is_empty() {
            print::progress("");
        }
        print::text(&print::safe(&delta.text));
        self.shown.push_str(&delta.text);
    }

    /// The answer, as far as it does not stand there already.
    pub(super) fn answer(&mut self, found: &Answer) {
        let said = match found {
            Answer::Completion(completion) => {
                completion.message.as_ref().map(|message| message.content.as_str())
            }
            Answer::Findings(_) => None,
        };
        match said.and_then(|said| said.strip_prefix(self.shown.as_str())).filter(|_| !self.shown.is_empty())
        {
            Some(rest) => {
                print::text(&print::safe(rest));
                self.end_text();
            }
            None => {
                self.end_text();
                print::progress("");
                if let Some(said) = said {
                    print::line(&print::safe(said));
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
