//! A shared buffer: how many bytes the queues of several ports and workers may hold together, divided between tenants.
//!
//! A tenant's *reserved* bytes are its own. Beyond them it draws from the remaining pool, up to `alpha` times the
//! free bytes of the pool: the dynamic threshold of Choudhury and Hahne ("Dynamic queue length thresholds for
//! shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998). One busy tenant then takes `alpha
//! / (1 + alpha)` of the pool, `n` of them `alpha / (1 + n · alpha)` each, and a newcomer finds room at once. A
//! tenant's *maximum* bounds both parts together. Named tenants (`tenants.rs`) have their own `alpha`, and a second
//! maximum, in bytes of frames instead of cells.
//!
//! Only bytes are counted, in atomics; no memory is held here. Lock-free: any thread may reserve and release.
//!
//! **Invariants:** reserved plus pool never exceed the capacity; a tenant never exceeds its maximum; a request within
//! the reserve always succeeds; released bytes are available again. When threads race for the last bytes of the pool, a
//! request may be refused although there is room a moment later.
//!
//! Why they hold: a request takes from the tenant's reserve first and then from the pool, and is undone part by
//! part; a release returns to the pool first. Each counter changes by one atomic step. `from_pool` is changed with
//! acquire and release ordering, which orders the other two around it: a reserve always holds at least what
//! pending releases still subtract from it.
//!
//! A tenant's limits may change while bytes are in use. If its reserve grows by more than is free, the free
//! count becomes negative, and the pool refuses requests until others have released as much. Only in this
//! time more than the capacity is promised.
//!
//! Tests: `tests/buffer.rs`, `tests/tenants.rs`, `tests/loom.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

#[cfg(loom)]
use loom::sync::atomic::{AtomicI64, AtomicU64};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicI64, AtomicU64};

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::statistics::{Count, Reason};
use crate::units::Size;

/// Maximum capacity, 256 TB: sums of concurrent reservations stay far from 64 bits.
pub const CAPACITY_MAX: Size = Size(1 << 48);
/// Maximum tenants of one buffer. Each takes a cache line, so all take 256 KB.
pub const TENANTS_MAX: usize = 4096;

/// The configuration of a shared buffer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferConfig {
    /// Total bytes.
    pub capacity: Size,
    /// Bytes per cell: a packet takes whole cells. Default 1; a switch whose packets
    /// lie in buffers of one size uses that size.
    #[serde(default = "one_byte")]
    pub cell: Size,
    /// Dynamic threshold: a tenant may take from the pool this many times what is free there.
    /// Default 1: half the pool for a single tenant.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// The tenants, by number.
    pub tenants: Vec<Share>,
}

fn one_byte() -> Size {
    Size(1)
}

fn default_alpha() -> f64 {
    1.0
}

/// A tenant's share of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Bytes that are always available to it.
    #[serde(default)]
    pub reserved: Size,
    /// Maximum bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Size>,
}

/// The counters of a shared buffer.
#[derive(Debug)]
pub struct Buffer {
    cell: u64,
    capacity: u64,
    /// `alpha` of tenants without their own, in 256ths.
    alpha: u64,
    /// Bytes that are not reserved.
    pool: AtomicU64,
    /// Free bytes of the pool; negative while more is in use than the pool has.
    free: Line,
    tenants: Box<[Arc<Account>]>,
}

/// A counter on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Line(AtomicI64);

/// A tenant's limits, in bytes of whole cells; `frames_max` in bytes of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub reserved: u64,
    pub max: Option<u64>,
    /// Maximum bytes of frames.
    pub frames_max: Option<u64>,
    /// Factor of the dynamic threshold, in 256ths.
    pub alpha: u64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Account {
    reserved: AtomicU64,
    /// Maximum bytes from the pool.
    pool_max: AtomicU64,
    alpha: AtomicU64,
    /// Bytes in use from the reserve.
    from_reserve: AtomicU64,
    /// Bytes in use from the pool.
    from_pool: AtomicU64,
    /// Number of refused requests.
    refused: AtomicU64,
    /// Counters of named tenants only.
    frames: Option<Frames>,
}

