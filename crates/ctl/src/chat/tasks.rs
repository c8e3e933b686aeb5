//! The tasks in the gateway's store, read over MCP.

use std::{path::Path, time::Duration};

use mcp::{Call, Client, Options};
use serde_json::{Map, Value, json};
use subjects::ScopeId;

use crate::{error::Error, print};

const MAX_TASKS_SHOWN: u32 = 50;

/// An MCP client for the gateway's task tools, with an agent token.
pub(crate) struct Tasks(Client);

impl Tasks {
    pub(crate) fn open(url: &str, token_file: &Path) -> Result<Self, Error> {
        let client = Client::new(Options {
            url: url.to_owned(),
            token_file: Some(token_file.to_owned()),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            max_result_bytes: 1024 * 1024,
        });
        Ok(Self(client.map_err(Error::tools)?))
    }

    /// Calls the gateway and returns whether it accepts the token.
    pub(crate) async fn check_token(&self) -> bool {
        self.0.tools().await.is_ok()
    }

    /// Calls a tool. With an idempotency key, repeated calls have one effect.
    pub(crate) async fn call(&self, tool: &str, arguments: Value, key: Option<&str>) -> Result<Value, Error> {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        let call = Call { name: tool, arguments, idempotency_key: key, traceparent: None };
        let reply = self.0.call(call).await.map_err(Error::tools)?;
        if reply.is_error {
            return Err(Error::Tool(tool.to_owned(), print::sanitize(&reply.text)));
        }
        Ok(reply.structured.unwrap_or_default())
    }

    pub(crate) async fn list(&self, project: Option<&ScopeId>) -> Result<Vec<Value>, Error> {
        let mut arguments = json!({ "limit": MAX_TASKS_SHOWN });
        if let Some(project) = project {
            arguments["project_id"] = project.as_str().into();
        }
        let listed = self.call("db.task.list", arguments, None).await?;
        Ok(listed["items"].as_array().cloned().unwrap_or_default())
    }

    pub(crate) async fn show(&self, project: Option<&ScopeId>) -> Result<(), Error> {
        let tasks = self.list(project).await?;
        if tasks.is_empty() {
            print::note("there are no tasks yet; type “create a task …” or /plan GOAL");
            return Ok(());
        }
        let text = |task: &Value, member: &str| print::sanitize(task[member].as_str().unwrap_or_default());
        let rows =
            tasks.iter().map(|task| ["name", "status", "title"].map(|member| text(task, member)).into());
        print::table(&["TASK", "STATUS", "TITLE"], rows.collect());
        Ok(())
    }
}
