//! The graph that a runner follows, as SVG, with the node that the workflow is at. Its nodes and edges are
//! declared in `workflow/graph.json`, against which the runner's own tests hold the graph that it runs.

mod route;

use api::WorkflowDetails;
use contract::workflow::{Node, Status};
use maud::{Markup, html};

use self::route::{Place, lines};
use super::{super::components::arrowhead, parts};

const WIDTH: usize = 922;
const HEIGHT: usize = 222;

pub(super) fn render(details: &WorkflowDetails) -> Markup {
    let present = details.present_node();
    let said = sentence(details, present);
    html! {
        p .now { (said) }
        div .scroll tabindex="0" role="group" aria-label="The graph that the workflow follows" {
            svg .graph .engine width=(WIDTH) height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
                role="img" aria-label=(said) {
                (arrowhead("next"))
                @for line in lines() {
                    path .edge d=(line.path) marker-end="url(#next)"
                        marker-start=[line.is_mutual.then_some("url(#next)")] {}
                }
                @for node in Node::ALL {
                    (box_of(node, class_of(details, node, present)))
                }
            }
        }
    }
}

fn box_of(node: Node, class: &str) -> Markup {
    let place = Place::of(node);
    html! {
        g class={ "node " (class) } {
            rect x=(place.left()) y=(place.top()) width=(Place::WIDTH) height=(Place::HEIGHT) rx="8" {}
            text .label x=(place.middle()) y=(place.top() + 27) text-anchor="middle" {
                (parts::title_of(node))
            }
        }
    }
}

/// Returns how a node looks: where the workflow is, where it was, or where it was not yet.
fn class_of(details: &WorkflowDetails, node: Node, present: Option<Node>) -> &'static str {
    let was_there = details.events.iter().any(|event| event.node == node.as_str());
    match (present == Some(node), details.workflow.status) {
        (true, Status::Done) => "is-good",
        (true, Status::Failed) => "is-bad",
        (true, Status::Waiting) => "is-warn is-present",
        (true, _) => "is-present",
        (false, _) if was_there => "was-there",
        (false, _) => "is-plain",
    }
}

/// Says the same as the drawing.
fn sentence(details: &WorkflowDetails, present: Option<Node>) -> String {
    let steps = details.open_steps();
    let of_steps = match steps.len() {
        0 => String::new(),
        1..=5 => format!(" ({})", steps.join(", ")),
        count => format!(" ({count} steps)"),
    };
    let node = present.map(|node| parts::title_of(node).to_lowercase()).unwrap_or_default();
    match (details.workflow.status, present) {
        (Status::Done, _) => "It is done.".to_owned(),
        (Status::Failed, _) => "It failed.".to_owned(),
        (Status::Cancelled, _) => "It was cancelled.".to_owned(),
        (_, None) => "It has not begun yet.".to_owned(),
        (Status::Running, Some(_)) => format!("Now: {node}{of_steps}."),
        (Status::Waiting, Some(Node::AskPerson)) => format!("It waits for your answer{of_steps}."),
        (Status::Waiting, Some(_)) => format!("It is paused and will continue with: {node}{of_steps}."),
        (Status::Queued, Some(_)) => format!("It waits for a runner to continue with: {node}{of_steps}."),
    }
}