/// Counters of a named tenant's frames.
#[derive(Debug)]
struct Frames {
    max: AtomicU64,
    bytes: AtomicU64,
    highest_bytes: AtomicU64,
    highest_used: AtomicU64,
    /// Refused packets and bytes: first by the tenant's limit, then by the shared buffer.
    refused: [[AtomicU64; 2]; 2],
}

/// A handle to one tenant of a buffer.
#[derive(Clone, Debug)]
pub struct Tenant {
    buffer: Arc<Buffer>,
    account: Arc<Account>,
}

/// Statistics of a named tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TenantStatistics {
    /// Packets and bytes that wait now.
    pub depth: Count,
    /// The highest number of waiting packets so far, and of waiting bytes.
    pub highest: Count,
    /// Refused by the tenant's limit.
    pub over_limit: Count,
    /// Refused because the shared buffer had no room.
    pub no_room: Count,
}

/// `alpha` in 256ths.
pub(crate) fn in_256ths(alpha: f64) -> u64 {
    (alpha * 256.0).round() as u64
}

/// Whether `alpha` is within its range.
pub(crate) fn is_alpha(alpha: f64) -> bool {
    (1.0 / 256.0..=256.0).contains(&alpha)
}

impl BufferConfig {
    /// Checks the settings for consistency.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn check(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut problem = |path: String, message: String| problems.push(Problem { path, message });
        if self.capacity.0 == 0 || self.capacity > CAPACITY_MAX {
            problem("capacity".into(), format!("{} is not between 1B and {CAPACITY_MAX}", self.capacity));
        }
        if self.cell.0 == 0 || self.cell.0 > self.capacity.0.max(1) {
            problem("cell".into(), format!("{} is not between 1B and the capacity", self.cell));
        }
        if !is_alpha(self.alpha) {
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
    ///
    /// # Errors
    /// The configuration is inconsistent: see [`BufferConfig::check`].
    pub fn new(config: &BufferConfig) -> Result<Arc<Buffer>, Vec<Problem>> {
        config.check()?;
        let reserved: u64 = config.tenants.iter().map(|share| share.reserved.0).sum();
        let (capacity, pool) = (config.capacity.0, config.capacity.0 - reserved);
        let alpha = in_256ths(config.alpha);
        let account = |share: &Share| {
            let max = share.max.map(|max| max.0);
            Arc::new(Account::new(&Terms { reserved: share.reserved.0, max, frames_max: None, alpha }, false))
        };
        let tenants = config.tenants.iter().map(account).collect();
        let free = Line(AtomicI64::new(pool as i64));
        Ok(Arc::new(Buffer { cell: config.cell.0, capacity, alpha, pool: AtomicU64::new(pool), free, tenants }))
    }

    /// The tenant with this number.
    pub fn tenant(self: &Arc<Buffer>, number: usize) -> Option<Tenant> {
        Some(Tenant { buffer: self.clone(), account: self.tenants.get(number)?.clone() })
    }

    /// Adds a tenant without reserve and maximum.
    pub fn newcomer(self: &Arc<Buffer>) -> Tenant {
        let terms = Terms { reserved: 0, max: None, frames_max: None, alpha: self.alpha };
        Tenant { buffer: self.clone(), account: Arc::new(Account::new(&terms, false)) }
    }

    /// Adds a tenant whose frames are counted. Its reserve is taken from the pool.
    pub(crate) fn open(self: &Arc<Buffer>, terms: &Terms) -> Tenant {
        self.pool.fetch_sub(terms.reserved, Relaxed);
        self.free.0.fetch_sub(terms.reserved as i64, Relaxed);
        Tenant { buffer: self.clone(), account: Arc::new(Account::new(terms, true)) }
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Cell size in bytes; a packet takes whole cells.
    pub fn cell(&self) -> u64 {
        self.cell
    }

    /// Free bytes of the pool; a snapshot.
    pub fn free(&self) -> u64 {
        self.free.0.load(Relaxed).max(0) as u64
    }

    /// Bytes of the pool, free or in use.
    pub fn pool(&self) -> u64 {
        self.pool.load(Relaxed)
    }

    /// Takes `bytes` from the pool. Returns what was free before, or `None` if it was too little.
    fn take_from_pool(&self, bytes: u64) -> Option<u64> {
        let bytes = i64::try_from(bytes).ok()?;
        let take = |free: i64| (free >= bytes).then(|| free - bytes);
        self.free.0.fetch_update(Relaxed, Relaxed, take).ok().map(|free| free as u64)
    }
}

impl Tenant {
    /// The buffer.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// Whether both are the same tenant.
    pub fn is(&self, other: &Tenant) -> bool {
        Arc::ptr_eq(&self.account, &other.account)
    }

    /// Bytes in use; a snapshot.
    pub fn used(&self) -> u64 {
        self.account.used()
    }

    /// Number of refused requests.
    pub fn refused(&self) -> u64 {
        self.account.refused.load(Relaxed)
    }

    /// Bytes that a packet of this length takes: whole cells.
    pub fn cost(&self, bytes: u32) -> u64 {
        u64::from(bytes).next_multiple_of(self.buffer.cell)
    }

    /// Admits a frame of this length in bytes. An admitted frame must be released with the same length.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit(&self, bytes: u32) -> Result<(), Reason> {
        let Some(frames) = &self.account.frames else { return self.take(self.cost(bytes)) };
        let admitted = frames.add(bytes).and_then(|()| {
            self.take(self.cost(bytes)).inspect_err(|_| {
                frames.bytes.fetch_sub(bytes.into(), Relaxed);
            })
        });
        match admitted {
            Ok(()) => frames.note_highest(self.used()),
            Err(reason) => frames.note_refused(bytes, reason),
        }
        admitted
    }

    /// Admits a frame that is already waiting, regardless of the maximum and of what is free.
    pub(crate) fn charge(&self, bytes: u32) {
        if let Some(frames) = &self.account.frames {
            frames.bytes.fetch_add(bytes.into(), Relaxed);
        }
        let cost = self.cost(bytes);
        let rest = cost - self.account.take_from_reserve(cost);
        self.buffer.free.0.fetch_sub(rest as i64, Relaxed);
        self.account.from_pool.fetch_add(rest, AcqRel);
    }

    /// Releases an admitted frame that no longer waits.
    pub fn release(&self, bytes: u32) {
        if let Some(frames) = &self.account.frames {
            frames.bytes.fetch_sub(bytes.into(), Relaxed);
        }
        self.give_back(self.cost(bytes));
    }

    /// Takes `bytes`, or nothing. Returns whether it succeeded; [`Tenant::give_back`] then returns the same number.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> bool {
        self.take(bytes).is_ok()
    }

