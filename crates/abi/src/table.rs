//! How keys and entries lie in memory, and what compiled code is told about a table when it is made.
//!
//! **Keys.** A key is laid out as little-endian integers, each key field at its natural alignment: 1, 2, 4 or 8 bytes
//! for widths up to 8, 16, 32, 64 bits, and a multiple of 8 bytes beyond (least significant word first). Keys of exact
//! fields only are packed: each field takes the whole bytes of its width, none of up to 64 bits lies across two 64-bit
//! words, wider ones begin with a word. Padding is zero; the whole is padded to a multiple of 8 bytes. So an exact key
//! compares as 64-bit words, and a VLAN with an Ethernet address is one word.
//!
//! **Entries.** [`crate::entry`]. They never change once readers can see them: a modification publishes a new one and
//! retires the old (counters are elsewhere, by index).
//!
//! **Readers.** Compiled code holds entry pointers only within one batch. A worker announces a quiescent point between
//! batches; only then is retired memory freed.

use crate::entry::{EntryHeader, EntryLayout};
use base::entry::MatchKind;
use core::sync::atomic::AtomicPtr;

/// What stays at one address for as long as a table lives. Engines put their own snapshot pointer behind `snapshot`.
#[repr(C)]
#[derive(Debug)]
pub struct TableHandle {
    /// The engine's current snapshot, published with release order.
    pub snapshot: AtomicPtr<core::ffi::c_void>,
    /// The current default entry; never null.
    pub default_entry: AtomicPtr<EntryHeader>,
}

/// Looks one key up: the matching entry, or null on a miss. `key` has the table's key layout.
pub type LookupFn = unsafe extern "C" fn(handle: *const TableHandle, key: *const u8) -> *const EntryHeader;

/// Looks `count` keys up, which lie one after the other, each with the bytes of the table's key layout: writes the entry of
/// each key to `out`, or null on a miss. It gives what a [`LookupFn`] gives for each key; engines whose lookups wait for
/// memory work on several keys at a time. `count` may be 0.
pub type LookupBatchFn =
    unsafe extern "C" fn(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader);

/// Resolves an entry's group, not null: the chosen member's entry, or null when the group is empty. `hash` is the
/// selector's hash of the selector keys, already cut to its width.
pub type SelectFn = unsafe extern "C" fn(group: *const core::ffi::c_void, hash: u64) -> *const EntryHeader;

/// Adds an entry for a packet. `key` has the table's key layout; `entry` lies as entries do from their action on
/// ([`EntryLayout`]). `expire` is the number of an expire time. 0 if the entry was added, 1 if not.
///
/// The caller's worker is online. The call may wait for other writers of the same part of the table, and for nothing else.
pub type AddEntryFn = unsafe extern "C" fn(
    handle: *const TableHandle,
    key: *const u8,
    entry: *const u8,
    bytes: u32,
    expire: u32,
    now_us: u64,
) -> u32;

/// Gives an entry of the table another expire time and begins its time anew; nothing if there is no such expire time.
pub type SetExpireFn =
    unsafe extern "C" fn(handle: *const TableHandle, entry: *const EntryHeader, expire: u32, now_us: u64);

/// What compiled code is told about a table that packets write.
#[derive(Clone, Debug)]
pub struct DynamicBinding {
    /// Adds an entry whose key is not there.
    pub add: AddEntryFn,
    /// Changes one that is there.
    pub replace: AddEntryFn,
    /// See [`SetExpireFn`].
    pub set_expire: SetExpireFn,
    /// Whether each hit begins the entry's time anew.
    pub restart_on_hit: bool,
    /// Milliseconds of each expire time, by number.
    pub expire_ms: Vec<u32>,
}

/// Where one key field lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyField {
    /// Byte offset in the key.
    pub offset: u32,
    /// Bytes it takes: 1, 2, 4, 8 or a multiple of 8; in packed keys any number.
    pub bytes: u32,
    /// Bits that count.
    pub width: u32,
    /// How it is compared.
    pub kind: MatchKind,
}

/// Where all key fields lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyLayout {
    /// In key order.
    pub fields: Vec<KeyField>,
    /// Bytes of the whole key: a multiple of 8.
    pub bytes: u32,
}

impl KeyLayout {
    /// The layout of exact key fields with these widths in as few words as first fit, widest first, finds.
    pub fn packed(widths: impl IntoIterator<Item = u32>) -> KeyLayout {
        let field = |width: u32| KeyField { offset: 0, bytes: width.div_ceil(8).max(1), width, kind: MatchKind::Exact };
        let mut fields: Vec<KeyField> = widths.into_iter().map(field).collect();
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(fields[*i].bytes));
        // Bytes that are taken of each word.
        let mut words: Vec<u32> = Vec::new();
        for i in order {
            let bytes = fields[i].bytes;
            let room = words.iter().position(|taken| taken + bytes <= 8);
            let at = room.unwrap_or(words.len());
            fields[i].offset = 8 * at as u32 + room.map_or(0, |at| words[at]);
            match room {
                Some(at) => words[at] += bytes,
                None => {
                    words.extend(std::iter::repeat_n(8, bytes as usize / 8));
                    words.extend((!bytes.is_multiple_of(8)).then_some(bytes % 8));
                }
            }
        }
        KeyLayout { fields, bytes: 8 * words.len() as u32 }
    }

    /// The layout of key fields with these widths and kinds.
    pub fn new(keys: impl IntoIterator<Item = (u32, MatchKind)>) -> KeyLayout {
        let mut at = 0u32;
        let fields = keys
            .into_iter()
            .map(|(width, kind)| {
                let bytes = match width {
                    0 => 0,
                    1..=8 => 1,
                    9..=16 => 2,
                    17..=32 => 4,
                    33..=64 => 8,
                    _ => width.div_ceil(64) * 8,
                };
                at = at.next_multiple_of(bytes.min(8));
                let field = KeyField { offset: at, bytes, width, kind };
                at += bytes;
                field
            })
            .collect();
        KeyLayout { fields, bytes: at.next_multiple_of(8) }
    }
}

