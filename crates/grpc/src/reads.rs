//! The answer to a Read: made message by message, as fast as the client takes them.
//!
//! ```text
//!   task per read:  wait for room ──▶ lock, some entities (control::reads), unlock ──▶ encode ──▶ channel ──▶ connection
//! ```
//!
//! The channel holds [`AHEAD`] messages, and what waits in the connection is bounded by HTTP/2's windows, so a client that does
//! not read costs that much memory and no time of others; after a while ([`crate::ServeOptions::patience`]) its read ends. Whatever ends it, the control plane
//! hears of it: [`OpenRead`] closes when it is dropped.
//!
//! Of all reads that are past their first message only [`AT_ONCE`] make one at a time, in turn: however many clients read large tables, a write
//! waits behind few of them for the lock, and so does a read that one message answers.
//!
//! Tests: `tests/loopback.rs`, `tests/load.rs`.

use crate::handle::Handle;
use crate::status;
use control::reads::ReadId;
use control::{Error, Result};
use messages::convert;
use messages::p4::v1 as pb;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Entities of a message.
const CHUNK: usize = 1024;
/// Messages that wait for the connection.
const AHEAD: usize = 2;

/// Long answers that are worked on at a time.
const AT_ONCE: usize = 2;
static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

/// A reading of the control plane, open until this is dropped.
pub(crate) struct OpenRead {
    pub(crate) handle: Arc<Handle>,
    pub(crate) id: ReadId,
}

impl OpenRead {
    fn next(&self) -> Result<Vec<control::entity::Entity>> {
        self.handle.with(|control| control.read_on(self.id, CHUNK))
    }
}

impl Drop for OpenRead {
    fn drop(&mut self) {
        self.handle.with(|control| control.close_read(self.id));
    }
}

/// All messages of an answer, then what could not be read.
pub(crate) fn answer(
    read: OpenRead,
    results: Vec<Result<()>>,
    patience: Duration,
) -> impl Stream<Item = std::result::Result<pb::ReadResponse, Status>> {
    let (sender, receiver) = mpsc::channel(AHEAD + 1);
    tokio::spawn(async move {
        let read = Arc::new(read);
        // An answer must not look whole when it is not, so there is always room for the reason.
        let Ok(last) = sender.clone().reserve_owned().await else { return };
        let mut first = true;
        loop {
            // The client's pace first: nothing is made that nobody takes.
            let Ok(room) = tokio::time::timeout(patience, sender.reserve()).await else {
                let why = format!("nothing of the answer was taken for {patience:?}, so the read ends here");
                tracing::warn!("a client's read: {why}");
                last.send(Err(Status::aborted(why)));
                break;
            };
            let Ok(room) = room else { break };
            // Never closed, so there is always a turn.
            let turn = if std::mem::take(&mut first) { None } else { TURNS.acquire().await.ok() };
            let on = Arc::clone(&read);
            let entities = tokio::task::spawn_blocking(move || {
                let entities = on.next()?;
                Ok(entities.into_iter().map(convert::entity_to_proto).collect::<Vec<_>>())
            });
            let entities = entities.await.unwrap_or_else(|_| Err(Error::internal("the read's task failed")));
            drop(turn);
            match entities {
                Ok(entities) if entities.is_empty() => {
                    if let Some(status) = status::of_batch(&results, "reads") {
                        last.send(Err(status));
                    }
                    break;
                }
                Ok(entities) => room.send(Ok(pb::ReadResponse { entities })),
                Err(error) => {
                    last.send(Err(status::of_error(&error)));
                    break;
                }
            }
        }
        // Closing takes a lock.
        let _ = tokio::task::spawn_blocking(move || drop(read)).await;
    });
    ReceiverStream::new(receiver)
}
