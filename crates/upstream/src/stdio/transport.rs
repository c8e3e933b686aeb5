//! MCP over the standard input and output of a process, one message per line.

use std::{collections::HashMap, future, io, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use mcp::Tap;
use rmcp::{
    RoleClient,
    model::{
        ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId, ServerJsonRpcMessage,
        ServerNotification,
    },
};
use serde::{Deserialize, de::IgnoredAny};
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, ChildStdout},
    sync::Mutex,
    time::timeout,
};
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    sync::CancellationToken,
};
use tracing::debug;

use super::{ExitReason, child::Child};

/// How long a process may take to exit after the end of its input, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);

/// The requests whose responses need special parsing.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Call,
    List,
}

pub(crate) struct Transport {
    child: Child,
    lines: FramedRead<ChildStdout, LinesCodec>,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    /// The requests of these kinds that have no response yet.
    pending: HashMap<RequestId, Kind>,
    tap: Arc<dyn Tap>,
    exit_reason: ExitReason,
    /// Cancelled when a write failed, after which the process cannot be used any more.
    stdin_broken: CancellationToken,
}

impl Transport {
    pub(super) fn new(
        child: Child,
        stdin: ChildStdin,
        stdout: ChildStdout,
        max_line: usize,
        tap: Arc<dyn Tap>,
        exit_reason: ExitReason,
    ) -> Self {
        let lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(max_line));
        let stdin = Arc::new(Mutex::new(Some(stdin)));
        let (pending, stdin_broken) = (HashMap::new(), CancellationToken::new());
        Self { child, lines, stdin, pending, tap, exit_reason, stdin_broken }
    }

    /// Parses a line and returns the message for rmcp. Progress goes to the tap; log messages are dropped.
    fn read(&mut self, line: &str) -> Option<ServerJsonRpcMessage> {
        let line = line.trim();
        if line.is_empty() {
            return None;
        }
        let read = match self.kind(line) {
            Some(Kind::Call) => mcp::parse_call_response(line.as_bytes()),
            Some(Kind::List) => mcp::parse_list_response(line.as_bytes()),
            None => serde_json::from_str(line),
        };
        let message = match read {
            Ok(message) => message,
            Err(error) => {
                debug!(%error, "Upstream wrote a line that is not a JSON-RPC message; ignored.");
                return None;
            }
        };
        if let ServerJsonRpcMessage::Notification(notification) = &message {
            match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.tap.progress(progress.params.clone());
                    return None;
                }
                ServerNotification::LoggingMessageNotification(_) => return None,
                _ => {}
            }
        }
        Some(message)
    }

    /// Returns the kind of the request that a line responds to, if that request is pending.
    fn kind(&mut self, line: &str) -> Option<Kind> {
        #[derive(Deserialize)]
        struct Head {
            id: RequestId,
            method: Option<IgnoredAny>,
        }
        match serde_json::from_str(line) {
            Ok(Head { id, method: None }) => self.pending.remove(&id),
            _ => None,
        }
    }

    /// Records a request as pending, or removes it if this message cancels it.
    fn track(&mut self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let kind = match request.request {
                    ClientRequest::CallToolRequest(_) => Kind::Call,
                    ClientRequest::ListToolsRequest(_) => Kind::List,
                    _ => return,
                };
                self.pending.insert(request.id.clone(), kind);
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    cancelled.params.request_id.as_ref().map(|id| self.pending.remove(id));
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
    }

    async fn drain_stdout(&mut self) {
        while let Some(Ok(_)) = self.lines.next().await {}
    }
}

impl rmcp::transport::Transport<RoleClient> for Transport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.track(&message);
        let (stdin, stdin_broken) = (self.stdin.clone(), self.stdin_broken.clone());
        let mut line = match serde_json::to_vec(&message) {
            Ok(line) => line,
            Err(error) => return future::ready(Err(error.into())).left_future(),
        };
        line.push(b'\n');
        let writing = async move {
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            if let Err(error) = stdin.write_all(&line).await {
                // Not returned as an error: the exit reason says more, and the process may have read part of
                // it.
                debug!(%error, "Upstream process closed its standard input.");
                stdin_broken.cancel();
            }
            Ok(())
        };
        writing.right_future()
    }

    /// Cancel-safe: an incomplete line stays in the buffer, and the end of the stream is detected again.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let next = tokio::select! {
                biased;
                // Cancel-safe: a line not yet complete stays in the buffer.
                next = self.lines.next() => next,
                // Cancel-safe per docs on `cancelled()`.
                () = self.stdin_broken.cancelled() => None,
            };
            match next {
                Some(Ok(line)) => {
                    if let Some(message) = self.read(&line) {
                        return Some(message);
                    }
                    continue;
                }
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    let limit = self.lines.decoder().max_length();
                    self.exit_reason.set(format!("it wrote a line of more than {limit} bytes"));
                }
                Some(Err(LinesCodecError::Io(error))) => {
                    self.exit_reason.set(format!("reading its output: {error}"))
                }
                None => {}
            }
            let how = self.child.kill_and_wait().await;
            self.exit_reason.set(how);
            return None;
        }
    }

    /// Ends the process as MCP specifies: closes its input, then sends SIGTERM, then SIGKILL.
    async fn close(&mut self) -> Result<(), io::Error> {
        if self.child.has_ended() {
            return Ok(());
        }
        // A blocked write holds the lock. The process is then not reading its input, so it is terminated at
        // once.
        let closed = self.stdin.try_lock().map(|mut stdin| stdin.take()).is_ok();
        if !closed || timeout(GRACE, self.drain_stdout()).await.is_err() {
            self.child.terminate();
            // The group is killed below in any case.
            timeout(GRACE, self.drain_stdout()).await.ok();
        }
        self.child.kill_and_wait().await;
        Ok(())
    }
}
