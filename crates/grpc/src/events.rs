//! The bounded queue of events for a client's stream, and the stream's end.
//!
//! ```text
//!   offer ──▶ queue (EVENTS_MAX, EVENT_BYTES_MAX) ──▶ EventStream ──▶ connection
//!   end: queued events, then a status            cut: queued events are dropped, then a status
//! ```
//!
//! Queued bytes beyond [`EVENT_BYTES_FREE`] are charged to the stream's peer, in a budget shared by all streams
//! (`serve::EVENTS_PART`), which limits clients that open many streams and read none. An event that does not fit the
//! limits is lost. The queue remembers since when it has been full and unread ([`Outgoing::stuck`]). [`Outgoing::gone`]
//! signals that the answer was dropped or its queue was cut; the queue then holds no memory, even if the connection
//! never polls it again.
//!
//! Threads: any. Tests: `tests/load.rs`, `tests/limits.rs`.

use crate::budget::Charge;
use crate::status;
use messages::p4::v1 as pb;
use prost::Message;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio_stream::Stream;
use tonic::{Code, Status};

/// Limit on the events queued for a client.
const EVENTS_MAX: usize = 4096;
/// Limit on their bytes.
const EVENT_BYTES_MAX: u64 = 8 << 20;
/// Bytes that may be queued without a charge to the budget; every call's minimum charge covers them.
const EVENT_BYTES_FREE: u64 = 16 << 10;

/// A queued event, and its share of the queue's bytes.
type Waiting = (pb::StreamMessageResponse, Taken);

/// The queue's bytes, and their charge.
struct Room {
    bytes: u64,
    charge: Charge,
}

