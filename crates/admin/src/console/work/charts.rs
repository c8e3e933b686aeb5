//! Charts of queues and slots, as SVG.

use maud::{Markup, html};
use operate::status::QueueStatus;
use subjects::InFlight;

use crate::console::{components::empty, format};

/// More slots than this are drawn as one bar.
const MAX_SLOT_SQUARES: usize = 8;

/// Renders a bar for each kind, all on one scale: messages in flight and waiting.
pub(super) fn queues(queues: &[QueueStatus]) -> Markup {
    if queues.is_empty() {
        return empty("No queues yet.", &html! { "They are created when the first worker starts." });
    }
    let size = |queue: &QueueStatus| count(queue.in_flight).saturating_add(count_u64(queue.waiting));
    let max = queues.iter().map(size).max().unwrap_or(0).max(1);
    html! {
        div .card {
            ul .bars {
                @for queue in queues {
                    @let (in_flight, waiting) = (count(queue.in_flight), count_u64(queue.waiting));
                    li {
                        span .what { (queue.kind.as_str()) }
                        svg .bar width="100%" height="16" aria-hidden="true" focusable="false" {
                            rect .ground x="0" y="0" width="100%" height="16" rx="4" {}
                            rect .held x="0" y="0" width=(share(in_flight, max)) height="16" rx="4" {}
                            rect .waits x=(share(in_flight, max)) y="0" width=(share(waiting, max))
                                height="16" rx="4" {}
                        }
                        span .figures {
                            strong { (format::number(in_flight)) } " in flight · "
                            strong { (format::number(waiting)) } " waiting"
                            @if queue.redelivered > 0 {
                                span .again {
                                    " · " (format::number(count(queue.redelivered))) " redelivered"
                                }
                            }
                        }
                    }
                }
            }
            p .legend aria-hidden="true" {
                span { (swatch("held")) "In flight" }
                span { (swatch("waits")) "Waiting" }
            }
        }
    }
}

/// Renders a square for each slot, filled if it is in use.
pub(super) fn slots(InFlight { running, slots }: InFlight) -> Markup {
    let squares = slots.max(running);
    if squares > MAX_SLOT_SQUARES {
        let (running, slots) = (count(running), count(slots).max(1));
        return html! {
            svg .slots width="96" height="10" aria-hidden="true" focusable="false" {
                rect .ground x="0" y="0" width="100%" height="10" rx="2" {}
                rect .held x="0" y="0" width=(share(running, slots)) height="10" rx="2" {}
            }
        };
    }
    let width = (squares * 12).to_string();
    html! {
        svg .slots width=(width) height="10" aria-hidden="true" focusable="false" {
            @for square in 0..squares {
                rect class=(if square < running { "held" } else { "free" }) x=((square * 12 + 1).to_string())
                    y="1" width="8" height="8" rx="2" {}
            }
        }
    }
}

pub(in crate::console) fn swatch(class: &str) -> Markup {
    html! {
        svg .swatch width="12" height="12" aria-hidden="true" focusable="false" {
            rect class=(class) x="1" y="1" width="10" height="10" rx="2" {}
        }
    }
}

fn share(part: i64, whole: i64) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole as f64)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count_u64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
