//! `cynodectl nodes`.

use api::{Drain, Node, RemovedNode};

use super::{ApiRequest, Gateway, print_fields, print_json, print_list, print_outcome};
use crate::{
    cli::Nodes,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Nodes, json: bool) -> Result<Exit, Error> {
    match command {
        Nodes::List => {
            let nodes: Vec<Node> = gateway.ask(ApiRequest::get(&["nodes"])).await?;
            let head = ["ID", "STATE", "POOL", "LABELS", "ENGINES", "RUNS", "WAITING", "SEEN"];
            Ok(print_list(&nodes, json, "no nodes: none has reported to this gateway", &head, row))
        }
        Nodes::Show { id } => {
            let node: Node = gateway.ask(ApiRequest::get(&["nodes", &id])).await?;
            show(&node, json);
            Ok(Exit::Done)
        }
        Nodes::Cordon { id } => {
            let node = change(gateway, ApiRequest::post(&["nodes", &id, "cordon"])).await?;
            // A node learns it with its next report.
            let text = format!("{} is cordoned: within a few seconds it takes no more jobs", node.node_id);
            Ok(print_outcome(json, &node, &text))
        }
        Nodes::Drain { id, within } => {
            let drain = Drain { seconds: Some(within.as_secs()) };
            let node = change(gateway, ApiRequest::post(&["nodes", &id, "drain"]).body(&drain)).await?;
            let by = node.drain_by.clone().unwrap_or_default();
            let text = format!("{} is drained: it hands back at {by} what it still runs", node.node_id);
            Ok(print_outcome(json, &node, &text))
        }
        Nodes::Uncordon { id } => {
            let node = change(gateway, ApiRequest::post(&["nodes", &id, "uncordon"])).await?;
            let text = format!("{} may take jobs again", node.node_id);
            Ok(print_outcome(json, &node, &text))
        }
        Nodes::Remove { id, yes } => {
            if !yes && !print::confirm(&format!("remove {}?", print::sanitize(&id))) {
                return Err(Error::NotConfirmed);
            }
            let removed: RemovedNode = gateway.ask(ApiRequest::delete(&["nodes", &id])).await?;
            let (moved, lost) = (removed.moved.len(), removed.lost.len());
            let text =
                format!("{id} removed; jobs moved to other nodes: {moved}, ended as node_lost: {lost}");
            Ok(print_outcome(json, &removed, &text))
        }
    }
}

async fn change(gateway: &Gateway, request: ApiRequest<'_>) -> Result<Node, Error> {
    gateway.ask(request).await
}

fn row(node: &Node) -> Vec<String> {
    let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let engines: Vec<&str> =
        node.engines.iter().filter(|engine| engine.offered).map(|engine| engine.engine.as_str()).collect();
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { print::sanitize(&text) };
    vec![
        print::sanitize(&node.node_id),
        node.state.as_str().to_owned(),
        print::sanitize(&node.pool),
        or_none(labels.join(",")),
        or_none(engines.join(",")),
        format!("{}/{}", node.busy, node.slots),
        node.waiting.to_string(),
        print::sanitize(&node.seen_at),
    ]
}

fn show(node: &Node, json: bool) {
    if json {
        print_json(node);
        return;
    }
    print_fields!(node, node_id, state, pool);
    for (name, value) in &node.labels {
        print::line(&format!("{:16}{}", "label", print::sanitize(&format!("{name}={value}"))));
    }
    for reason in &node.reasons {
        print::line(&format!("{:16}{}", "reason", print::sanitize(reason)));
    }
    print_fields!(node, slots, waiting, drain_by, version, started_at, seen_at);
    for job in &node.running {
        print::line(&format!("{:16}{}", "runs", print::sanitize(job)));
    }
    for image in &node.images {
        print::line(&format!("{:16}{}", "image", print::sanitize(image)));
    }
    for engine in &node.engines {
        let held = engine.attempts.iter().filter(|attempt| attempt.held).count();
        let offered = if engine.offered { "offered" } else { "not offered" };
        let (name, attempts) = (engine.engine.as_str(), engine.attempts.len());
        let tested = format!("{name}: {offered}, {held} of {attempts} attempts to escape held");
        print::line(&format!("{:16}{tested}", "engine"));
        for note in &engine.notes {
            print::line(&format!("{:16}  {}", "", print::sanitize(note)));
        }
        for attempt in engine.attempts.iter().filter(|attempt| !attempt.held) {
            let detail = attempt.detail.as_deref().unwrap_or("not held");
            let text = if attempt.untried {
                format!("could not be tried: {}: {detail}", attempt.name)
            } else {
                format!("escaped by {}: {detail}", attempt.name)
            };
            print::line(&format!("{:16}  {}", "", print::sanitize(&text)));
        }
    }
}
