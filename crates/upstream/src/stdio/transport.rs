//! MCP on the standard input and output of a process: one message to a line.

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
    task::JoinSet,
    time::timeout,
};
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    sync::CancellationToken,
};
use tracing::debug;

use super::{Ending, child::Child};

/// How long a process has to leave once its input ended, and again once it was asked.
const GRACE: Duration = Duration::from_secs(1);

/// Requests whose answers are read in a way of their own.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Call,
    List,
}

pub(crate) struct Transport {
    child: Child,
    lines: FramedRead<ChildStdout, LinesCodec>,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    /// What was asked and is not answered yet.
    asked: HashMap<RequestId, Kind>,
    tap: Arc<dyn Tap>,
    ending: Ending,
    /// A write failed: whatever still runs cannot be spoken to.
    deaf: CancellationToken,
    /// Reads what the process complains about.
    complaints: JoinSet<()>,
}

impl Drop for Transport {
    fn drop(&mut self) {
        // The last words of a process that dies say why. It is read to their end, which comes with the process.
        self.complaints.detach_all();
    }
}

impl Transport {
    pub(super) fn new(
        child: Child,
        stdin: ChildStdin,
        stdout: ChildStdout,
        max_line: usize,
        tap: Arc<dyn Tap>,
        ending: Ending,
        complaints: JoinSet<()>,
    ) -> Self {
        let lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(max_line));
        let stdin = Arc::new(Mutex::new(Some(stdin)));
        let (asked, deaf) = (HashMap::new(), CancellationToken::new());
        Self { child, lines, stdin, asked, tap, ending, deaf, complaints }
    }

    /// What rmcp has to know of a line. Progress goes to the tap, logs go nowhere.
    fn read(&mut self, line: &str) -> Option<ServerJsonRpcMessage> {
        let line = line.trim();
        if line.is_empty() {
            return None;
        }
        let read = match self.kind(line) {
            Some(Kind::Call) => mcp::read_call(line.as_bytes()),
            Some(Kind::List) => mcp::read_list(line.as_bytes()),
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

    /// What a line answers, if it is an answer to something that matters here.
    fn kind(&mut self, line: &str) -> Option<Kind> {
        #[derive(Deserialize)]
        struct Head {
            id: RequestId,
            method: Option<IgnoredAny>,
        }
        match serde_json::from_str(line) {
            Ok(Head { id, method: None }) => self.asked.remove(&id),
            _ => None,
        }
    }

    fn note(&mut self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let kind = match request.request {
                    ClientRequest::CallToolRequest(_) => Kind::Call,
                    ClientRequest::ListToolsRequest(_) => Kind::List,
                    _ => return,
                };
                self.asked.insert(request.id.clone(), kind);
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    cancelled.params.request_id.as_ref().map(|id| self.asked.remove(id));
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
    }

    async fn until_silent(&mut self) {
        while let Some(Ok(_)) = self.lines.next().await {}
    }
}

impl rmcp::transport::Transport<RoleClient> for Transport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.note(&message);
        let (stdin, deaf) = (self.stdin.clone(), self.deaf.clone());
        let mut line = match serde_json::to_vec(&message) {
            Ok(line) => line,
            Err(error) => return future::ready(Err(error.into())).left_future(),
        };
        line.push(b'\n');
        let writing = async move {
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            if let Err(error) = stdin.write_all(&line).await {
                // How the process ended says more, and whether it read any of this nobody knows.
                debug!(%error, "Upstream process closed its standard input.");
                deaf.cancel();
            }
            Ok(())
        };
        writing.right_future()
    }

    /// Cancel-safe: what was read of a line stays in the buffer, and an end is found again.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let next = tokio::select! {
                biased;
                // Cancel-safe: a line not yet complete stays in the buffer.
                next = self.lines.next() => next,
                // Cancel-safe per docs on `cancelled()`.
                () = self.deaf.cancelled() => None,
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
                    self.ending.is(format!("it wrote a line of more than {limit} bytes"));
                }
                Some(Err(LinesCodecError::Io(error))) => {
                    self.ending.is(format!("reading its output: {error}"))
                }
                None => {}
            }
            let how = self.child.end().await;
            self.ending.is(how);
            return None;
        }
    }

    /// As the protocol has it: end of input, then a request to leave, then no more requests.
    async fn close(&mut self) -> Result<(), io::Error> {
        if self.child.is_over() {
            return Ok(());
        }
        // A write that hangs keeps it; then the process is not reading, and is asked at once.
        let closed = self.stdin.try_lock().map(|mut stdin| stdin.take()).is_ok();
        if !closed || timeout(GRACE, self.until_silent()).await.is_err() {
            self.child.ask();
            // Whatever comes of it, what is left is killed.
            timeout(GRACE, self.until_silent()).await.ok();
        }
        self.child.end().await;
        Ok(())
    }
}
