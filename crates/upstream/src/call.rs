//! Sends one call on one connection.

use std::{io, pin::pin};

use mcp::{Fate, Retry};
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, MetaObject, ProgressToken,
        RequestId, RequestMetaObject, ServerResult,
    },
    service::{PeerRequestOptions, RequestHandle, ServiceError},
};
use serde_json::{Map, Value};
use tokio::{runtime, sync::mpsc};
use tokio_util::task::TaskTracker;

use crate::{
    Progress,
    events::ProgressGuard,
    link::{Link, LiveConnection},
};

/// The prefix of `_meta` keys that the protocol reserves. They concern this connection, so a caller's values
/// are removed.
const RESERVED_PREFIX: &str = "io.modelcontextprotocol/";
const PROGRESS_TOKEN: &str = "progressToken";

pub(crate) fn request(
    name: &str,
    arguments: Map<String, Value>,
    mut meta: Map<String, Value>,
) -> CallToolRequestParams {
    meta.retain(|key, _| !key.starts_with(RESERVED_PREFIX) && key != PROGRESS_TOKEN);
    let mut request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
    request.meta = Some(RequestMetaObject(MetaObject(meta)));
    request
}

/// The response to a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Result(CallToolResult),
    InputRequired,
    /// A result of another type.
    Other,
}

/// Sends a call and waits for the response. Dropping the future cancels the call on the upstream.
pub(crate) async fn send(
    link: &Link,
    live: &LiveConnection,
    request: &CallToolRequestParams,
    progress: Option<mpsc::Sender<Progress>>,
) -> Result<Answer, mcp::Failure> {
    let result = match link.direct(live, &request.name) {
        Some(direct) => {
            let token = ProgressToken(RequestId::Number(direct.id));
            let _watch: Option<ProgressGuard> = progress.map(|to| link.events.watch(token, to));
            // Pinned in place: passed by value, each wrapping future would hold its own copy.
            let calling = pin!(direct.call(request));
            link.until_closed(calling).await?
        }
        None => Box::pin(send_via_rmcp(link, live, request.clone(), progress)).await?,
    };
    Ok(match result {
        ServerResult::CallToolResult(result) => Answer::Result(result),
        ServerResult::InputRequiredResult(_) => Answer::InputRequired,
        _ => Answer::Other,
    })
}

async fn send_via_rmcp(
    link: &Link,
    live: &LiveConnection,
    request: CallToolRequestParams,
    progress: Option<mpsc::Sender<Progress>>,
) -> Result<ServerResult, mcp::Failure> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
    let sent = live.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
    // The connection was closed before the request was sent.
    let handle = sent.map_err(|error| mcp::Failure {
        fate: Fate::NotRun,
        retry: Retry::OnNewConnection,
        ..mcp::Failure::from(error)
    })?;
    let _watch: Option<ProgressGuard> =
        progress.map(|to| link.events.watch(handle.progress_token.clone(), to));
    let mut pending = Pending { handle: Some(handle), tasks: &link.tasks };
    Ok(pending.answer().await?)
}

/// A request without a response yet. Sends a cancellation when it is dropped.
struct Pending<'a> {
    handle: Option<RequestHandle<RoleClient>>,
    tasks: &'a TaskTracker,
}

impl Pending<'_> {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = self.handle.as_mut() else { return Err(ServiceError::TransportClosed) };
        let answer = (&mut handle.rx).await;
        self.handle = None;
        answer.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // Without a runtime the connection has ended as well.
        if let (Some(handle), Ok(runtime)) = (self.handle.take(), runtime::Handle::try_current()) {
            let give_up = handle.cancel(Some("the caller is gone".to_owned()));
            self.tasks.spawn_on(give_up, &runtime);
        }
    }
}

/// Returns whether the result, serialized as JSON, has at most `max_bytes` bytes.
pub(crate) fn fits(result: &CallToolResult, max_bytes: usize) -> bool {
    struct Left(usize);

    impl io::Write for Left {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Left(max_bytes), result).is_ok()
}
