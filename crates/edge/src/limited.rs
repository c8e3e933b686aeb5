//! A listener that accepts a limited number of connections, so that one job cannot use up those of its node.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Accepts a connection when fewer than the allowed number are open.
#[derive(Debug)]
pub(crate) struct Limited<L> {
    listener: L,
    slots: Arc<Semaphore>,
}

impl<L> Limited<L> {
    pub(crate) fn new(listener: L, connections: usize) -> Self {
        Self { listener, slots: Arc::new(Semaphore::new(connections)) }
    }
}

impl<L: Listener> Listener for Limited<L> {
    type Io = LimitedIo<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, L::Addr) {
        // The semaphore is never closed.
        let permit = self.slots.clone().acquire_owned().await.ok();
        let (io, address) = self.listener.accept().await;
        (LimitedIo { io, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<L::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that holds its slot.
#[derive(Debug)]
pub(crate) struct LimitedIo<I> {
    io: I,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<I: AsyncRead + Unpin> AsyncRead for LimitedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for LimitedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
