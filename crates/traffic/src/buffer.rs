//! A shared buffer: bytes that the queues of several ports and workers may hold together, with a share for each tenant.
//!
//! A tenant's *reserved* bytes are its own. Beyond them it draws from the pool that is left, while what it has from the pool
//! stays at most `alpha` times what is free there: the dynamic threshold of Choudhury and Hahne ("Dynamic queue length thresholds
//! for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998). One busy tenant then takes
//! `alpha / (1 + alpha)` of the pool, `n` of them `alpha / (1 + n · alpha)` each, and a newcomer finds room at once. A tenant's
//! *maximum* bounds both parts together. Tenants with a name (`tenants.rs`) have an `alpha` of their own, and a maximum of the
//! frames' bytes besides that of their cells.
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
//! A tenant's terms may change while bytes are in use. If there are less free bytes than its reserve grows by, what is free becomes
//! negative, and the pool grants nothing until others have given back as much: only meanwhile more than the capacity is promised.
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
    capacity: u64,
    /// Of tenants that have none of their own, in 256ths.
    alpha: u64,
    /// Bytes that nobody has reserved.
    pool: AtomicU64,
    /// What of them is free; negative while more is in use than there is.
    free: Line,
    tenants: Box<[Arc<Account>]>,
}

/// A counter that shares its cache line with no other.
#[derive(Debug)]
#[repr(align(64))]
struct Line(AtomicI64);

/// What a tenant may have. Bytes are those of cells but for `frames_max`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub reserved: u64,
    pub max: Option<u64>,
    /// The most bytes of frames.
    pub frames_max: Option<u64>,
    /// In 256ths.
    pub alpha: u64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Account {
    reserved: AtomicU64,
    /// Bytes that it may have from the pool.
    pool_max: AtomicU64,
    alpha: AtomicU64,
    /// Bytes in use of the reserve.
    from_reserve: AtomicU64,
    /// Bytes in use of the pool.
    from_pool: AtomicU64,
    /// Grants that were refused.
    refused: AtomicU64,
    /// What only tenants with a name have counted.
    frames: Option<Frames>,
}

/// The frames of a tenant.
#[derive(Debug)]
struct Frames {
    max: AtomicU64,
    bytes: AtomicU64,
    highest_bytes: AtomicU64,
    highest_used: AtomicU64,
    /// Refused packets and bytes: by the tenant's limit, by the shared buffer.
    refused: [[AtomicU64; 2]; 2],
}

/// A tenant's end of a buffer.
#[derive(Clone, Debug)]
pub struct Tenant {
    buffer: Arc<Buffer>,
    account: Arc<Account>,
}

/// What is counted of a tenant with a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TenantStatistics {
    /// What waits now.
    pub depth: Count,
    /// The most packets that ever waited, and the most bytes.
    pub highest: Count,
    /// Refused by the tenant's limit.
    pub over_limit: Count,
    /// Refused because the shared buffer had no room for it.
    pub no_room: Count,
}

/// `alpha` in 256ths.
pub(crate) fn in_256ths(alpha: f64) -> u64 {
    (alpha * 256.0).round() as u64
}

/// Whether `alpha` can be used.
pub(crate) fn is_alpha(alpha: f64) -> bool {
    (1.0 / 256.0..=256.0).contains(&alpha)
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

    /// The tenant of this number.
    pub fn tenant(self: &Arc<Buffer>, number: usize) -> Option<Tenant> {
        Some(Tenant { buffer: self.clone(), account: self.tenants.get(number)?.clone() })
    }

    /// One more tenant, without reserve and maximum.
    pub fn newcomer(self: &Arc<Buffer>) -> Tenant {
        let terms = Terms { reserved: 0, max: None, frames_max: None, alpha: self.alpha };
        Tenant { buffer: self.clone(), account: Arc::new(Account::new(&terms, false)) }
    }

    /// One more tenant, whose frames are counted. Its reserve is taken from the pool.
    pub(crate) fn open(self: &Arc<Buffer>, terms: &Terms) -> Tenant {
        self.pool.fetch_sub(terms.reserved, Relaxed);
        self.free.0.fetch_sub(terms.reserved as i64, Relaxed);
        Tenant { buffer: self.clone(), account: Arc::new(Account::new(terms, true)) }
    }

    /// All bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that a packet takes whole multiples of.
    pub fn cell(&self) -> u64 {
        self.cell
    }

    /// Bytes of the pool that are free; a snapshot.
    pub fn free(&self) -> u64 {
        self.free.0.load(Relaxed).max(0) as u64
    }

    /// Bytes of the pool.
    pub fn pool(&self) -> u64 {
        self.pool.load(Relaxed)
    }

    /// Takes `bytes` from the pool; what was free before, or nothing.
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

    /// How often the buffer was refused.
    pub fn refused(&self) -> u64 {
        self.account.refused.load(Relaxed)
    }

    /// What a packet of so many bytes takes: whole cells.
    pub fn cost(&self, bytes: u32) -> u64 {
        u64::from(bytes).next_multiple_of(self.buffer.cell)
    }

    /// Lets a frame of so many bytes in, or says why not. Who was let in is released with the same number.
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

    /// Lets a frame in that waits already, whatever the maximum is and however much is free.
    pub(crate) fn charge(&self, bytes: u32) {
        if let Some(frames) = &self.account.frames {
            frames.bytes.fetch_add(bytes.into(), Relaxed);
        }
        let cost = self.cost(bytes);
        let rest = cost - self.account.take_from_reserve(cost);
        self.buffer.free.0.fetch_sub(rest as i64, Relaxed);
        self.account.from_pool.fetch_add(rest, AcqRel);
    }

    /// A frame that was let in does not wait any more.
    pub fn release(&self, bytes: u32) {
        if let Some(frames) = &self.account.frames {
            frames.bytes.fetch_sub(bytes.into(), Relaxed);
        }
        self.give_back(self.cost(bytes));
    }

    /// Takes `bytes`, or nothing. Whoever was granted bytes gives the same number back.
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

    /// Gives back bytes that were granted.
    pub fn give_back(&self, bytes: u64) {
        let account = &*self.account;
        let mut pool = 0;
        let pay = |used: u64| {
            pool = used.min(bytes);
            Some(used - pool)
        };
        // Never refused: `pay` always has a new value.
        let _ = account.from_pool.fetch_update(AcqRel, Acquire, pay);
        self.buffer.free.0.fetch_add(pool as i64, Relaxed);
        let before = account.from_reserve.fetch_sub(bytes - pool, Relaxed);
        debug_assert!(before >= bytes - pool, "more was given back than was granted");
    }

    /// Goes by other terms from now on. What is in use stays, also beyond a lower maximum. Nobody takes or gives back bytes of this
    /// tenant meanwhile; others may.
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

    /// What is counted of a tenant with a name; of others nothing is.
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

    /// Takes as much of `bytes` from the reserve as is left there.
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
