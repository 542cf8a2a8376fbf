//! A spin lock that workers only try, never wait for.
//!
//! It is released by a plain store. An atomic exchange, as in `std`'s mutex, would wait until all stores to the guest's
//! memory have left the store buffer. The exchange that acquires the lock is a full barrier, and `ring` relies on this:
//! what the previous holder wrote is visible to the guest before the next holder reads the guest's notification flags.
//!
//! Threads: any. No holder makes a system call, so the lock is held for one burst at most.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through a guard, and at most one guard exists at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.held.swap(true, Ordering::SeqCst) { None } else { Some(Guard { lock: self }) }
    }

    /// Acquires the lock, waiting for it. For the service thread, which may wait.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::thread::yield_now();
        }
    }

    /// Tries a bounded number of times. For a worker that shares a ring with other workers.
    pub(crate) fn lock_soon(&self, tries: u32) -> Option<Guard<'_, T>> {
        (0..tries).find_map(|_| {
            let guard = self.try_lock();
            if guard.is_none() {
                std::hint::spin_loop();
            }
            guard
        })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard while it exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard while it exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn one_holder_at_a_time() {
        let lock = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        let guard = lock.try_lock().expect("nobody holds it");
        assert!(lock.try_lock().is_none() && lock.lock_soon(10).is_none());
        assert_eq!(*guard, 40_000);
    }
}
