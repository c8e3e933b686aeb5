//! The graph that a runner follows, as SVG, with the node that the workflow is at.

use api::WorkflowDetails;
use contract::workflow::{Node, Status};
use maud::{Markup, html};

use super::{super::components::arrowhead, parts};

const WIDTH: usize = 922;
const HEIGHT: usize = 222;
const NODE_WIDTH: usize = 134;
const NODE_HEIGHT: usize = 44;

/// Where each node is drawn: its left and top.
const PLACES: [(Node, usize, usize); 9] = [
    (Node::LoadTaskContext, 4, 52),
    (Node::PlanSteps, 160, 52),
    (Node::DecideNext, 316, 52),
    (Node::DispatchStep, 472, 52),
    (Node::CollectResult, 628, 52),
    (Node::VerifyStepResult, 784, 52),
    (Node::AskPerson, 160, 140),
    (Node::FinalizeSummary, 472, 140),
    (Node::MarkFailed, 628, 140),
];

/// The edges, as paths. That between decision and question leads both ways.
const EDGES: [(&str, bool); 9] = [
    ("M138 74 H158", false),
    ("M294 74 H314", false),
    ("M450 74 H470", false),
    ("M606 74 H626", false),
    ("M762 74 H782", false),
    ("M851 52 V24 Q851 16 843 16 H391 Q383 16 383 24 V50", false),
    ("M363 98 V154 Q363 162 355 162 H296", true),
    ("M403 98 V154 Q403 162 411 162 H470", false),
    ("M383 98 V198 Q383 206 391 206 H687 Q695 206 695 198 V186", false),
];

pub(super) fn render(details: &WorkflowDetails) -> Markup {
    let present = details.present_node();
    let said = sentence(details, present);
    html! {
        p .now { (said) }
        div .scroll tabindex="0" role="group" aria-label="The graph that the workflow follows" {
            svg .graph .engine width=(WIDTH) height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
                role="img" aria-label=(said) {
                (arrowhead("next"))
                @for (path, is_mutual) in EDGES {
                    path .edge d=(path) marker-end="url(#next)"
                        marker-start=[is_mutual.then_some("url(#next)")] {}
                }
                @for (node, x, y) in PLACES {
                    (box_of(node, x, y, class_of(details, node, present)))
                }
            }
        }
    }
}

fn box_of(node: Node, x: usize, y: usize, class: &str) -> Markup {
    html! {
        g class={ "node " (class) } {
            rect x=(x) y=(y) width=(NODE_WIDTH) height=(NODE_HEIGHT) rx="8" {}
            text .label x=(x + NODE_WIDTH / 2) y=(y + 27) text-anchor="middle" { (parts::title_of(node)) }
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
        (Status::Waiting, Some(_)) => format!("It is paused, and goes on with: {node}{of_steps}."),
        (Status::Queued, Some(_)) => format!("It waits for a runner, and goes on with: {node}{of_steps}."),
    }
}
