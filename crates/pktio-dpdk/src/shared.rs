//! What all ports share: the pool of buffers, and the lock of control calls.

use crate::pool::MbufPool;
use pktio::PoolRef;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all ports share.
pub(crate) struct Shared {
    mbufs: Arc<MbufPool>,
    control: Mutex<Control>,
}

/// What control calls change.
#[derive(Default)]
pub(crate) struct Control {
    /// Numbers virtual devices, whose names are unique for the life of the process.
    pub next_number: u32,
}

impl Shared {
    pub(crate) fn new(mbufs: MbufPool) -> Shared {
        Shared { mbufs: Arc::new(mbufs), control: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pool(&self) -> PoolRef {
        Arc::clone(&self.mbufs) as PoolRef
    }

    pub(crate) fn mbufs(&self) -> &MbufPool {
        &self.mbufs
    }
}
