//! What waits for a client's stream: a bounded queue, and its end.
//!
//! ```text
//!   offer ──▶ queue (EVENTS_MAX, EVENT_BYTES_MAX) ──▶ EventStream ──▶ connection
//!   end: after what waits comes a status            cut: what waits is dropped, then comes the status
//! ```
//!
//! What waits beyond [`EVENT_BYTES_FREE`] is charged to the stream's peer, of a budget of all streams' (`serve::EVENTS_PART`): clients that
//! open many streams and read none hold that much and no more. What does not fit, or finds no memory, is lost; the queue remembers since
//! when nothing has been taken from a full one ([`Outgoing::stuck`]). When the
//! answer is gone, or its queue was cut, [`Outgoing::gone`] says so, and the queue holds no memory any more, whether or not the
//! connection ever asks again.
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

/// Events that may wait for a client.
const EVENTS_MAX: usize = 4096;
/// Bytes that they may have.
const EVENT_BYTES_MAX: u64 = 8 << 20;
/// Bytes that may wait whatever others hold: a part of what every call is charged.
const EVENT_BYTES_FREE: u64 = 16 << 10;

/// An event, and its part of the bytes that may wait.
type Waiting = (pb::StreamMessageResponse, Taken);

/// Bytes of events that wait, and the memory that they are charged.
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

/// A part of the room, until this is dropped.
struct Taken {
    room: Arc<Mutex<Room>>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut room = lock(&self.room);
        let left = room.bytes - self.bytes;
        // Giving back always succeeds.
        let _ = room.set(left);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Towards a client; the client's side ends when all of them are gone.
#[derive(Clone)]
pub(crate) struct EventSender {
    events: mpsc::Sender<Waiting>,
    room: Arc<Mutex<Room>>,
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

/// A queue for a client; `charge` is of the budget of events.
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
    /// Queues what `make` makes, if there is room; nothing is made for who has none.
    pub(crate) fn offer(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let sent = self.try_send(make);
        if !sent {
            lock(&self.outgoing.stuck).get_or_insert_with(Instant::now);
        }
        sent
    }

    fn try_send(&self, make: impl FnOnce() -> pb::StreamMessageResponse) -> bool {
        let Ok(place) = self.events.try_reserve() else { return false };
        if lock(&self.room).bytes == EVENT_BYTES_MAX {
            return false;
        }
        let event = make();
        // One that is larger than all may be goes alone.
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

/// Why a stream ends whose client does not read.
pub(crate) fn not_read(why: &str) -> Status {
    status::new(Code::ResourceExhausted, format!("the stream's client does not read what it is sent: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::peer::PeerKey;

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
        // What is free, and no more.
        assert!(more.iter().all(|(sender, _)| fill(sender) == 1));
        assert!(budget.used() <= budget.per_peer());
        // What is taken makes room.
        let waker = std::task::Waker::noop();
        assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(waker)).is_ready());
        assert_eq!(fill(&first), 1);
        let (other, other_stream) = queue(budget.open(PeerKey::User(2)));
        assert!(fill(&other) > 50, "another peer has room");
        drop((stream, more, first, other, other_stream));
        assert_eq!(budget.used(), 0);
    }
}