    fn take(&self, bytes: u64) -> Result<(), Reason> {
        let account = &*self.account;
        let own = account.take_from_reserve(bytes);
        let rest = bytes - own;
        if rest == 0 {
            return Ok(());
        }
        let max = account.pool_max.load(Relaxed);
        let free = self.buffer.take_from_pool(rest);
        if let Some(free) = free {
            let threshold = u128::from(free) * u128::from(account.alpha.load(Relaxed)) / 256;
            let limit = u64::try_from(threshold).unwrap_or(u64::MAX).min(max);
            let within = |used: u64| used.checked_add(rest).filter(|sum| *sum <= limit);
            if account.from_pool.fetch_update(AcqRel, Acquire, within).is_ok() {
                return Ok(());
            }
            self.buffer.free.0.fetch_add(rest as i64, Relaxed);
        }
        let is_over = account.from_pool.load(Relaxed).saturating_add(rest) > max;
        account.from_reserve.fetch_sub(own, Relaxed);
        account.refused.fetch_add(1, Relaxed);
        Err(if is_over { Reason::Tenant } else { Reason::Buffer })
    }

    /// Returns bytes that were taken.
    pub fn give_back(&self, bytes: u64) {
        let account = &*self.account;
        let mut pool = 0;
        let pay = |used: u64| {
            pool = used.min(bytes);
            Some(used - pool)
        };
        // Always succeeds: `pay` always returns a new value.
        let _ = account.from_pool.fetch_update(AcqRel, Acquire, pay);
        self.buffer.free.0.fetch_add(pool as i64, Relaxed);
        let before = account.from_reserve.fetch_sub(bytes - pool, Relaxed);
        debug_assert!(before >= bytes - pool, "more was given back than was granted");
    }

