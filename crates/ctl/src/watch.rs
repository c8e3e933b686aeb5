//! `cynodectl watch`: answers, progress and instances as they arrive.

use broker::Broker;
use futures_util::{StreamExt, stream::select_all};
use operate::label;
use subjects::{Answer, Event, HandoffId, InstanceStatus, Pattern, Progress, Role, Subject};

use crate::{
    answer, cli,
    error::{Error, Exit},
    listener::{AnswerListener, Update},
    print,
};

pub(crate) async fn run(broker: &Broker, command: &cli::Watch, json: bool) -> Result<Exit, Error> {
    let watched = async {
        match command.handoff {
            Some(id) => one(broker, id, json).await,
            None => everything(broker, json).await,
        }
    };
    match command.duration {
        Some(time) => tokio::time::timeout(time, watched).await.unwrap_or(Ok(Exit::Done)),
        None => watched.await,
    }
}

/// Watches one handoff until it is answered.
async fn one(broker: &Broker, id: HandoffId, json: bool) -> Result<Exit, Error> {
    let mut listener = AnswerListener::start(broker, &answer::ANY_KIND, id).await?;
    // A read error is reported here; later reads of the listener are retried.
    let mut found = answer::stored(broker, &answer::ANY_KIND, id).await?;
    loop {
        if let Some(found) = found {
            answer::show(&found, json);
            return Ok(answer::exit(&found));
        }
        found = match listener.next(broker).await? {
            Update::Answer(answer) => Some(*answer),
            Update::Event(event) => {
                show_event(&event, json);
                None
            }
            Update::Delta(_) | Update::Nothing => None,
        };
    }
}

/// Prints everything, without an end.
async fn everything(broker: &Broker, json: bool) -> Result<Exit, Error> {
    let patterns = [
        Pattern::Answers(Role::ProjectManager).to_string(),
        Pattern::Answers(Role::ProjectAnalyst).to_string(),
        Pattern::Events.to_string(),
        Subject::Presence.to_string(),
    ];
    let mut subscriptions = Vec::new();
    for pattern in patterns {
        subscriptions.push(broker.client.subscribe(pattern).await?);
    }
    if !json {
        print::note("watching answers, progress and instances; Ctrl-C ends it");
    }
    let mut messages = select_all(subscriptions);
    while let Some(message) = messages.next().await {
        if let Some(Ok(found)) =
            operate::answer::read(&message.subject, message.headers.as_ref(), &message.payload)
        {
            show_answer_line(&found, json);
        } else if let Ok(event) = serde_json::from_slice::<Event>(&message.payload) {
            show_event(&event, json);
        } else if let Ok(status) = serde_json::from_slice::<InstanceStatus>(&message.payload) {
            if json {
                print::json(&status);
            } else {
                print::line(&format!("{}  {}  {}", status.instance, status.role, label(&status.state)));
            }
        }
    }
    Ok(Exit::Done)
}

fn show_event(event: &Event, json: bool) {
    if json {
        print::json(event);
    } else {
        print::line(&progress_line(event));
    }
}

fn progress_line(event: &Event) -> String {
    let name = event.name.as_deref().map_or_else(String::new, print::sanitize);
    let what = match event.progress {
        Progress::Working => format!("working for {} s", event.elapsed_ms / 1_000),
        Progress::Thinking => "asking the model".to_owned(),
        Progress::Calling => format!("calling {name}"),
        Progress::Called => format!("called {name}"),
        Progress::Verifying => format!("waiting for the verification of {name}"),
    };
    format!("{}  {:8}  {what} on {}", event.handoff_id, event.kind, event.instance)
}

fn show_answer_line(found: &Answer, json: bool) {
    if json {
        answer::show(found, true);
        return;
    }
    let (kind, status, instance) = match found {
        Answer::Completion(it) => (it.kind, label(&it.status), &it.instance),
        Answer::Findings(it) => (it.kind, label(&it.status), &it.instance),
    };
    let why = found
        .error()
        .map_or_else(String::new, |error| format!("  {}: {}", error.code, print::sanitize(&error.message)));
    print::line(&format!("{}  {kind:8}  {status} by {instance}{why}", found.handoff_id()));
}
