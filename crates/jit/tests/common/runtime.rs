//! The runtime under the compiled code of the tests.

use super::format_log;
use abi::{
    Bindings, EngineKind, EntryHeader, EntryLayout, EntryParts, ExternBinding, KeyLayout, PacketDesc, RuntimeCalls,
    TableBinding,
};
use abi::{TableHandle, WorkerCtx};
use base::Bits;
use base::entry::{ActionCall, EntryAction, GroupMember, KeyMatch, TableEntry};
use interp::state::{choose, field_matches};
use ir::{BinOp, ExternKind, HashAlgorithm, Program};
use jit::{Site, SiteKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tables::Runs;
use tables::entry::{EntryWriter, Tag};

/// The side effects of a run.
#[derive(Default)]
pub struct Effects {
    pub digests: Vec<Vec<Bits>>,
    pub logs: Vec<String>,
    pub failed_assertions: Vec<String>,
    sites: Vec<Site>,
    /// The packets of the digests, the log lines and the failed assertions.
    packets: [Vec<usize>; 3],
}

/// Sorts by packet: staged code reports in its own order.
fn in_order<T>(packets: &[usize], what: Vec<T>) -> Vec<T> {
    let mut all: Vec<(usize, T)> = packets.iter().copied().zip(what).collect();
    all.sort_by_key(|(packet, _)| *packet);
    all.into_iter().map(|(_, what)| what).collect()
}

/// Tables, cells and a record of calls.
pub struct Runtime {
    program: Arc<Program>,
    #[allow(clippy::vec_box, reason = "entries and code hold the addresses")]
    tables: Vec<Box<ScannedTable>>,
    counters: Vec<Vec<[u64; 2]>>,
    counter_bases: Vec<*mut [u64; 2]>,
    pub table_counters: Vec<[u64; 2]>,
    /// The place that watched code stores.
    pub place: AtomicU64,
    /// The place that it had stored when it wrote each log line.
    pub call_sites: Mutex<Vec<u64>>,
    registers: Vec<Vec<u64>>,
    effects: Mutex<Effects>,
    /// Bindings that replace those of the scanned tables.
    pub replaced: Vec<Option<TableBinding>>,
    /// The bytes in use that registers report.
    pub register_bytes: u64,
}

/// A table as a list.
struct ScannedTable {
    handle: TableHandle,
    layout: KeyLayout,
    writer: EntryWriter,
    entries: Vec<(TableEntry, *const EntryHeader)>,
    algorithm: Option<u32>,
}

/// The group of an entry.
struct Group {
    members: Vec<GroupMember>,
    entries: BTreeMap<u32, *const EntryHeader>,
}

impl ScannedTable {
    fn new(program: &Program, table: &ir::Table) -> Box<ScannedTable> {
        let widths: Vec<Vec<u32>> = table
            .actions
            .iter()
            .map(|a| program.actions[a.action.index()].params.iter().map(|(_, w)| *w).collect())
            .collect();
        let parts = EntryParts { group: true, index: true, ..EntryParts::default() };
        let mut new = Box::new(ScannedTable {
            handle: TableHandle {
                snapshot: AtomicPtr::new(std::ptr::null_mut()),
                default_entry: AtomicPtr::new(std::ptr::null_mut()),
            },
            layout: KeyLayout::new(table.keys.iter().map(|k| (k.width, k.kind))),
            writer: EntryWriter::new(&widths, parts),
            entries: Vec::new(),
            algorithm: None,
        });
        let default = make_entry(&new.writer, Runs::Call(&table.default_action), EntryLayout::NO_INDEX);
        new.handle.default_entry.store(default.cast_mut(), Ordering::Release);
        for (i, entry) in table.entries.iter().enumerate() {
            if let EntryAction::Call(call) = &entry.action {
                let made = make_entry(&new.writer, Runs::Call(call), i as u32);
                new.entries.push((entry.clone(), made));
            }
        }
        let this: *mut ScannedTable = &mut *new;
        new.handle.snapshot.store(this.cast(), Ordering::Release);
        new
    }
}

/// An entry in memory that is never freed: tests are short.
fn make_entry(writer: &EntryWriter, runs: Runs<'_>, index: u32) -> *const EntryHeader {
    let cell = vec![0u8; writer.bytes(runs)].leak();
    // SAFETY: the memory is large enough; entries have no time of the last hit.
    unsafe { writer.write(cell.as_mut_ptr(), runs, Tag { index, ..Tag::NONE }) }
}

pub fn words_of_bits(bits: &Bits) -> Vec<u64> {
    let mut bytes = bits.to_bytes_be();
    bytes.reverse();
    bytes.resize(bits.width().div_ceil(64) as usize * 8, 0);
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect()
}

pub fn bits_of_words(width: u32, words: &[u64]) -> Bits {
    let bytes: Vec<u8> = words[..width.div_ceil(64) as usize].iter().rev().flat_map(|w| w.to_be_bytes()).collect();
    Bits::from_bytes_be(bytes.len() as u32 * 8, &bytes).resize_u(width)
}

impl Runtime {
    pub fn new(program: Arc<Program>) -> Box<Runtime> {
        let tables = program.tables.iter().map(|t| ScannedTable::new(&program, t)).collect();
        let mut counters: Vec<Vec<[u64; 2]>> = program
            .externs
            .iter()
            .map(|e| match e.kind {
                ExternKind::Counter { size, .. } => vec![[0; 2]; size as usize],
                _ => Vec::new(),
            })
            .collect();
        let counter_bases =
            counters.iter_mut().map(|c| if c.is_empty() { std::ptr::null_mut() } else { c.as_mut_ptr() }).collect();
        let registers = program
            .externs
            .iter()
            .map(|e| match &e.kind {
                ExternKind::Register { size, width, initial } => {
                    let cell: Vec<u8> = words_of_bits(initial).iter().flat_map(|w| w.to_le_bytes()).collect();
                    let cells = cell[..abi::register_cell_bytes(*width) as usize].repeat(*size as usize);
                    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
                    cells.chunks(8).map(word).collect()
                }
                _ => Vec::new(),
            })
            .collect();
        Box::new(Runtime {
            tables,
            counters,
            counter_bases,
            table_counters: vec![[0; 2]; program.tables.len()],
            place: AtomicU64::new(0),
            call_sites: Mutex::default(),
            registers,
            effects: Mutex::default(),
            replaced: vec![None; program.tables.len()],
            register_bytes: 0,
            program,
        })
    }

    pub fn bindings(&self) -> Bindings {
        let tables = self
            .tables
            .iter()
            .zip(&self.replaced)
            .map(|(t, replaced)| {
                replaced.clone().unwrap_or_else(|| TableBinding {
                    handle: &t.handle,
                    key: t.layout.clone(),
                    engine: if t.layout.fields.is_empty() { EngineKind::Empty } else { EngineKind::Opaque },
                    exact: None,
                    lookup: scan,
                    lookup_batch: scan_batch,
                    select: Some(select),
                    entry: t.writer.layout().clone(),
                    dynamic: None,
                    footprint_bytes: 0,
                })
            })
            .collect();
        let externs = self
            .program
            .externs
            .iter()
            .enumerate()
            .map(|(i, e)| match e.kind {
                ExternKind::Counter { size, .. } => ExternBinding::Counter { size },
                ExternKind::Meter { size, .. } => {
                    ExternBinding::Meter { size, cells: std::ptr::null(), stride_bytes: 64 }
                }
                ExternKind::Register { size, width, .. } => {
                    let cells = self.registers[i].as_ptr().cast_mut();
                    ExternBinding::Register {
                        cells,
                        size,
                        width,
                        footprint_bytes: self.register_bytes,
                        lock_rank: None,
                        is_stepped: false,
                    }
                }
                _ => ExternBinding::None,
            })
            .collect();
        Bindings { tables, externs }
    }

    pub fn ctx(&self) -> WorkerCtx {
        WorkerCtx {
            counters: self.counter_bases.as_ptr(),
            table_counters: self.table_counters.as_ptr().cast_mut(),
            runtime: (self as *const Runtime).cast_mut().cast(),
            worker: 0,
            flags: 0,
            place: self.place.as_ptr(),
        }
    }

    pub fn counter(&self, ext: usize) -> &[[u64; 2]] {
        &self.counters[ext]
    }

    /// The words of all cells of a register.
    pub fn register(&self, ext: usize) -> Vec<u64> {
        let ExternKind::Register { size, width, .. } = self.program.externs[ext].kind else { return Vec::new() };
        let bytes: Vec<u8> = self.registers[ext].iter().flat_map(|w| w.to_le_bytes()).collect();
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
        let cells = bytes.chunks(abi::register_cell_bytes(width).max(1) as usize).take(size as usize);
        cells.flat_map(|cell| cell.chunks(8).map(word).collect::<Vec<u64>>()).collect()
    }

    /// Adds an entry with a group of members.
    pub fn insert_group(&mut self, table: usize, key: Vec<KeyMatch>, members: &[(GroupMember, ActionCall)]) {
        let t = &mut self.tables[table];
        let group = Group {
            members: members.iter().map(|(m, _)| m.clone()).collect(),
            entries: members
                .iter()
                .map(|(m, call)| (m.member, make_entry(&t.writer, Runs::Call(call), EntryLayout::NO_INDEX)))
                .collect(),
        };
        let group: *const Group = Box::leak(Box::new(group));
        let index = t.entries.len() as u32;
        let made = make_entry(&t.writer, Runs::Group(group.cast()), index);
        let entry = TableEntry { key, priority: 0, action: EntryAction::Group(0), idle_timeout_ns: 0 };
        t.entries.push((entry, made));
    }

    pub fn begin(&self, sites: &[Site]) {
        let mut effects = self.effects.lock().expect("not poisoned");
        *effects = Effects { sites: sites.to_vec(), ..Effects::default() };
    }

    pub fn end(&self) -> Effects {
        let mut effects = std::mem::take(&mut *self.effects.lock().expect("not poisoned"));
        effects.digests = in_order(&effects.packets[0], effects.digests);
        effects.logs = in_order(&effects.packets[1], effects.logs);
        effects.failed_assertions = in_order(&effects.packets[2], effects.failed_assertions);
        effects
    }
}

pub fn calls() -> RuntimeCalls {
    RuntimeCalls { meter, hash, random, digest, log, assert_failed, wide_bin, make_headroom, wait_for_lock }
}

/// # Safety
/// `ctx` is one of [`Runtime::ctx`].
unsafe fn runtime<'a>(ctx: *const WorkerCtx) -> &'a Runtime {
    // SAFETY: the runtime outlives every run.
    unsafe { &*(*ctx).runtime.cast::<Runtime>() }
}

unsafe extern "C" fn scan(handle: *const TableHandle, key: *const u8) -> *const EntryHeader {
    // SAFETY: the snapshot is the table, the key has its layout.
    let (table, key) = unsafe {
        let table = &*(*handle).snapshot.load(Ordering::Acquire).cast::<ScannedTable>();
        (table, std::slice::from_raw_parts(key, table.layout.bytes as usize))
    };
    let mut known = vec![false; key.len()];
    let values: Vec<Bits> = table
        .layout
        .fields
        .iter()
        .map(|f| {
            let bytes = &key[f.offset as usize..(f.offset + f.bytes) as usize];
            known[f.offset as usize..(f.offset + f.bytes) as usize].fill(true);
            let mut big_endian = bytes.to_vec();
            big_endian.reverse();
            let whole = Bits::from_bytes_be(f.bytes * 8, &big_endian);
            assert!(f.width == f.bytes * 8 || whole.lshr(f.width.into()).is_zero(), "garbage above a key field");
            whole.resize_u(f.width)
        })
        .collect();
    assert!(key.iter().zip(known).all(|(&b, known)| known || b == 0), "garbage between key fields");
    let mut best: Option<(i32, u32, *const EntryHeader)> = None;
    for (entry, made) in &table.entries {
        if entry.key.iter().zip(&values).all(|(m, v)| field_matches(m, v)) {
            let prefix =
                entry.key.iter().map(|m| if let KeyMatch::Lpm { prefix_len, .. } = m { *prefix_len } else { 0 }).sum();
            if best.is_none_or(|(p, l, _)| (entry.priority, prefix) > (p, l)) {
                best = Some((entry.priority, prefix, *made));
            }
        }
    }
    best.map_or(std::ptr::null(), |(_, _, made)| made)
}

unsafe extern "C" fn scan_batch(handle: *const TableHandle, keys: *const u8, count: u32, out: *mut *const EntryHeader) {
    for i in 0..count as usize {
        // SAFETY: the snapshot is the table; there are `count` keys of its layout and places for their entries.
        unsafe {
            let bytes = (*(*handle).snapshot.load(Ordering::Acquire).cast::<ScannedTable>()).layout.bytes as usize;
            out.add(i).write(scan(handle, keys.add(i * bytes)));
        }
    }
}

unsafe extern "C" fn select(group: *const c_void, hash: u64) -> *const EntryHeader {
    // SAFETY: compiled code calls this for entries with a group only.
    let group = unsafe { &*group.cast::<Group>() };
    choose(&group.members, &BTreeSet::new(), hash).map_or(std::ptr::null(), |m| group.entries[&m])
}

unsafe extern "C" fn meter(_: *const WorkerCtx, ext: u32, index: u64, bytes: u32, _before: u32) -> u32 {
    // No meter of the tests is configured; the arguments are checked all the same.
    assert!(ext < 64 && bytes > 0 && index < u64::MAX);
    0
}

unsafe extern "C" fn hash(
    _: *const WorkerCtx,
    algorithm: u32,
    data: *const u8,
    bits: u32,
    payload: *const u8,
    payload_len: u32,
) -> u64 {
    let algorithm = [
        HashAlgorithm::Crc32,
        HashAlgorithm::Crc32Custom,
        HashAlgorithm::Crc16,
        HashAlgorithm::Crc16Custom,
        HashAlgorithm::CrcCcitt,
        HashAlgorithm::Random,
        HashAlgorithm::Identity,
        HashAlgorithm::Csum16,
        HashAlgorithm::Xor16,
        HashAlgorithm::Xor32,
        HashAlgorithm::Crc8,
        HashAlgorithm::Crc64,
        HashAlgorithm::Xxh64,
    ]
    .into_iter()
    .find(|a| a.code() == algorithm)
    .expect("a known algorithm");
    let slice = |at: *const u8, len: usize| {
        if len == 0 {
            &[]
        } else {
            // SAFETY: the caller says how long the data are.
            unsafe { std::slice::from_raw_parts(at, len) }
        }
    };
    let (data, payload) = (slice(data, bits.div_ceil(8) as usize), slice(payload, payload_len as usize));
    let whole = Bits::from_bytes_be(data.len() as u32 * 8, data);
    let padding = data.len() as u32 * 8 - bits;
    assert!(padding == 0 || whole.resize_u(padding).is_zero(), "garbage behind the data of a hash");
    interp::hash::hash(algorithm, &whole.lshr(padding.into()).resize_u(bits), payload).expect("not random")
}

unsafe extern "C" fn random(_: *const WorkerCtx, low: u64, high: u64) -> u64 {
    assert!(low <= high);
    low + (high - low) / 2
}

unsafe extern "C" fn digest(ctx: *const WorkerCtx, packet: *const PacketDesc, ext: u32, words: *const u64, count: u32) {
    // SAFETY: compiled code gives its words.
    let (runtime, words) = unsafe { (runtime(ctx), std::slice::from_raw_parts(words, count as usize)) };
    let ExternKind::Digest { fields } = &runtime.program.externs[ext as usize].kind else { panic!("no digest") };
    let mut at = 0;
    let values = fields
        .iter()
        .map(|(_, width)| {
            let value = bits_of_words(*width, &words[at..]);
            at += width.div_ceil(64) as usize;
            value
        })
        .collect();
    assert_eq!(at, words.len());
    let mut effects = runtime.effects.lock().expect("not poisoned");
    effects.digests.push(values);
    effects.packets[0].push(packet.addr());
}

unsafe extern "C" fn log(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32, words: *const u64, count: u32) {
    // SAFETY: compiled code gives its words.
    let (runtime, words) = unsafe { (runtime(ctx), std::slice::from_raw_parts(words, count as usize)) };
    let mut effects = runtime.effects.lock().expect("not poisoned");
    let line = format_log(&effects.sites[id as usize], words);
    effects.logs.push(line);
    runtime.call_sites.lock().expect("not poisoned").push(runtime.place.load(Ordering::Relaxed));
    effects.packets[1].push(packet.addr());
}

unsafe extern "C" fn assert_failed(ctx: *const WorkerCtx, packet: *const PacketDesc, id: u32) {
    // SAFETY: compiled code gives its context.
    let mut effects = unsafe { runtime(ctx) }.effects.lock().expect("not poisoned");
    let site = effects.sites[id as usize].clone();
    assert_eq!(site.kind, SiteKind::Assert);
    effects.failed_assertions.push(site.text);
    effects.packets[2].push(packet.addr());
}

unsafe extern "C" fn wide_bin(op: u32, width: u32, dst: *mut u64, a: *const u64, b: *const u64) {
    const OPS: [BinOp; 21] = [
        BinOp::Add,
        BinOp::Sub,
        BinOp::Mul,
        BinOp::Div,
        BinOp::Mod,
        BinOp::And,
        BinOp::Or,
        BinOp::Xor,
        BinOp::Shl,
        BinOp::Lshr,
        BinOp::Ashr,
        BinOp::SatAddU,
        BinOp::SatSubU,
        BinOp::SatAddS,
        BinOp::SatSubS,
        BinOp::Eq,
        BinOp::Ne,
        BinOp::Ult,
        BinOp::Ule,
        BinOp::Slt,
        BinOp::Sle,
    ];
    let op = OPS[op as usize];
    let n = width.div_ceil(64) as usize;
    let shift = matches!(op, BinOp::Shl | BinOp::Lshr | BinOp::Ashr);
    // SAFETY: operands have the words of their width, a shift's amount has one.
    let (x, y) = unsafe {
        let y = std::slice::from_raw_parts(b, if shift { 1 } else { n });
        (bits_of_words(width, std::slice::from_raw_parts(a, n)), y)
    };
    let result = if shift {
        match op {
            BinOp::Shl => x.shl(y[0]),
            BinOp::Lshr => x.lshr(y[0]),
            _ => x.ashr(y[0]),
        }
    } else {
        let y = bits_of_words(width, y);
        match op {
            BinOp::Add => x.add(&y),
            BinOp::Sub => x.sub(&y),
            BinOp::Mul => x.mul(&y),
            BinOp::Div => x.div_u(&y).unwrap_or_else(|| Bits::ones(width)),
            BinOp::Mod => x.mod_u(&y).unwrap_or(x),
            BinOp::SatAddU => x.sat_add_u(&y),
            BinOp::SatSubU => x.sat_sub_u(&y),
            BinOp::SatAddS => x.sat_add_s(&y),
            BinOp::SatSubS => x.sat_sub_s(&y),
            BinOp::Ult => Bits::from_bool(x.ult(&y)),
            BinOp::Ule => Bits::from_bool(x.ule(&y)),
            BinOp::Slt => Bits::from_bool(x.slt(&y)),
            BinOp::Sle => Bits::from_bool(x.sle(&y)),
            _ => panic!("{op:?} is inline at every width"),
        }
    };
    for (i, word) in words_of_bits(&result).into_iter().enumerate() {
        // SAFETY: the destination has the words of the result.
        unsafe { dst.add(i).write(word) };
    }
}

unsafe extern "C" fn wait_for_lock(_: *const WorkerCtx, _: *const u8) {
    unreachable!("one worker waits for nobody");
}

unsafe extern "C" fn make_headroom(_: *const WorkerCtx, packet: *mut PacketDesc, need: u32) -> bool {
    // Moves the frame to the end of its buffer.
    // SAFETY: the descriptor describes the buffer correctly.
    unsafe {
        let p = &mut *packet;
        if need > p.headroom + p.tailroom {
            return false;
        }
        let by = p.tailroom as usize;
        std::ptr::copy(p.data, p.data.add(by), p.len as usize);
        p.data = p.data.add(by);
        p.headroom += p.tailroom;
        p.tailroom = 0;
    }
    true
}
