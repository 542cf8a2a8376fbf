//! A shared buffer: bytes that the queues of several ports and workers may hold together, with a share for each tenant.
//!
//! A tenant's *reserved* bytes are its own. Beyond them it draws from the pool that is left, while what it has from the pool
//! stays at most `alpha` times what is free there: the dynamic threshold of Choudhury and Hahne ("Dynamic queue length thresholds
//! for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998). One busy tenant then takes
//! `alpha / (1 + alpha)` of the pool, `n` of them `alpha / (1 + n · alpha)` each, and a newcomer finds room at once. A tenant's
//! *maximum* bounds both parts together.
//!
//! Only bytes are counted, in atomics; no memory is held here. Lock-free: any thread may reserve and give back. Promises:
//! reserved plus pool never exceed the capacity; a tenant never exceeds its maximum; reserved bytes are always granted; what is
//! given back is there again. When threads race for the last bytes of the pool, one may be refused although a moment later there
//! would have been room.
//!
//! How the promises hold: a grant takes from the tenant's reserve first, then from the pool, and is undone part by part; giving
//! back pays the pool first. Each counter changes by one atomic step. `from_pool` is changed with acquire and release, which orders
//! the other two around it: a reserve always holds at least what releases still have to take from it.
//!
//! Tests: `tests/buffer.rs`, `tests/loom.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::units::Size;

/// The largest capacity, 256 TB: sums of what threads reserve at a time are far from the end of 64 bits.
pub const CAPACITY_MAX: Size = Size(1 << 48);
/// Tenants of one buffer, at most. Each takes a cache line, so all take 256 KB.
pub const TENANTS_MAX: usize = 4096;

/// What a buffer is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferConfig {
    /// All bytes.
    pub capacity: Size,
    /// Bytes of a cell: a packet takes whole ones. 1 unless given; a switch whose packets lie in buffers of one size has that.
    #[serde(default = "one_byte")]
    pub cell: Size,
    /// A tenant may have from the pool this many times what is free there. 1 unless given: half the pool for one alone.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// The tenants; a tenant's number is its place.
    pub tenants: Vec<Share>,
}

fn one_byte() -> Size {
    Size(1)
}

fn default_alpha() -> f64 {
    1.0
}

/// What a tenant may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Bytes that are always granted.
    #[serde(default)]
    pub reserved: Size,
    /// Bytes that are never exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Size>,
}

/// The counters of a shared buffer.
#[derive(Debug)]
pub struct Buffer {
    cell: u64,
    /// `alpha` in 256ths.
    alpha: u64,
    pool: u64,
    free: Line,
    tenants: Box<[Account]>,
}

/// A counter that shares its cache line with no other.
#[derive(Debug)]
#[repr(align(64))]
struct Line(AtomicU64);

#[derive(Debug)]
#[repr(align(64))]
struct Account {
    reserved: u64,
    /// Bytes that it may have from the pool.
    pool_max: u64,
    /// Bytes in use of the reserve.
    from_reserve: AtomicU64,
    /// Bytes in use of the pool.
    from_pool: AtomicU64,
    /// Grants that were refused.
    refused: AtomicU64,
}

/// A tenant's end of a buffer.
#[derive(Clone, Debug)]
pub struct Tenant {
    buffer: Arc<Buffer>,
    number: usize,
}

