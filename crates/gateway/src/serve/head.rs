use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// When the head of the next request began to come.
#[derive(Debug, Default)]
pub(super) struct Head(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Requests that are being answered. What comes meanwhile is a body, or waits.
    answering: usize,
    began: Option<Instant>,
}

impl Head {
    pub(super) fn is_older_than(&self, limit: Duration) -> bool {
        self.state().began.is_some_and(|began| began.elapsed() > limit)
    }

    /// The head is complete.
    pub(super) fn begin_request(self: &Arc<Self>) -> Answering {
        let mut state = self.state();
        state.answering += 1;
        state.began = None;
        drop(state);
        Answering(self.clone())
    }

    fn received(&self) {
        let mut state = self.state();
        if state.answering == 0 && state.began.is_none() {
            state.began = Some(Instant::now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request is being answered for as long as this is there.
#[derive(Debug)]
pub(super) struct Answering(Arc<Head>);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.answering = state.answering.saturating_sub(1);
    }
}

/// Lets a request count as being answered until the last of its answer is sent.
pub(super) fn until_sent(body: Body, answering: Answering) -> Sent {
    Sent { body, answering: Some(answering) }
}

#[derive(Debug)]
pub(super) struct Sent {
    body: Body,
    answering: Option<Answering>,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.answering = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that tells when something came.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    head: Arc<Head>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, head: Arc<Head>) -> Self {
        Self { stream, head }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.head.received();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
