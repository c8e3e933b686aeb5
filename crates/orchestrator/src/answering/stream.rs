//! An answer that is given as a stream of server-sent events.
//!
//! Text that a model writes may turn out not to be the answer: its turn ends in tool calls, a broken try or a
//! dead worker makes it start over, or the manager objects to it. `chat.drafts` decides whether it is sent as
//! content all the same (`live_text`), or as reasoning, which is not part of the answer; then what a client
//! received as content is the answer, always and exactly. Tool calls are always reasoning.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use contract::thread::TurnAnswer;
use crash::reach;
use futures_util::{FutureExt, stream::unfold};
use subjects::HandoffId;
use tokio::{select, sync::OwnedSemaphorePermit, time::sleep};

use super::{
    StreamWriter, Surface,
    events::{COMMENT, event_stream},
    failure::{failure, stopping},
    progress::{Progressing, Shown},
};
use crate::{
    crash_points::Point,
    error::ApiError,
    metrics::OpenStream,
    state::App,
    turns::{BegunTurn, Delivered, Expected, Live, RequestWait, Update},
};

/// The state of one stream. Dropped when the client is gone.
struct AnswerStream<W> {
    app: Arc<App>,
    writer: W,
    id: HandoffId,
    /// Where the answer can be fetched.
    path: String,
    phase: Phase,
    live: Option<Live>,
    progress: Progressing,
    request_wait: RequestWait,
    marks_delivery: bool,
    _slot: OwnedSemaphorePermit,
    _open: OpenStream,
}

enum Phase {
    /// Nothing was sent.
    Opening(Wait),
    Waiting(Box<Expected>),
    /// The answer was sent and is not stored in its thread yet.
    Storing(Box<Delivered>),
    /// All of the answer was sent.
    Delivered,
    Ended,
}

enum Wait {
    Expected(Box<Expected>),
    Answered(Box<TurnAnswer>),
}

enum Incoming {
    Answer(Delivered),
    Update(Update),
    Silence,
    Closing,
}

/// Returns the stream of a turn's answer.
pub(super) fn respond(
    app: &Arc<App>,
    begun: BegunTurn,
    surface: impl Surface,
    slot: OwnedSemaphorePermit,
) -> Response {
    let BegunTurn { turn, expected, live, request_wait, marks_delivery } = begun;
    let wait = match (expected, turn.answer.clone()) {
        (Some(expected), _) => Wait::Expected(Box::new(expected)),
        (None, Some(answer)) => Wait::Answered(Box::new(answer)),
        // A turn is expected or answered.
        (None, None) => return ApiError::unavailable("starting", "Repeat the request.").into_response(),
    };
    let stream = AnswerStream {
        app: app.clone(),
        path: surface.path(turn.handoff_id),
        writer: surface.into_writer(&turn),
        id: turn.handoff_id,
        phase: Phase::Opening(wait),
        live,
        progress: Progressing::new(app.config.chat.drafts),
        request_wait,
        marks_delivery,
        _slot: slot,
        _open: app.metrics.open_stream(),
    };
    let frames = unfold(Box::new(stream), |mut stream| async move {
        let frame = stream.next_frame().await?;
        Some((Ok::<Bytes, Infallible>(frame), stream))
    });
    event_stream(Body::from_stream(frames))
}

impl<W: StreamWriter> AnswerStream<W> {
    /// Returns the next bytes; `None` at the end.
    async fn next_frame(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Opening(wait) => {
                let mut out = BytesMut::new();
                self.writer.begin(&mut out);
                match wait {
                    Wait::Expected(expected) => self.phase = Phase::Waiting(expected),
                    // It is stored already.
                    Wait::Answered(answer) => {
                        self.write_answer(&mut out, &answer);
                        self.phase = Phase::Delivered;
                    }
                }
                Some(out.freeze())
            }
            Phase::Waiting(expected) => Some(self.follow(expected).await),
            Phase::Storing(delivered) => {
                reach(Point::AnswerKnown).await;
                self.app.turns.store_delivered(self.id, &delivered).await;
                reach(Point::AnswerStored).await;
                let mut out = BytesMut::new();
                self.writer.end(&mut out, &delivered.answer);
                self.phase = Phase::Delivered;
                Some(out.freeze())
            }
            Phase::Delivered => {
                if self.marks_delivery {
                    self.app.turns.mark_delivered(self.id);
                }
                None
            }
            Phase::Ended => None,
        }
    }

    /// Waits for the answer, or for something else to send.
    async fn follow(&mut self, mut expected: Box<Expected>) -> Bytes {
        let mut out = BytesMut::new();
        loop {
            match self.listen(&mut expected).await {
                Incoming::Answer(delivered) => {
                    self.request_wait.answered();
                    self.write_what_arrived(&mut out);
                    if failure(&delivered.answer).is_none()
                        && let Some(left) = self.progress.finish(&delivered.answer.text)
                    {
                        self.writer.show(&mut out, &left);
                    }
                    self.phase = Phase::Storing(Box::new(delivered));
                    // An answer without text has no content to send first.
                    if out.is_empty() {
                        out.extend_from_slice(&COMMENT);
                    }
                    return out.freeze();
                }
                Incoming::Update(update) => {
                    let shown = self.progress.describe(update);
                    if shown.is_empty() {
                        continue;
                    }
                    shown.iter().for_each(|shown| self.writer.show(&mut out, shown));
                    self.phase = Phase::Waiting(expected);
                    return out.freeze();
                }
                Incoming::Silence => {
                    self.phase = Phase::Waiting(expected);
                    return COMMENT;
                }
                Incoming::Closing => {
                    // The work goes on, whatever the key says: it is not the client who left.
                    self.request_wait.postpone();
                    self.writer.break_off(&mut out, &stopping(&self.path));
                    return out.freeze();
                }
            }
        }
    }

    /// Writes the updates that arrived before the answer. They are older than it.
    fn write_what_arrived(&mut self, out: &mut BytesMut) {
        while let Some(update) = self.live.as_mut().and_then(|live| live.next().now_or_never()) {
            for shown in self.progress.describe(update) {
                self.writer.show(out, &shown);
            }
        }
    }

    async fn listen(&mut self, expected: &mut Expected) -> Incoming {
        let (live, keep_alive): (_, Duration) = (&mut self.live, self.app.config.chat.keep_alive);
        let update = async {
            match live {
                Some(live) => live.next().await,
                None => std::future::pending().await,
            }
        };
        select! {
            biased;
            // All are cancel-safe.
            delivered = expected.wait(&self.app.turns) => Incoming::Answer(delivered),
            update = update => Incoming::Update(update),
            () = self.app.closing.cancelled() => Incoming::Closing,
            () = sleep(keep_alive) => Incoming::Silence,
        }
    }

    /// Writes the whole of an answer that is stored.
    fn write_answer(&mut self, out: &mut BytesMut, answer: &TurnAnswer) {
        if failure(answer).is_none()
            && let Some(shown) = Shown::answer(&answer.text)
        {
            self.writer.show(out, &shown);
        }
        self.writer.end(out, answer);
    }
}