/// How an engine may be probed without calling it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// Always misses: a table without keys.
    Empty,
    /// Only through `lookup`.
    Opaque,
    /// The buckets of `tables::exact`, which describes them; `jit` inlines the probe ([`TableBinding::exact`]).
    ExactInline,
    /// One prefix field of up to 32 bits, the only field: `tables::lpm`. `jit` inlines the walk of
    /// `tables::lpm::dir1688`, and calls `lookup` where that has no answer.
    Prefixes,
    /// One entry pointer per key value, `tables::direct`: `snapshot` points at an array of entry pointers, indexed by
    /// the key; `jit` inlines it.
    DirectIndex,
}

/// How the buckets of an exact table are divided. It stays the same while the table lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExactLayout {
    /// Bytes of a key in a slot: 4, 8, 12 or 16. From the bucket's start lie the first eight bytes of each key, one after
    /// the other, then what is left of each. A key of the table's layout has as many, and behind them zeros.
    pub key_bytes: u32,
    /// Slots of a bucket.
    pub slots: u32,
    /// Where the first slot's entry is: its address itself, or, if entries are far, the place that says where it is.
    pub entry_offset: u32,
    /// From a slot's entry to the next one's.
    pub entry_bytes: u32,
    /// Whether a slot has, instead of an entry, its address in six bytes.
    pub out_of_line: bool,
}

/// What compiled code is told about a table.
#[derive(Clone, Debug)]
pub struct TableBinding {
    /// Stays valid for as long as the pipeline's state lives.
    pub handle: *const TableHandle,
    /// Key layout.
    pub key: KeyLayout,
    /// The probe.
    pub engine: EngineKind,
    /// With [`EngineKind::ExactInline`].
    pub exact: Option<ExactLayout>,
    /// Always usable.
    pub lookup: LookupFn,
    /// Always usable: many keys at once.
    pub lookup_batch: LookupBatchFn,
    /// For tables with an action selector.
    pub select: Option<SelectFn>,
    /// What entries look like, those of the table and its default. Members that groups choose have the same action number
    /// and parameters, and nothing in front of them.
    pub entry: EntryLayout,
    /// For tables that packets write. What they hold is never part of the code.
    pub dynamic: Option<DynamicBinding>,
    /// About how much memory lookups can touch: whether caches hold it decides how code goes about them.
    pub footprint_bytes: u64,
}

/// What compiled code is told about an extern.
#[derive(Clone, Copy, Debug)]
pub enum ExternBinding {
    /// Cells are in `WorkerCtx::counters`; the number of cells.
    Counter {
        /// Cells.
        size: u64,
    },
    /// Through calls.
    Meter {
        /// Cells.
        size: u64,
    },
    /// `size` cells of [`register_cell_bytes`] each, [`register_stride_bytes`] apart, shared by all workers; a cell of up to
    /// eight bytes, and each word of others, is read and written whole.
    Register {
        /// First cell.
        cells: *mut u64,
        /// Cells.
        size: u64,
        /// Bits of a cell.
        width: u32,
        /// About how much of that packets use.
        footprint_bytes: u64,
        /// If packets lock cells (`ir::atomicity`), the rank of the locks: they are acquired in ascending order. A cell's lock is
        /// the byte right behind its [`register_cell_bytes`]: 0 when it is free, 1 when it is held.
        lock_rank: Option<u32>,
    },
    /// Nothing to bind: action profiles, digests.
    None,
}

/// Bytes of a register's cell: 1, 2, 4 or a multiple of 8, in words with the least significant first; bits above the width
/// are zero.
pub const fn register_cell_bytes(width: u32) -> u32 {
    match width {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => width.div_ceil(64) * 8,
    }
}

/// Bytes from one cell of a register to the next, which may have a lock behind it; cells stay aligned.
pub const fn register_stride_bytes(width: u32, has_locks: bool) -> u32 {
    match register_cell_bytes(width) {
        cell if !has_locks => cell,
        cell @ 0..8 => 2 * cell,
        cell => cell + 8,
    }
}

/// All of a pipeline, by id.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// By `TableId`.
    pub tables: Vec<TableBinding>,
    /// By `ExternId`.
    pub externs: Vec<ExternBinding>,
}

const _: () = assert!(size_of::<TableHandle>() == 16);