    /// Changes the limits. Bytes in use stay in use, even beyond a lower maximum. The caller ensures that nobody else
    /// takes or returns bytes of this tenant meanwhile; those of other tenants may change.
    pub(crate) fn change(&self, terms: &Terms) {
        let (account, used) = (&*self.account, self.used());
        let reserved = account.reserved.swap(terms.reserved, Relaxed);
        let own = used.min(terms.reserved);
        let pool = used - own;
        account.from_reserve.store(own, Relaxed);
        let pool_before = account.from_pool.swap(pool, AcqRel);
        self.buffer.pool.fetch_add(reserved.wrapping_sub(terms.reserved), Relaxed);
        let freed = (reserved + pool_before) as i64 - (terms.reserved + pool) as i64;
        self.buffer.free.0.fetch_add(freed, Relaxed);
        account.pool_max.store(terms.pool_max(), Relaxed);
        account.alpha.store(terms.alpha, Relaxed);
        if let Some(frames) = &account.frames {
            frames.max.store(terms.frames_max.unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// Statistics of a named tenant; zero for others.
    pub fn statistics(&self) -> TenantStatistics {
        let Some(frames) = &self.account.frames else { return TenantStatistics::default() };
        let count =
            |used: u64, bytes: &AtomicU64| Count { packets: used / self.buffer.cell, bytes: bytes.load(Relaxed) };
        let [over_limit, no_room] = &frames.refused;
        let refused =
            |[packets, bytes]: &[AtomicU64; 2]| Count { packets: packets.load(Relaxed), bytes: bytes.load(Relaxed) };
        TenantStatistics {
            depth: count(self.used(), &frames.bytes),
            highest: count(frames.highest_used.load(Relaxed), &frames.highest_bytes),
            over_limit: refused(over_limit),
            no_room: refused(no_room),
        }
    }
}

impl Terms {
    fn pool_max(&self) -> u64 {
        self.max.map_or(u64::MAX, |max| max.saturating_sub(self.reserved))
    }
}

impl Frames {
    /// Adds a frame's bytes if they stay within the limit.
    fn add(&self, bytes: u32) -> Result<(), Reason> {
        let max = self.max.load(Relaxed);
        let within = |sum: u64| sum.checked_add(bytes.into()).filter(|sum| *sum <= max);
        self.bytes.fetch_update(Relaxed, Relaxed, within).map(drop).map_err(|_| Reason::Tenant)
    }

    fn note_highest(&self, used: u64) {
        for (highest, now) in [(&self.highest_used, used), (&self.highest_bytes, self.bytes.load(Relaxed))] {
            if now > highest.load(Relaxed) {
                highest.fetch_max(now, Relaxed);
            }
        }
    }

    fn note_refused(&self, bytes: u32, reason: Reason) {
        let [packets, sum] = &self.refused[usize::from(reason != Reason::Tenant)];
        packets.fetch_add(1, Relaxed);
        sum.fetch_add(bytes.into(), Relaxed);
    }
}

impl Account {
    fn new(terms: &Terms, counts_frames: bool) -> Account {
        let zero = || AtomicU64::new(0);
        let frames = || Frames {
            max: AtomicU64::new(terms.frames_max.unwrap_or(u64::MAX)),
            bytes: zero(),
            highest_bytes: zero(),
            highest_used: zero(),
            refused: [[zero(), zero()], [zero(), zero()]],
        };
        Account {
            reserved: AtomicU64::new(terms.reserved),
            pool_max: AtomicU64::new(terms.pool_max()),
            alpha: AtomicU64::new(terms.alpha),
            from_reserve: zero(),
            from_pool: zero(),
            refused: zero(),
            frames: counts_frames.then(frames),
        }
    }

    fn used(&self) -> u64 {
        self.from_reserve.load(Relaxed).saturating_add(self.from_pool.load(Relaxed))
    }

    /// Takes up to `bytes` from the reserve. Returns how many.
    fn take_from_reserve(&self, bytes: u64) -> u64 {
        let reserved = self.reserved.load(Relaxed);
        if reserved == 0 {
            return 0;
        }
        let mut own = 0;
        let grow = |used: u64| {
            own = reserved.saturating_sub(used).min(bytes);
            (own > 0).then_some(used + own)
        };
        match self.from_reserve.fetch_update(Relaxed, Relaxed, grow) {
            Ok(_) => own,
            Err(_) => 0,
        }
    }
}
