//! Measures how long the head of a request takes to arrive, from its first byte.

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

/// Time since the first byte of the current request head, for one connection.
#[derive(Debug, Default)]
pub(super) struct HeadTimer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Requests in flight. Bytes that arrive meanwhile belong to a body, or to a head that has to wait.
    in_flight: usize,
    began: Option<Instant>,
}

impl HeadTimer {
    pub(super) fn is_older_than(&self, limit: Duration) -> bool {
        self.state().began.is_some_and(|began| began.elapsed() > limit)
    }

    /// Stops the timer because the head is complete. The request is in flight until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.state();
        state.in_flight += 1;
        state.began = None;
        drop(state);
        RequestGuard(self.clone())
    }

    /// Starts the timer if the received bytes are the first of a head.
    fn received(&self) {
        let mut state = self.state();
        if state.in_flight == 0 && state.began.is_none() {
            state.began = Some(Instant::now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a request in flight.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<HeadTimer>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight = state.in_flight.saturating_sub(1);
    }
}

/// Keeps a request in flight until its answer is sent completely.
pub(super) fn guard_body(body: Body, guard: RequestGuard) -> GuardedBody {
    GuardedBody { body, guard: Some(guard) }
}

/// An answer's body that drops its guard at the end.
#[derive(Debug)]
pub(super) struct GuardedBody {
    body: Body,
    guard: Option<RequestGuard>,
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.guard = None;
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

/// A TCP stream that reports received bytes to the timer.
#[derive(Debug)]
pub(super) struct WatchedStream {
    stream: TcpStream,
    head: Arc<HeadTimer>,
}

impl WatchedStream {
    pub(super) fn new(stream: TcpStream, head: Arc<HeadTimer>) -> Self {
        Self { stream, head }
    }
}

impl AsyncRead for WatchedStream {
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

impl AsyncWrite for WatchedStream {
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
