//! `cynodectl workflows show --follow`: a line for each event.

use std::time::Duration;

use api::{WorkflowDetails, WorkflowEvent, WorkflowStatus};
use tokio::time::sleep;

use super::{super::print_json, Gateway, commands, get, show::print_progress};
use crate::{
    error::{Error, Exit},
    print,
};

const INTERVAL: Duration = Duration::from_millis(500);

/// Prints events until the workflow ends or waits for a person.
pub(super) async fn run(gateway: &Gateway, mut details: WorkflowDetails, json: bool) -> Result<Exit, Error> {
    let task = details.workflow.task_id.clone();
    let (mut last, mut said) = (0, None);
    loop {
        for event in details.events.iter().filter(|event| event.sequence > last) {
            if json {
                print_json(event);
            } else if !event.is_routing() {
                print::line(&line(event));
            }
        }
        last = details.events.last().map_or(last, |event| event.sequence.max(last));
        let workflow = &details.workflow;
        match workflow.status {
            WorkflowStatus::Done => return Ok(end(&details, json, Exit::Done)),
            WorkflowStatus::Failed | WorkflowStatus::Cancelled => {
                return Ok(end(&details, json, Exit::Failed));
            }
            WorkflowStatus::Waiting => return Ok(end(&details, json, Exit::NeedsClarification)),
            WorkflowStatus::Queued | WorkflowStatus::Running => {}
        }
        // Why nothing happens, once.
        if !json && workflow.waiting_because != said {
            said.clone_from(&workflow.waiting_because);
            if let Some(why) = &said {
                print::note(&print::sanitize(&format!("it {}", commands(why))));
            }
        }
        sleep(INTERVAL).await;
        details = get(gateway, &task).await?;
    }
}

/// Prints how it ended, or what it waits for.
fn end(details: &WorkflowDetails, json: bool, exit: Exit) -> Exit {
    let workflow = &details.workflow;
    if json {
        print_json(workflow);
        return exit;
    }
    if workflow.status == WorkflowStatus::Waiting {
        print_progress(details);
        return exit;
    }
    let what = workflow.summary.as_ref().or(workflow.error.as_ref());
    let text = match what {
        Some(what) => format!("{}: {what}", workflow.status.as_str()),
        None => workflow.status.as_str().to_owned(),
    };
    print::line(&print::sanitize(&text));
    exit
}

/// Returns an event as one line.
pub(super) fn line(event: &WorkflowEvent) -> String {
    let step = event.step.as_ref().map(|step| format!(" {step}")).unwrap_or_default();
    let detail = event.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let text = format!("{}  {}{step} {}{detail}", event.at, event.node, event.outcome.as_str());
    print::sanitize(&text).replace('\n', " ")
}
