//! Passes calls on to the gateway, which decides on them and records them.

use mcp::Client;
use policy::{AgentKind, Denial, Origin, Scope, Standing};
use rmcp::model::{CallToolResult, ContentBlock, Tool};
use tracing::debug;

use crate::Call;

/// Tools that the node calls for itself. An agent must not end the lease of its job, or store results for it.
const OF_THE_NODE: [&str; 2] = ["lease.", "sandbox.job."];
const MAX_NAME_BYTES: usize = 128;

/// The outcome of a forwarded call.
#[derive(Debug)]
pub(crate) enum PassedOn {
    Answered(Box<CallToolResult>),
    Rejected {
        code: i64,
        message: String,
    },
    /// It did not reach the gateway.
    Unsent(&'static str),
    /// It may have reached the gateway, whose row is the record of it then.
    Unanswered(&'static str),
}

/// Denies what the gateway would deny by the name of the tool and the lease alone.
pub(crate) fn check(standing: &Standing, tool: &str) -> Result<(), Denial> {
    let namespace = tool.split_once('.').map(|(namespace, _)| namespace);
    let is_of_family = namespace.is_some_and(|name| policy::FAMILIES.contains(&name));
    let origin = if is_of_family { Origin::Family } else { Origin::Installed { owner: None } };
    let known = policy::Tool {
        name: tool.to_owned(),
        origin,
        enabled: true,
        scope: Scope::Both,
        quarantined: false,
        needs: Vec::new(),
        gate: None,
        network: None,
    };
    policy::check_visible(standing, Some(&known))?;
    let is_of_node = OF_THE_NODE.iter().any(|prefix| tool.starts_with(prefix));
    if is_of_node || tool.len() > MAX_NAME_BYTES || !policy::may_call(AgentKind::Sandbox, tool) {
        return Err(Denial::NotAllowed);
    }
    Ok(())
}

pub(crate) async fn send(gateway: &Client, call: Call, lease: &str) -> PassedOn {
    let Call { tool, arguments, idempotency_key, traceparent } = call;
    let sent = gateway.call(mcp::Call {
        name: &tool,
        arguments,
        idempotency_key: idempotency_key.as_deref(),
        traceparent: traceparent.as_deref(),
        lease: Some(lease),
    });
    match sent.await {
        Ok(reply) => {
            let content = vec![ContentBlock::text(reply.text)];
            let mut result = if reply.is_error {
                CallToolResult::error(content)
            } else {
                CallToolResult::success(content)
            };
            result.structured_content = reply.structured;
            PassedOn::Answered(Box::new(result))
        }
        Err(mcp::Error::Rejected { code, message }) => {
            PassedOn::Rejected { code: code.unwrap_or_default(), message }
        }
        Err(error) => {
            debug!(error = %broker::Chain(&error), "Call not passed on.");
            let why = if error.is_unreachable() {
                "the gateway cannot be reached"
            } else {
                "the gateway did not answer; it is unknown whether the call had its effect"
            };
            if error.is_unsent() { PassedOn::Unsent(why) } else { PassedOn::Unanswered(why) }
        }
    }
}

/// Lists the tools that the gateway serves under the lease.
pub(crate) async fn tools(gateway: &Client, lease: &str) -> Result<Vec<Tool>, mcp::Error> {
    let is_served = |tool: &mcp::Tool| !OF_THE_NODE.iter().any(|prefix| tool.name.starts_with(prefix));
    let tools = gateway.tools_under(Some(lease)).await?;
    Ok(tools.into_iter().filter(is_served).map(to_tool).collect())
}

fn to_tool(tool: mcp::Tool) -> Tool {
    let mut definition = Tool::new(tool.name, tool.description, std::sync::Arc::new(tool.input_schema));
    definition.title = tool.title;
    definition.annotations = Some(rmcp::model::ToolAnnotations::new().read_only(tool.read_only));
    definition
}