impl BufferConfig {
    /// Whether the settings agree with one another.
    pub fn check(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut problem = |path: String, message: String| problems.push(Problem { path, message });
        if self.capacity.0 == 0 || self.capacity > CAPACITY_MAX {
            problem("capacity".into(), format!("{} is not between 1B and {CAPACITY_MAX}", self.capacity));
        }
        if self.cell.0 == 0 || self.cell.0 > self.capacity.0.max(1) {
            problem("cell".into(), format!("{} is not between 1B and the capacity", self.cell));
        }
        if !(1.0 / 256.0..=256.0).contains(&self.alpha) {
            problem("alpha".into(), format!("{} is not between 1/256 and 256", self.alpha));
        }
        if self.tenants.len() > TENANTS_MAX {
            problem("tenants".into(), format!("{} tenants; at most {TENANTS_MAX}", self.tenants.len()));
        }
        for (number, share) in self.tenants.iter().enumerate().take(TENANTS_MAX) {
            if let Some(max) = share.max.filter(|max| *max < share.reserved) {
                let message = format!("{max} is less than the {} that are reserved", share.reserved);
                problem(format!("tenants[{number}].max"), message);
            }
            if share.max.is_some_and(|max| max.0 == 0) {
                problem(format!("tenants[{number}].max"), "0: nothing could wait".into());
            }
        }
        let reserved: u128 = self.tenants.iter().map(|share| u128::from(share.reserved.0)).sum();
        if reserved > u128::from(self.capacity.0) {
            let message = format!("{reserved} bytes are reserved, the buffer has {}", self.capacity);
            problem("tenants".into(), message);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl Buffer {
    /// An empty buffer.
    pub fn new(config: &BufferConfig) -> Result<Arc<Buffer>, Vec<Problem>> {
        config.check()?;
        let reserved: u64 = config.tenants.iter().map(|share| share.reserved.0).sum();
        let pool = config.capacity.0 - reserved;
        let account = |share: &Share| Account {
            reserved: share.reserved.0,
            pool_max: share.max.map_or(pool, |max| (max.0 - share.reserved.0).min(pool)),
            from_reserve: AtomicU64::new(0),
            from_pool: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        let tenants = config.tenants.iter().map(account).collect();
        let alpha = (config.alpha * 256.0).round() as u64;
        Ok(Arc::new(Buffer { cell: config.cell.0, alpha, pool, free: Line(AtomicU64::new(pool)), tenants }))
    }

    /// The tenant of this number.
    pub fn tenant(self: &Arc<Buffer>, number: usize) -> Option<Tenant> {
        (number < self.tenants.len()).then(|| Tenant { buffer: self.clone(), number })
    }

    /// Bytes of the pool that are free; a snapshot.
    pub fn free(&self) -> u64 {
        self.free.0.load(Relaxed)
    }

    /// Bytes of the pool.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// Takes `bytes` from the pool; what was free before, or nothing.
    fn take_from_pool(&self, bytes: u64) -> Option<u64> {
        self.free.0.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).ok()
    }
}

impl Tenant {
    fn account(&self) -> &Account {
        &self.buffer.tenants[self.number]
    }

    /// The buffer.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The tenant's number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Bytes in use; a snapshot.
    pub fn used(&self) -> u64 {
        let account = self.account();
        account.from_reserve.load(Relaxed).saturating_add(account.from_pool.load(Relaxed))
    }

    /// How often the buffer was refused.
    pub fn refused(&self) -> u64 {
        self.account().refused.load(Relaxed)
    }

    /// What a packet of so many bytes takes: whole cells.
    pub fn cost(&self, bytes: u32) -> u64 {
        u64::from(bytes).next_multiple_of(self.buffer.cell)
    }

    /// Takes `bytes`, or nothing. Whoever was granted bytes gives the same number back.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> bool {
        let account = self.account();
        let own = account.take_from_reserve(bytes);
        let rest = bytes - own;
        if rest == 0 {
            return true;
        }
        if let Some(free) = self.buffer.take_from_pool(rest) {
            let threshold = u128::from(free) * u128::from(self.buffer.alpha) / 256;
            let limit = u64::try_from(threshold).unwrap_or(u64::MAX).min(account.pool_max);
            let within = |used: u64| used.checked_add(rest).filter(|sum| *sum <= limit);
            if account.from_pool.fetch_update(AcqRel, Acquire, within).is_ok() {
                return true;
            }
            self.buffer.free.0.fetch_add(rest, Relaxed);
        }
        account.from_reserve.fetch_sub(own, Relaxed);
        account.refused.fetch_add(1, Relaxed);
        false
    }

    /// Gives back bytes that were granted.
    pub fn give_back(&self, bytes: u64) {
        let account = self.account();
        let mut pool = 0;
        let pay = |used: u64| {
            pool = used.min(bytes);
            Some(used - pool)
        };
        // Never refused: `pay` always has a new value.
        let _ = account.from_pool.fetch_update(AcqRel, Acquire, pay);
        self.buffer.free.0.fetch_add(pool, Relaxed);
        let before = account.from_reserve.fetch_sub(bytes - pool, Relaxed);
        debug_assert!(before >= bytes - pool, "more was given back than was granted");
    }
}

impl Account {
    /// Takes as much of `bytes` from the reserve as is left there.
    fn take_from_reserve(&self, bytes: u64) -> u64 {
        if self.reserved == 0 {
            return 0;
        }
        let mut own = 0;
        let grow = |used: u64| {
            own = self.reserved.saturating_sub(used).min(bytes);
            (own > 0).then_some(used + own)
        };
        match self.from_reserve.fetch_update(Relaxed, Relaxed, grow) {
            Ok(_) => own,
            Err(_) => 0,
        }
    }
}
