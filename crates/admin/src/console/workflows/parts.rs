//! Parts of the page of a workflow, which the page of a task has too: steps, findings, events.

use api::{WorkflowDetails, WorkflowEffect, WorkflowEvent};
use contract::{
    finding::Finding,
    workflow::{EffectKind, Node, Outcome, StepProgress, StepStatus, sum_of_costs},
};
use maud::{Markup, html};
use subjects::{
    Severity, Verdict,
    workflow::{Decision, IssueSeverity, Outcome as ResultOutcome, ReviewDecision, StepKind},
};

use super::super::{
    components::{
        GraphNode, Tone, address, agent, badge, cells, dash, empty, graph, or_dash, short, table, visible,
        visible_lines,
    },
    format, jobs,
    page::Section,
};

const STEP_HEADINGS: [&str; 6] = ["Step", "Status", "Attempts", "Work", "Review", "Cost"];
const WORK_HEADINGS: [&str; 5] = ["Work", "Outcome", "Step", "Began", "Cost"];
const FINDING_HEADINGS: [&str; 4] = ["Criterion", "Verdict", "Evidence", "Found"];
const EVENT_HEADINGS: [&str; 4] = ["When", "Where", "What", "Detail"];
/// How many events a page shows.
const MAX_EVENTS: usize = 60;

/// Returns the title of a node of the graph.
pub(super) fn title_of(node: Node) -> &'static str {
    match node {
        Node::LoadTaskContext => "Load task context",
        Node::PlanSteps => "Plan steps",
        Node::DecideNext => "Decide",
        Node::DispatchStep => "Dispatch step",
        Node::CollectResult => "Collect result",
        Node::VerifyStepResult => "Verify step result",
        Node::AskPerson => "Ask a person",
        Node::FinalizeSummary => "Finalize summary",
        Node::MarkFailed => "Mark failed",
    }
}

/// Returns the title of what an event names as its node.
pub(in super::super) fn node_title(node: &str) -> String {
    Node::named(node).map_or_else(|| agent(node), |node| title_of(node).to_owned())
}

pub(in super::super) fn cost(usd: Option<f64>) -> Markup {
    html! { @match usd { Some(usd) => { (format::dollars(usd)) } None => { (dash()) } } }
}

fn step_badge(status: StepStatus) -> (Tone, &'static str) {
    match status {
        StepStatus::Pending => (Tone::Plain, "Pending"),
        StepStatus::Running => (Tone::Warn, "Running"),
        StepStatus::Ended => (Tone::Warn, "In review"),
        StepStatus::Asking => (Tone::Warn, "Asks you"),
        StepStatus::Done => (Tone::Good, "Done"),
        StepStatus::Failed => (Tone::Bad, "Failed"),
    }
}

/// Renders the steps with what was done for them, and how they depend on each other.
pub(in super::super) fn steps(details: &WorkflowDetails) -> Markup {
    let steps = details.steps();
    if steps.is_empty() {
        return empty("Not planned yet.", &html! { "A manager plans the steps, unless they were given." });
    }
    let rows: Vec<Markup> = steps.iter().map(|step| step_row(step, details)).collect();
    html! {
        @if steps.iter().any(|step| !step.depends_on.is_empty()) { (step_graph(&steps)) }
        (table("Steps, in their order", &STEP_HEADINGS, &rows))
    }
}

fn step_graph(steps: &[StepProgress]) -> Markup {
    let nodes: Vec<GraphNode> = steps
        .iter()
        .map(|step| {
            let (tone, status) = step_badge(step.status);
            let (label, status) = (step.name.clone(), status.to_owned());
            GraphNode { label, status, tone, address: String::new() }
        })
        .collect();
    let index = |name: &String| steps.iter().position(|step| step.name == *name);
    let edges: Vec<(usize, usize)> = steps
        .iter()
        .enumerate()
        .flat_map(|(to, step)| step.depends_on.iter().filter_map(index).map(move |from| (from, to)))
        .collect();
    graph("Which step waits for which", &nodes, &edges)
}