impl Room {
    fn set(&mut self, bytes: u64) -> bool {
        let fits = bytes <= EVENT_BYTES_MAX && self.charge.set(bytes.saturating_sub(EVENT_BYTES_FREE));
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

/// A share of the queue's bytes; released on drop.
struct Taken {
    room: Arc<Mutex<Room>>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut room = lock(&self.room);
        let left = room.bytes - self.bytes;
        // Releasing always succeeds.
        let _ = room.set(left);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sending side of a queue. The client's stream ends when all of its senders are dropped.
#[derive(Clone)]
pub(crate) struct EventSender {
    events: mpsc::Sender<Waiting>,
    room: Arc<Mutex<Room>>,
    outgoing: Arc<Outgoing>,
}

/// The queue, as seen by those that end it.
pub(crate) struct Outgoing {
    queue: Mutex<mpsc::Receiver<Waiting>>,
    /// The status with which the stream ends.
    last: Mutex<Option<Status>>,
    /// Since when the queue has been full and unread.
    stuck: Mutex<Option<Instant>>,
    gone: Notify,
}

/// The receiving side of a queue: the body of the client's stream.
pub(crate) struct EventStream(Arc<Outgoing>);

/// Creates a queue for a client; `charge` belongs to the budget of events.
pub(crate) fn queue(charge: Charge) -> (EventSender, EventStream) {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let outgoing = Arc::new(Outgoing {
        queue: Mutex::new(receiver),
        last: Mutex::default(),
        stuck: Mutex::default(),
        gone: Notify::new(),
    });
    let room = Arc::new(Mutex::new(Room { bytes: 0, charge }));
    (EventSender { events, room, outgoing: Arc::clone(&outgoing) }, EventStream(outgoing))
}

impl EventSender {
    /// Queues the event that `make` returns if there is room; otherwise `make` is not called. Returns whether it was
    /// queued.
    pub(crate) fn offer(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let sent = self.try_send(make);
        if !sent {
            lock(&self.outgoing.stuck).get_or_insert_with(Instant::now);
        }
        sent
    }

    /// As [`EventSender::offer`], for an event that is costly to make: after one that did not fit, none is made until
    /// the client reads.
    pub(crate) fn offer_list(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let is_full = lock(&self.outgoing.stuck).is_some() && lock(&self.room).bytes > 0;
        !is_full && self.offer(make)
    }

    fn try_send(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let Ok(place) = self.events.try_reserve() else { return false };
        if lock(&self.room).bytes == EVENT_BYTES_MAX {
            return false;
        }
        let event = make();
        // An event larger than the limit is queued alone.
        let bytes = (event.encoded_len() as u64).min(EVENT_BYTES_MAX);
        let mut room = lock(&self.room);
        let all = room.bytes + bytes;
        if !room.set(all) {
            return false;
        }
        drop(room);
        place.send((event, Taken { room: Arc::clone(&self.room), bytes }));
        true
    }

    pub(crate) fn outgoing(&self) -> &Arc<Outgoing> {
        &self.outgoing
    }
}

impl Outgoing {
    /// Sets the status with which the stream ends, after the queued events and when no sender is left.
    pub(crate) fn end(&self, status: Status) {
        lock(&self.last).get_or_insert(status);
    }

    /// Drops the queued events and ends the stream with a status.
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

    /// How long the queue has been full and unread.
    pub(crate) fn stuck(&self) -> Duration {
        lock(&self.stuck).map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Resolves when nobody will read the queue any more.
    pub(crate) async fn gone(&self) {
        self.gone.notified().await;
    }
}

impl Stream for EventStream {
    type Item = Result<pb::StreamMessageResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // An event's bytes are released when the connection takes it.
        if let Some((event, _taken)) = ready!(lock(&self.0.queue).poll_recv(cx)) {
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

/// The status of a stream that ends because its client does not read.
pub(crate) fn not_read(why: &str) -> Status {
    status::new(Code::ResourceExhausted, format!("the stream's client does not read what it is sent: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::peer::PeerKey;

    #[test]
    fn lists_are_not_made_for_a_queue_that_is_full() {
        let budget = Budget::new(1 << 30);
        let (sender, mut stream) = queue(budget.open(PeerKey::User(1)));
        let made = std::cell::Cell::new(0);
        let list = || {
            made.set(made.get() + 1);
            let packet = pb::PacketIn { payload: vec![7; 100_000], ..Default::default() };
            pb::StreamMessageResponse { update: Some(pb::stream_message_response::Update::Packet(packet)) }
        };
        while sender.offer_list(list) {}
        let before = made.get();
        assert!((0..100).all(|_| !sender.offer_list(list)));
        assert_eq!(made.get(), before, "none was made to be dropped");
        let waker = std::task::Waker::noop();
        assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(waker)).is_ready());
        assert!(sender.offer_list(list), "there is room again");
    }

    #[test]
    fn streams_that_nobody_reads_share_what_their_peer_may_have() {
        let budget = Budget::new(4 << 20);
        let event = || {
            let packet = pb::PacketIn { payload: vec![7; 10_000], ..Default::default() };
            pb::StreamMessageResponse { update: Some(pb::stream_message_response::Update::Packet(packet)) }
        };
        let fill =
            |sender: &EventSender| std::iter::repeat_with(|| sender.offer(event)).take_while(|sent| *sent).count();
        let (first, mut stream) = queue(budget.open(PeerKey::User(1)));
        assert!((200..220).contains(&fill(&first)), "half of the budget");
        let more: Vec<_> = (0..20).map(|_| queue(budget.open(PeerKey::User(1)))).collect();
        // What is not charged fits, and no more.
        assert!(more.iter().all(|(sender, _)| fill(sender) == 1));
        assert!(budget.used() <= budget.per_peer());
        // Reading an event makes room.
        let waker = std::task::Waker::noop();
        assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(waker)).is_ready());
        assert_eq!(fill(&first), 1);
        let (other, other_stream) = queue(budget.open(PeerKey::User(2)));
        assert!(fill(&other) > 50, "another peer has room");
        drop((stream, more, first, other, other_stream));
        assert_eq!(budget.used(), 0);
    }
}
