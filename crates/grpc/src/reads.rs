//! The answer to a Read request, produced message by message at the client's pace.
//!
//! ```text
//! task per read:  wait for room ──▶ lock, some entities (control::reads), unlock ──▶ encode ──▶ channel ──▶ connection
//! ```
//!
//! The channel holds [`AHEAD`] messages, and HTTP/2's flow control limits what waits in the connection. So a client
//! that does not read costs this much memory and delays nobody; after [`crate::ServeOptions::patience`] its read ends.
//! However a read ends, [`OpenRead`] closes it in the control plane when it is dropped.
//!
//! Of all reads past their first message, only [`AT_ONCE`] produce a message at a time, in turn. So a write, or a read
//! that a single message answers, waits for the lock behind few others, however many clients read large tables.
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

/// Entities per message.
const CHUNK: usize = 1024;
/// Messages that may wait for the connection.
const AHEAD: usize = 2;

/// Limit on the long answers that produce a message at the same time.
const AT_ONCE: usize = 2;
static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

/// An open reading of the control plane; closed on drop.
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

/// All messages of an answer, and at its end the errors of entities that could not be read.
pub(crate) fn answer(
    read: OpenRead,
    results: Vec<Result<()>>,
    patience: Duration,
) -> impl Stream<Item = std::result::Result<pb::ReadResponse, Status>> {
    let (sender, receiver) = mpsc::channel(AHEAD + 1);
    tokio::spawn(async move {
        let read = Arc::new(read);
        // A truncated answer must not look complete, so one slot is reserved for the error.
        let Ok(last) = sender.clone().reserve_owned().await else { return };
        let mut first = true;
        loop {
            // Waits for the client first, so that no message is produced that nobody reads.
            let Ok(room) = tokio::time::timeout(patience, sender.reserve()).await else {
                let why = format!("nothing of the answer was taken for {patience:?}, so the read ends here");
                tracing::warn!("a client's read: {why}");
                last.send(Err(Status::aborted(why)));
                break;
            };
            let Ok(room) = room else { break };
            // The semaphore is never closed, so this always succeeds.
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
        // Closing takes a lock, so it is done on a blocking thread.
        let _ = tokio::task::spawn_blocking(move || drop(read)).await;
    });
    ReceiverStream::new(receiver)
}
