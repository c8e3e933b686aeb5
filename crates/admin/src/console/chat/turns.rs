//! Turns of a thread: what was said, and what is being worked on.

use contract::thread::{AnswerState, Thread};
use control::ThreadTurn;
use maud::{Markup, html};
use subjects::{ChatRole, HandoffId};

use super::{CHAT, notice};
use crate::console::{
    components::{Tone, address, badge, visible, visible_lines},
    format, markdown,
    session::Session,
};

/// The progress that an open turn has shown so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// The steps of the manager, one per line.
    pub(super) steps: String,
    pub(super) text: String,
}

/// Renders turns, the oldest first.
pub(in super::super) fn list(session: &Session, turns: &[ThreadTurn]) -> Markup {
    html! { @for turn in turns { (article(session, turn)) } }
}

/// Renders one turn. An open one has places for what its stream shows.
pub(super) fn article(session: &Session, turn: &ThreadTurn) -> Markup {
    html! {
        article .turn id=(id_of(turn.handoff_id)) {
            @for message in &turn.messages {
                @match message.role {
                    ChatRole::User => {
                        div .said .by-user {
                            h2 .unseen { "You" }
                            div .bubble { bdi { (visible_lines(&message.content)) } }
                        }
                    }
                    ChatRole::System => {
                        details .more {
                            summary { "Instructions" }
                            p .described { (visible_lines(&message.content)) }
                        }
                    }
                    ChatRole::Assistant => {
                        div .said .by-manager { div .markdown { (markdown::render(&message.content)) } }
                    }
                }
            }
            (reply(session, turn))
        }
    }
}

/// Renders the answer of a turn, or that it is worked on.
fn reply(session: &Session, turn: &ThreadTurn) -> Markup {
    let Some(answer) = &turn.answer else { return working() };
    let is_said = matches!(answer.state, AnswerState::Completed | AnswerState::Question);
    let timeline = format!("/console/handoffs/{}", turn.handoff_id);
    html! {
        div .said .by-manager {
            h2 .who-said { "Project manager" }
            @if is_said {
                div .markdown { (markdown::render(&answer.text)) }
            } @else {
                (notice::turn_failed(answer))
            }
            @if answer.is_cut { p .hint { "The answer was too long and ends here." } }
            p .meta {
                @if answer.state == AnswerState::Question {
                    (badge(Tone::Warn, "Question")) " Your next message answers it. "
                }
                (format::time(turn.ended_at.unwrap_or(turn.created_at)))
                @if session.actor.is_admin() { " · " a href=(timeline) { "What was done" } }
            }
        }
    }
}

fn working() -> Markup {
    html! {
        div .said .by-manager .working {
            h2 .who-said { "Project manager" }
            (draft(&Draft::default()))
            p .meta {
                span .busy {} " Working…"
                noscript { " " a href="" { "Refresh the page" } " to see the answer." }
            }
        }
    }
}

/// Renders what an open turn has shown so far: parts that replace each other by their ids.
pub(super) fn draft(draft: &Draft) -> Markup {
    html! { (steps(&draft.steps)) (text(&draft.text)) }
}

pub(super) fn steps(lines: &str) -> Markup {
    html! {
        ul #draft-steps .steps {
            @for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
                li { (visible(line.strip_prefix('→').unwrap_or(line).trim())) }
            }
        }
    }
}

pub(super) fn text(text: &str) -> Markup {
    html! { div #draft-text .markdown { (markdown::render(text)) } }
}

pub(super) fn id_of(turn: HandoffId) -> String {
    format!("turn-{turn}")
}

/// Renders the list of threads beside a conversation, or above it on a narrow screen.
pub(super) fn thread_list(threads: &[Thread], current: Option<&str>, has_more: bool) -> Markup {
    let entries = html! {
        ul {
            @for thread in threads {
                li {
                    a href=(address(CHAT, &[("thread", &thread.thread_id)]))
                        aria-current=[(current == Some(&*thread.thread_id)).then_some("page")] {
                        bdi .name { (visible(&thread.title)) }
                        span .sub {
                            @if thread.open_turn.is_some() {
                                span .busy {} " working"
                            } @else if thread.open_question.is_some() {
                                "asks you something"
                            } @else {
                                (format::timestamp(&thread.updated_at))
                            }
                        }
                    }
                }
            }
        }
        @if has_more { p { a href="/console/threads" { "All threads" } } }
    };
    html! {
        nav #thread-list .thread-list aria-label="Threads" {
            @if threads.is_empty() {
                p .hint { "Your conversations will be listed here." }
            } @else {
                div .wide { (entries) }
                details .narrow { summary { "Threads" } (entries) }
            }
        }
    }
}