fn step_row(step: &StepProgress, details: &WorkflowDetails) -> Markup {
    let effects = || details.effects.iter().filter(|effect| effect.step.as_deref() == Some(&*step.name));
    let (tone, status) = step_badge(step.status);
    let kind = match step.kind {
        Some(StepKind::Manager) => "By a manager",
        Some(StepKind::Job) | None => "Job",
    };
    let cells_of = [
        html! {
            bdi { (visible(&step.name)) }
            span .sub {
                (kind)
                @if !step.depends_on.is_empty() { ", after " (visible(&step.depends_on.join(", "))) }
                @if step.needs_approval { ", with approval" }
            }
            @if !step.description.is_empty() { span .sub .clamp { (visible(&step.description)) } }
        },
        html! { (badge(tone, status)) (result(step)) },
        html! { (step.attempts) " of " (details.workflow.policy.max_attempts) },
        html! {
            @if effects().next().is_none() { (dash()) } @else {
                ul .works { @for effect in effects() { li { (work(effect)) } } }
            }
        },
        html! { @match &step.review { Some(decided) => { (review(decided)) } None => { (dash()) } } },
        cost(sum_of_costs(effects())),
    ];
    html! { tr role="row" { (cells(&STEP_HEADINGS, &cells_of)) } }
}

/// Renders what the last attempt came to.
fn result(step: &StepProgress) -> Markup {
    let Some(result) = &step.result else { return html! {} };
    let output = result.answer.as_ref().or(result.output_tail.as_ref()).filter(|text| !text.is_empty());
    html! {
        @if let (ResultOutcome::Failed, Some(error)) = (result.outcome, &result.error) {
            span .sub .clamp { (visible(error)) }
        }
        @if !result.artifacts.is_empty() {
            span .sub { "Files: " (visible(&result.artifacts.join(", "))) }
        }
        @if let Some(output) = output {
            details .output { summary { "Output" } pre tabindex="0" { (visible_lines(output)) } }
        }
    }
}

/// Renders a job or a handoff as a link.
fn work(effect: &WorkflowEffect) -> Markup {
    let (kind, page) = match effect.kind {
        EffectKind::Job => ("Job", jobs::page_of(&effect.id)),
        EffectKind::Plan => ("Plan", handoff_page(&effect.id)),
        EffectKind::Review => ("Review", handoff_page(&effect.id)),
        EffectKind::Chat => ("Manager", handoff_page(&effect.id)),
    };
    html! {
        a href=(page) { (kind) " " (short(&effect.id)) }
        @match (&effect.outcome, &effect.ended_at) {
            (Some(outcome), _) => { " " (visible(&outcome.replace('_', " "))) }
            (None, None) => { " under way" }
            (None, Some(_)) => {}
        }
    }
}

fn handoff_page(id: &str) -> String {
    format!("{}/{id}", Section::Work.address())
}

fn review(decided: &ReviewDecision) -> Markup {
    let (tone, text) = match decided.decision {
        Decision::Pass => (Tone::Good, "Passed"),
        Decision::Revise => (Tone::Warn, "To revise"),
        Decision::Retry => (Tone::Warn, "To try again"),
        Decision::ReduceScope => (Tone::Warn, "To reduce"),
        Decision::Escalate => (Tone::Warn, "For a person"),
    };
    html! {
        (badge(tone, text))
        @for reason in &decided.reasons { span .sub { (visible(reason)) } }
        @if !decided.issues.is_empty() {
            ul .works {
                @for issue in &decided.issues {
                    li .sub {
                        strong { (severity_of(issue.severity)) } ": " (visible(&issue.problem))
                        @if let Some(location) = &issue.location { " (" (visible(location)) ")" }
                    }
                }
            }
        }
    }
}

fn severity_of(severity: IssueSeverity) -> &'static str {
    match severity {
        IssueSeverity::Minor => "Minor",
        IssueSeverity::Major => "Major",
        IssueSeverity::Critical => "Critical",
    }
}

