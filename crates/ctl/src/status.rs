//! `cynodectl status`.

use broker::Broker;
use operate::{label, status::Status};

use crate::{
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(broker: &Broker, json: bool) -> Result<Exit, Error> {
    let status = operate::status::read(broker).await?;
    if json {
        print::json(&status);
    } else {
        show(status);
    }
    Ok(Exit::Done)
}

fn show(status: Status) {
    print::line(&format!("nats-server {}\n", status.server));
    let rows = status.streams.into_iter().map(|stream| {
        vec![
            stream.name.to_owned(),
            stream.messages.to_string(),
            operate::format_size(stream.bytes),
            stream.replicas.to_string(),
        ]
    });
    print::table(&["STREAM", "MESSAGES", "SIZE", "REPLICAS"], rows.collect());
    print::line("");
    let rows = status.queues.into_iter().map(|queue| {
        vec![
            queue.kind.to_string(),
            queue.waiting.to_string(),
            queue.in_flight.to_string(),
            queue.redelivered.to_string(),
            queue.pulls_waiting.to_string(),
        ]
    });
    print::table(&["QUEUE", "WAITING", "IN FLIGHT", "REDELIVERED", "PULLS OPEN"], rows.collect());
    print::line("");
    if status.instances.is_empty() {
        print::line("no instance is running");
        return;
    }
    let rows = status.instances.into_iter().map(|it| {
        let running: Vec<String> = it
            .in_flight
            .iter()
            .map(|(kind, work)| format!("{kind} {}/{}", work.running, work.slots))
            .collect();
        vec![
            it.instance.to_string(),
            it.role.to_string(),
            it.version,
            label(&it.state),
            running.join(", "),
            it.model_route,
            it.started_at.to_string(),
        ]
    });
    print::table(&["INSTANCE", "ROLE", "VERSION", "STATE", "RUNNING", "MODEL", "SINCE"], rows.collect());
}
