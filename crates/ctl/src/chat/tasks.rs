//! The tasks in the gateway's store, read over MCP.

use std::{path::Path, time::Duration};

use contract::{ToolContract, task};
use mcp::{Call, Client, Options};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use subjects::{HandoffId, ScopeId};

use crate::{error::Error, print};

const MAX_TASKS_SHOWN: u64 = 50;

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
            fast_path: true,
            profile: None,
        });
        Ok(Self(client.map_err(Error::tools)?))
    }

    /// Calls the gateway and returns whether it accepts the token.
    pub(crate) async fn check_token(&self) -> bool {
        self.0.tools().await.is_ok()
    }

    /// Calls a tool. With an idempotency key, repeated calls have one effect.
    pub(crate) async fn call<T>(&self, input: &T, key: Option<&str>) -> Result<T::Output, Error>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        let result = self.call_named(T::NAME, contract::arguments(input), key).await?;
        let invalid = |error| Error::Tool(T::NAME.to_owned(), format!("its result is not valid: {error}"));
        serde_json::from_value(result).map_err(invalid)
    }

    /// Calls a tool by its name and returns its structured result.
    pub(crate) async fn call_named(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        key: Option<&str>,
    ) -> Result<Value, Error> {
        let call = Call { name, arguments, idempotency_key: key, traceparent: None, lease: None };
        let reply = self.0.call(call).await.map_err(Error::tools)?;
        if reply.is_error {
            return Err(Error::Tool(name.to_owned(), print::sanitize(&reply.text)));
        }
        Ok(reply.structured.unwrap_or_default())
    }

    pub(crate) async fn list(&self, project: Option<&ScopeId>) -> Result<Vec<task::ListItem>, Error> {
        let (project_id, limit) = (project.cloned(), Some(MAX_TASKS_SHOWN));
        Ok(self.call(&task::List { project_id, limit, ..task::List::default() }, None).await?.items)
    }

    /// Returns the id of the task that a person names by its id or its name. What looks like an id and is
    /// not in the list is taken as it is: the list is not complete.
    pub(crate) async fn resolve(&self, project: Option<&ScopeId>, named: ScopeId) -> Result<ScopeId, Error> {
        let tasks = self.list(project).await?;
        let found = tasks.iter().find(|task| task.task_id == named.as_str() || task.name == named.as_str());
        match found {
            Some(task) => task.task_id.parse().map_err(Error::nats),
            None if named.as_str().parse::<HandoffId>().is_ok() => Ok(named),
            None => Err(Error::NoSuchTask(named)),
        }
    }

    pub(crate) async fn show(&self, project: Option<&ScopeId>) -> Result<(), Error> {
        let tasks = self.list(project).await?;
        if tasks.is_empty() {
            print::note("there are no tasks yet; type “create a task …” or /plan GOAL");
            return Ok(());
        }
        let row = |task: task::ListItem| {
            let shown = [&*task.name, task.status.as_str(), &*task.title, &*task.task_id];
            shown.map(print::sanitize).into()
        };
        let rows = tasks.into_iter().map(row);
        print::table(&["TASK", "STATUS", "TITLE", "ID"], rows.collect());
        Ok(())
    }
}
