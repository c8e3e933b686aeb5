//! One call on one connection.

use std::{io, pin::pin};

use mcp::{Again, Fate};
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
    events::Watch,
    link::{Link, Live},
};

/// What the protocol itself says in `_meta`. It is between the server and us: from a caller it would be a lie.
const RESERVED: &str = "io.modelcontextprotocol/";
const PROGRESS_TOKEN: &str = "progressToken";

pub(crate) fn request(
    name: &str,
    arguments: Map<String, Value>,
    mut meta: Map<String, Value>,
) -> CallToolRequestParams {
    meta.retain(|key, _| !key.starts_with(RESERVED) && key != PROGRESS_TOKEN);
    let mut request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
    request.meta = Some(RequestMetaObject(MetaObject(meta)));
    request
}

/// What a server answered to a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Result(CallToolResult),
    InputRequired,
    /// Nothing that answers a call.
    Other,
}

/// Dropped before the answer, it tells the server that nobody waits for it any more.
pub(crate) async fn send(
    link: &Link,
    live: &Live,
    request: &CallToolRequestParams,
    progress: Option<mpsc::Sender<Progress>>,
) -> Result<Answer, mcp::Failure> {
    let result = match link.direct(live, &request.name) {
        Some(direct) => {
            let token = ProgressToken(RequestId::Number(direct.id));
            let _watch: Option<Watch> = progress.map(|to| link.events.watch(token, to));
            // Pinned where it is: by value it would be moved, and kept, once for each that waits for it.
            let calling = pin!(direct.call(request));
            link.until_closed(calling).await?
        }
        None => Box::pin(by_rmcp(link, live, request.clone(), progress)).await?,
    };
    Ok(match result {
        ServerResult::CallToolResult(result) => Answer::Result(result),
        ServerResult::InputRequiredResult(_) => Answer::InputRequired,
        _ => Answer::Other,
    })
}

async fn by_rmcp(
    link: &Link,
    live: &Live,
    request: CallToolRequestParams,
    progress: Option<mpsc::Sender<Progress>>,
) -> Result<ServerResult, mcp::Failure> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
    let sent = live.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
    // The connection was closed before the request was on its way.
    let handle = sent.map_err(|error| mcp::Failure {
        fate: Fate::NotRun,
        again: Again::OnNewConnection,
        ..mcp::Failure::from(error)
    })?;
    let _watch: Option<Watch> = progress.map(|to| link.events.watch(handle.progress_token.clone(), to));
    let mut pending = Pending { handle: Some(handle), tasks: &link.tasks };
    Ok(pending.answer().await?)
}

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
        // Without a runtime everything ends anyway.
        if let (Some(handle), Ok(runtime)) = (self.handle.take(), runtime::Handle::try_current()) {
            let give_up = handle.cancel(Some("the caller is gone".to_owned()));
            self.tasks.spawn_on(give_up, &runtime);
        }
    }
}

/// Whether a result, written as JSON, has at most this many bytes.
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
