//! What waits for a client's stream: a bounded queue, and its end.
//!
//! ```text
//!   offer ──▶ queue (EVENTS_MAX, EVENT_BYTES_MAX) ──▶ EventStream ──▶ connection
//!   end: after what waits comes a status            cut: what waits is dropped, then comes the status
//! ```
//!
//! What does not fit is lost; the queue remembers since when nothing has been taken from a full one ([`Outgoing::stuck`]). When the
//! answer is gone, or its queue was cut, [`Outgoing::gone`] says so, and the queue holds no memory any more, whether or not the
//! connection ever asks again.
//!
//! Threads: any. Tests: `tests/load.rs`, `tests/limits.rs`.

use crate::proto::p4::v1 as pb;
use prost::Message;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::Stream;
use tonic::Status;

/// Events that may wait for a client.
const EVENTS_MAX: usize = 4096;
/// Bytes that they may have.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// An event, and its part of the bytes that may wait.
type Waiting = (pb::StreamMessageResponse, OwnedSemaphorePermit);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Towards a client; the client's side ends when all of them are gone.
#[derive(Clone)]
pub(crate) struct EventSender {
    events: mpsc::Sender<Waiting>,
    bytes: Arc<Semaphore>,
    outgoing: Arc<Outgoing>,
}

/// The queue as those see it who end it.
pub(crate) struct Outgoing {
    queue: Mutex<mpsc::Receiver<Waiting>>,
    /// What the client is told at the end.
    last: Mutex<Option<Status>>,
    /// Since when nothing has been taken, though it is full.
    stuck: Mutex<Option<Instant>>,
    gone: Notify,
}

/// The client's side.
pub(crate) struct EventStream(Arc<Outgoing>);

/// A queue for a client.
pub(crate) fn queue() -> (EventSender, EventStream) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let outgoing = Arc::new(Outgoing {
        queue: Mutex::new(receiver),
        last: Mutex::default(),
        stuck: Mutex::default(),
        gone: Notify::new(),
    });
    let bytes = Arc::new(Semaphore::new(EVENT_BYTES_MAX));
    (EventSender { events, bytes, outgoing: Arc::clone(&outgoing) }, EventStream(outgoing))
}

impl EventSender {
    /// Queues what `make` makes, if there is room; nothing is made for who has none.
    pub(crate) fn offer(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let sent = self.try_send(make);
        if !sent {
            lock(&self.outgoing.stuck).get_or_insert_with(Instant::now);
        }
        sent
    }

    fn try_send(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let Ok(room) = self.events.try_reserve() else { return false };
        if self.bytes.available_permits() == 0 {
            return false;
        }
        let event = make();
        // One that is larger than all may be goes alone.
        let bytes = event.encoded_len().min(EVENT_BYTES_MAX) as u32;
        let Ok(permit) = Arc::clone(&self.bytes).try_acquire_many_owned(bytes) else { return false };
        room.send((event, permit));
        true
    }

    pub(crate) fn outgoing(&self) -> &Arc<Outgoing> {
        &self.outgoing
    }
}

impl Outgoing {
    /// What the client is told when it has taken what waits, and no sender is left.
    pub(crate) fn end(&self, status: Status) {
        lock(&self.last).get_or_insert(status);
    }

    /// Drops what waits; the client is told why.
    pub(crate) fn cut(&self, status: Status) {
        self.end(status);
        self.clear();
    }

    fn clear(&self) {
        let mut queue = lock(&self.queue);
        queue.close();
        while queue.try_recv().is_ok() {}
        drop(queue);
        self.gone.notify_one();
    }

    /// How long nothing has been taken of a full queue.
    pub(crate) fn stuck(&self) -> Duration {
        lock(&self.stuck).map(|since| since.elapsed()).unwrap_or_default()
    }

    /// When nobody will take anything any more.
    pub(crate) async fn gone(&self) {
        self.gone.notified().await;
    }
}

impl Stream for EventStream {
    type Item = Result<pb::StreamMessageResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // An event's bytes are free again when the connection takes it.
        if let Some((event, _bytes)) = ready!(lock(&self.0.queue).poll_recv(cx)) {
            *lock(&self.0.stuck) = None;
            return Poll::Ready(Some(Ok(event)));
        }
        Poll::Ready(lock(&self.0.last).take().map(Err))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.0.clear();
    }
}
