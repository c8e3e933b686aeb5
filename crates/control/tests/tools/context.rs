//! What a built-in tool runs with.

use contract::tool;
use control::{BuiltInTool, Context, Does, Entry, ToolError};
use policy::Caller;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::stage::{Stage, TRACE, manager};

/// A tool that tells what it sees.
#[derive(Debug, Deserialize, JsonSchema)]
struct Look {}

#[derive(Debug, Serialize, JsonSchema)]
struct Seen {
    profile: String,
    trace_id: String,
}

tool!("test.look": Look => Seen);

impl BuiltInTool for Look {
    const TITLE: &'static str = "Look";
    const DESCRIPTION: &'static str = "Tells the profile and the trace of the call.";
    const DOES: Does = Does::Read;
    const REACHES_NETWORK: bool = true;

    async fn run(context: &Context<'_>, _: Self) -> Result<Seen, ToolError> {
        Ok(Seen { profile: context.profile().to_string(), trace_id: context.trace_id.to_owned() })
    }
}

/// G12: a tool sees the memory profile and the trace of the call. G13: it declares that it reaches the
/// network.
#[tokio::test]
async fn tool_sees_profile_and_trace() {
    let stage = Stage::sqlite().await;
    let tool = Entry::of::<Look>();
    assert!(tool.reaches_network);
    let caller = Caller { profile: "team-a".parse().unwrap(), ..manager() };
    let seen = stage.run(&tool, &caller, Map::new()).await.unwrap();
    assert_eq!(seen, json!({ "profile": "team-a", "trace_id": TRACE }));
    let seen = stage.run(&tool, &manager(), Map::new()).await.unwrap();
    assert_eq!(seen["profile"], "default");
}