/// Renders what was begun for no step of the plan: plans, and what was begun before a start from the
/// beginning.
pub(super) fn other_work(details: &WorkflowDetails) -> Markup {
    let steps = details.steps();
    let is_of_step =
        |effect: &&WorkflowEffect| steps.iter().any(|step| Some(&step.name) == effect.step.as_ref());
    let others: Vec<&WorkflowEffect> = details.effects.iter().filter(|effect| !is_of_step(effect)).collect();
    let row = |effect: &&WorkflowEffect| {
        let cells_of = [
            html! { (work(effect)) },
            html! { (or_dash(effect.outcome.as_deref())) },
            html! { (or_dash(effect.step.as_deref())) },
            html! { (format::timestamp(&effect.began_at)) },
            cost(effect.cost_usd),
        ];
        html! { tr role="row" { (cells(&WORK_HEADINGS, &cells_of)) } }
    };
    let rows: Vec<Markup> = others.iter().map(row).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Other work" }
            (table("Jobs and handoffs that belong to no step", &WORK_HEADINGS, &rows))
        }
    }
}

/// Renders what analysts found.
pub(in super::super) fn findings(findings: &[Finding]) -> Markup {
    if findings.is_empty() {
        return empty("No findings yet.", &html! { "Analysts record them when results are verified." });
    }
    let rows: Vec<Markup> = findings.iter().map(finding_row).collect();
    table("Findings, newest first", &FINDING_HEADINGS, &rows)
}

fn finding_row(finding: &Finding) -> Markup {
    let (tone, verdict) = match finding.verdict {
        Verdict::Met => (Tone::Good, "Met"),
        Verdict::NotMet => (Tone::Bad, "Not met"),
        Verdict::Unclear => (Tone::Warn, "Unclear"),
    };
    let severity = match finding.severity {
        Severity::Info => "for information",
        Severity::Minor => "minor",
        Severity::Major => "major",
        Severity::Critical => "critical",
    };
    let cells_of = [
        html! { span .long { (visible(&finding.criterion)) } },
        html! { (badge(tone, verdict)) span .sub { (severity) } },
        html! {
            span .long .clamp { (visible(&finding.evidence)) }
            @if let Some(location) = &finding.location { span .sub { (visible(location)) } }
        },
        html! { (format::timestamp(&finding.created_at)) },
    ];
    html! { tr role="row" { (cells(&FINDING_HEADINGS, &cells_of)) } }
}

/// Renders what happened, the newest first.
pub(super) fn events(events: &[WorkflowEvent]) -> Markup {
    let told: Vec<&WorkflowEvent> = events.iter().filter(|event| !event.is_routing()).collect();
    let rows: Vec<Markup> = told.iter().rev().take(MAX_EVENTS).map(|event| event_row(event)).collect();
    html! {
        (table("Events, newest first", &EVENT_HEADINGS, &rows))
        @if told.len() > MAX_EVENTS {
            p .hint { "Earlier ones: " code { "cynodectl workflows show --follow" } "." }
        }
    }
}

fn event_row(event: &WorkflowEvent) -> Markup {
    // A token says nothing to people; who it belongs to does.
    let detail = event.detail.as_deref().map(|detail| match detail.strip_prefix("by ") {
        Some(by) => format!("by {}", by.split(':').next().unwrap_or(by)),
        None => detail.to_owned(),
    });
    let cells_of = [
        html! { (format::timestamp(&event.at)) },
        html! {
            (node_title(&event.node))
            @if let Some(step) = &event.step { span .sub { bdi { (visible(step)) } } }
        },
        html! { (outcome_badge(event.outcome)) },
        html! { span .long { (or_dash(detail.as_deref())) } },
    ];
    html! { tr role="row" { (cells(&EVENT_HEADINGS, &cells_of)) } }
}

fn outcome_badge(outcome: Outcome) -> Markup {
    let (tone, text) = match outcome {
        Outcome::Started => (Tone::Plain, "Started"),
        Outcome::Ended => (Tone::Good, "Ended"),
        Outcome::Failed => (Tone::Bad, "Failed"),
        Outcome::Retried => (Tone::Warn, "Tried again"),
        Outcome::Waiting => (Tone::Warn, "Waits"),
        Outcome::Answered => (Tone::Plain, "Answered"),
        Outcome::Paused => (Tone::Warn, "Paused"),
        Outcome::Resumed => (Tone::Plain, "Resumed"),
        Outcome::Cancelled => (Tone::Plain, "Cancelled"),
        Outcome::LeaseLost => (Tone::Bad, "Runner lost"),
    };
    badge(tone, text)
}

/// Returns the address of the jobs of a task.
pub(in super::super) fn jobs_of(task_id: &str) -> String {
    address(Section::Jobs.address(), &[("task_id", task_id)])
}
