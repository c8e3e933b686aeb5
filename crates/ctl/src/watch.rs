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
                print::line(&status_line(&status));
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

fn status_line(status: &InstanceStatus) -> String {
    let backends: String =
        status.backends.iter().map(|(it, state)| format!("  {} {}", label(it), label(state))).collect();
    format!("{}  {}  {}{backends}", status.instance, status.role, label(&status.state))
}

fn progress_line(event: &Event) -> String {
    let name = event.name.as_deref().map_or_else(String::new, print::sanitize);
    let tools = print::sanitize(&event.tools.join(", "));
    let what = match event.progress {
        Progress::Working => format!("working for {} s", event.elapsed_ms / 1_000),
        Progress::Offered => format!("offering {tools}"),
        Progress::Thinking if name.is_empty() => "asking the model".to_owned(),
        Progress::Thinking => format!("asking the model for its {name}"),
        Progress::Thought if name.is_empty() => format!("asked the model{}", ending(event)),
        Progress::Thought => format!("asked the model for its {name}{}", ending(event)),
        Progress::Planned if event.planned == Some(1) => "planned one step".to_owned(),
        Progress::Planned => format!("planned {} steps", event.planned.unwrap_or(0)),
        Progress::Selected if tools.is_empty() => "no tool selected that can be called".to_owned(),
        Progress::Selected => format!("selected {tools}"),
        Progress::NotCalled if name.is_empty() => format!("not calling a tool{}", ending(event)),
        Progress::NotCalled => format!("not calling {name}{}", ending(event)),
        Progress::Calling => format!("calling {name}"),
        Progress::Called => format!("called {name}{}", ending(event)),
        Progress::Verifying => format!("waiting for the verification of {name}"),
        Progress::Verified => format!("verified {name}{}", ending(event)),
        Progress::TryFailed => format!("try {} of {name} failed{}", event.tries.unwrap_or(1), ending(event)),
    };
    format!("{}  {:8}  {what} on {}", event.handoff_id, event.kind, event.instance)
}

/// Says how a step or a try ended. Older workers do not report it.
fn ending(event: &Event) -> String {
    let fault = event.fault.map(|fault| label(&fault));
    let outcome = event.outcome.map(|outcome| label(&outcome));
    let took = event.ms.map(|ms| format!("after {ms} ms"));
    let all: Vec<String> = [fault, outcome, took].into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(" ")) }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(details: &Value) -> String {
        let mut event = json!({
            "handoff_id": "0193f2c0-5a00-7000-8000-00000000c0de", "kind": "chat", "instance": "pm-one",
            "attempt": 1, "elapsed_ms": 2_500,
        });
        event.as_object_mut().unwrap().extend(details.as_object().unwrap().clone());
        let line = progress_line(&serde_json::from_value(event).unwrap());
        let line = line.strip_prefix("0193f2c0-5a00-7000-8000-00000000c0de  chat").unwrap();
        line.strip_suffix(" on pm-one").unwrap().trim_start().to_owned()
    }

    /// G14: each kind of event is one short line, also if an older worker sent it.
    #[test]
    fn events_are_lines() {
        for (details, expected) in [
            (json!({ "progress": "working" }), "working for 2 s"),
            (json!({ "progress": "offered", "tools": ["a.b", "c.d"] }), "offering a.b, c.d"),
            (json!({ "progress": "thinking" }), "asking the model"),
            (json!({ "progress": "thinking", "name": "plan" }), "asking the model for its plan"),
            (json!({ "progress": "thought", "outcome": "ok", "ms": 7 }), "asked the model: ok after 7 ms"),
            (json!({ "progress": "planned", "planned": 3 }), "planned 3 steps"),
            (json!({ "progress": "selected", "tools": ["a.b"] }), "selected a.b"),
            (
                json!({ "progress": "not_called", "name": "a.b", "outcome": "rejected" }),
                "not calling a.b: rejected",
            ),
            (json!({ "progress": "called", "name": "a.b" }), "called a.b"),
            (
                json!({ "progress": "called", "name": "a\u{1b}[2J", "outcome": "failed", "ms": 7 }),
                "called a\u{fffd}[2J: failed after 7 ms",
            ),
            (
                json!({ "progress": "try_failed", "name": "a.b", "tries": 2, "fault": "timed_out" }),
                "try 2 of a.b failed: timed out",
            ),
            (json!({ "progress": "verified", "name": "t-1", "outcome": "ok" }), "verified t-1: ok"),
        ] {
            assert_eq!(line(&details), expected, "{details}");
        }
    }
}
