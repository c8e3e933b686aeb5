use broker::Broker;
use futures_util::{StreamExt, stream::select_all};
use operate::word;
use subjects::{Answer, Event, InstanceStatus, Kind, Pattern, Progress, Role, Subject};

use crate::{
    answer, cli,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(broker: &Broker, command: &cli::Watch, json: bool) -> Result<Exit, Error> {
    let patterns = match command.handoff {
        Some(id) => vec![
            Subject::Completion(id).to_string(),
            Subject::Findings(id).to_string(),
            Subject::Event(id).to_string(),
        ],
        None => vec![
            Pattern::Answers(Role::ProjectManager).to_string(),
            Pattern::Answers(Role::ProjectAnalyst).to_string(),
            Pattern::Events.to_string(),
            Subject::Presence.to_string(),
        ],
    };
    let mut subscriptions = Vec::new();
    for pattern in patterns {
        subscriptions.push(broker.client.subscribe(pattern).await?);
    }
    if let Some(id) = command.handoff {
        for kind in [Kind::Chat, Kind::Verify] {
            let (subject, runs) = (Subject::answer(kind, id), broker.layout.runs(kind.role()));
            if let Some(message) = broker::last_on(&broker.jetstream, runs, &subject).await?
                && let Some(found) =
                    operate::answer::read(&message.subject, Some(&message.headers), &message.payload)
            {
                let found = found.map_err(Error::nats)?;
                answer::show(&found, json);
                return Ok(answer::exit(&found));
            }
        }
    } else if !json {
        print::note("watching answers, progress and instances; Ctrl-C ends it");
    }
    let mut heard = select_all(subscriptions);
    let until = async {
        match command.duration {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(until);
    loop {
        let message = tokio::select! {
            () = &mut until => return Ok(Exit::Done),
            message = heard.next() => message,
        };
        let Some(message) = message else { return Ok(Exit::Done) };
        if let Some(Ok(found)) =
            operate::answer::read(&message.subject, message.headers.as_ref(), &message.payload)
        {
            if command.handoff.is_some() {
                answer::show(&found, json);
                return Ok(answer::exit(&found));
            }
            show_in_a_line(&found, json);
        } else if let Ok(event) = serde_json::from_slice::<Event>(&message.payload) {
            if json {
                print::json(&event);
            } else {
                print::line(&progress_in_a_line(&event));
            }
        } else if let Ok(status) = serde_json::from_slice::<InstanceStatus>(&message.payload) {
            if json {
                print::json(&status);
            } else {
                print::line(&format!("{}  {}  {}", status.instance, status.role, word(&status.state)));
            }
        }
    }
}

fn progress_in_a_line(event: &Event) -> String {
    let name = event.name.as_deref().map_or_else(String::new, print::safe);
    let what = match event.progress {
        Progress::Working => format!("working for {} s", event.elapsed_ms / 1_000),
        Progress::Thinking => "asking the model".to_owned(),
        Progress::Calling => format!("calling {name}"),
        Progress::Called => format!("called {name}"),
        Progress::Verifying => format!("having {name} verified"),
    };
    format!("{}  {:8}  {what} on {}", event.handoff_id, event.kind, event.instance)
}

fn show_in_a_line(found: &Answer, json: bool) {
    if json {
        answer::show(found, true);
        return;
    }
    let (kind, status, instance) = match found {
        Answer::Completion(it) => (it.kind, word(&it.status), &it.instance),
        Answer::Findings(it) => (it.kind, word(&it.status), &it.instance),
    };
    let why = found
        .error()
        .map_or_else(String::new, |error| format!("  {}: {}", error.code, print::safe(&error.message)));
    print::line(&format!("{}  {kind:8}  {status} by {instance}{why}", found.handoff_id()));
}
