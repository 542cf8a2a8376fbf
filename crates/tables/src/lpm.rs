//! Longest prefix match: one `lpm` field, with or without exact fields beside it.
//!
//! The prefix field is matched in a multi-bit trie ([`trie`]). With exact fields (a VRF, say) there is one trie for
//! each combination of their values, found in a hash table ([`crate::map`]). A trie starts as a list of a few prefixes,
//! so many small ones cost little. The exact fields may have up to 16 bytes, the prefix field up to 128 bits; larger
//! keys are matched by [`crate::ternary`], with one tuple per prefix length.
//!
//! Large tables whose key is one field of up to 32 bits use DIR-16-8-8 instead ([`dir1688`]), as long as they have few
//! enough different entries; readers, and compiled code without a call, look keys up there.
//!
//! `TableHandle::snapshot` points at an [`LpmShared`], which lives as long as the table; its contents change. [`node`]
//! has the layout of the rest.
//!
//! Cost: an insertion copies one node or short list, or writes the directory places that the prefix covers (32,768 for
//! a /1), whatever the size of the table.
//!
//! Threads: one writer, any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

pub mod allocator;
pub mod dir1688;
pub mod node;
mod plan;
pub mod trie;
pub mod walk;
pub mod word;

use crate::engine::{Engine, Rank, Writing};
use crate::key::KeyShape;
use crate::map::{self, MapSnapshot, OldArray, PointerMap};
use crate::reclaim::{Domain, Limbo};
use crate::sync::CachePadded;
use crate::version::Version;
use abi::table::{LookupBatchFn, LookupFn};
use abi::{EngineKind, EntryHeader, TableHandle};
use allocator::{NodeAllocator, Unlinked};
use dir1688::{Dir1688, Full, UnlinkedResource};
use node::{Place, Runs};
use plan::{Plan, set_prefix};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use trie::{Directory, Root, Trie};
use walk::{BATCH, prefetch, walk, walk_batch};
use word::{DIRECTORY_BITS, Prefix, Word};

/// Width limit of the prefix field in bits.
pub const MAX_WIDTH: u32 = 128;
/// Declared size from which a table gets a directory of the first 16 bits (0.6 MB, of which only touched pages count).
const DIRECTORY_FROM_SIZE: u64 = 256;

/// Declared size from which a table uses DIR-16-8-8.
const DIR1688_FROM_SIZE: u64 = 256;

/// Unlinked nodes and lists that are retired together in one epoch.
const RETIRED_TOGETHER: usize = 32;
/// Insertions of a long change after which reclaimable memory is collected.
const COLLECT_INTERVAL: usize = 64;

/// The part of the engine that readers see; its address is fixed for the life of the table.
#[derive(Debug)]
#[repr(C)]
pub struct LpmShared {
    /// The directory of the DIR-16-8-8 structure ([`dir1688`]). Null before the first prefix, and after there were too
    /// many entries.
    pub dir1688: AtomicPtr<u8>,
    /// The trie of a table without exact fields.
    pub root: Root,
    /// The trie's directory, or null.
    pub directory: *const Place,
    /// With exact fields: a map from their values to [`Group`]s, each with the root of a trie. Otherwise null.
    groups: AtomicPtr<MapSnapshot>,
    version: Version,
    plan: Plan,
}

/// The trie for one combination of the exact fields' values.
#[repr(C)]
struct Group {
    root: Root,
    /// Number of prefixes, used by the writer only. On another cache line than the root, which readers read all the
    /// time.
    len: CachePadded<usize>,
}

enum Retired {
    Memory(Unlinked),
    Group(*mut Group),
    Array(OldArray),
    Dir1688(Box<Dir1688>),
    /// A resource of the DIR-16-8-8 structure; nothing to free if that was dropped meanwhile.
    OfDir1688(UnlinkedResource),
}

/// The writer's state of the DIR-16-8-8 structure ([`dir1688`]).
enum Dir1688State {
    /// Not used by this table, or abandoned.
    Never,
    /// To be made with the first prefix.
    Later,
    Now(Box<Dir1688>),
}

/// The writer's side; `T` is the word that holds values of the prefix field.
pub(crate) struct Lpm<T: Word> {
    shared: Box<LpmShared>,
    directory: Option<Directory>,
    dir1688_state: Dir1688State,
    groups: Option<PointerMap>,
    unlinked: Vec<Unlinked>,
    runs: Runs,
    allocator: NodeAllocator,
    limbo: Limbo<Retired>,
    word: PhantomData<T>,
}

// SAFETY: the pointers point at memory that the engine owns.
unsafe impl<T: Word> Send for Lpm<T> {}

/// The engine for keys of this shape in a table of this size; `None` if it needs another engine.
pub(crate) fn engine(shape: &KeyShape, size: u64) -> Option<Box<dyn Engine>> {
    let plan = Plan::new(shape)?;
    Some(match plan.prefix.width {
        0..=32 => Box::new(Lpm::<u32>::new(plan, size)),
        33..=64 => Box::new(Lpm::<u64>::new(plan, size)),
        _ => Box::new(Lpm::<u128>::new(plan, size)),
    })
}

impl LpmShared {
    /// The entry that matches a key, or null. `PLAIN` is [`Plan::plain`].
    ///
    /// # Safety
    /// The key has the table's layout, `T` is the table's word, and the caller is online: linked memory is not freed
    /// before its next quiescent point.
    #[inline(always)]
    unsafe fn find<T: Word, const PLAIN: bool>(&self, key: *const u8) -> *const EntryHeader {
        // SAFETY: the caller's promise; a directory has a place for each index.
        unsafe {
            let value = self.key_value::<T, PLAIN>(key);
            let exact = if PLAIN { [0; 2] } else { self.plan.exact(key) };
            // No closures here: they would be compiled without the caller's target features.
            loop {
                let before = self.version.begin();
                let found = self.find_once::<T, PLAIN>(value, exact);
                if self.version.is_still(before) {
                    return found;
                }
            }
        }
    }

    /// # Safety
    /// As [`LpmShared::find`].
    #[inline(always)]
    unsafe fn find_once<T: Word, const PLAIN: bool>(&self, value: T, exact: [u64; 2]) -> *const EntryHeader {
        // SAFETY: the caller's promise; a directory has a place for each index.
        unsafe {
            if !PLAIN && !self.plan.exact.is_empty() {
                let group = map::probe(self.groups.load(Ordering::Acquire), exact).cast::<Group>();
                let Some(group) = group.as_ref() else { return ptr::null_mut() };
                let best = group.root.default.load(Ordering::Acquire);
                return walk(group.root.place.load(Ordering::Acquire), value, 0, best);
            }
            let best = self.root.default.load(Ordering::Acquire);
            if T::BITS == 32 {
                let dir1688 = self.dir1688.load(Ordering::Acquire);
                if !dir1688.is_null() {
                    let found = dir1688::find(dir1688, dir1688_key(value));
                    return if found.is_null() { best } else { found };
                }
            }
            if self.directory.is_null() {
                return walk(self.root.place.load(Ordering::Acquire), value, 0, best);
            }
            let place = &*self.directory.add(value.directory_index());
            walk(place.load(Ordering::Acquire), value, DIRECTORY_BITS, best)
        }
    }

    /// # Safety
    /// As [`LpmShared::find`].
    #[inline(always)]
    unsafe fn key_value<T: Word, const PLAIN: bool>(&self, key: *const u8) -> T {
        // SAFETY: the caller's promise; a plain key is one word of type `T`.
        unsafe { if PLAIN { key.cast::<T>().read_unaligned() } else { self.plan.value(key) } }
    }

    /// Looks up as many keys as there are results; each as [`LpmShared::find`].
    ///
    /// # Safety
    /// As there, for each key.
    #[inline(always)]
    unsafe fn find_all<T: Word, const PLAIN: bool>(&self, keys: *const u8, result: &mut [*const EntryHeader]) {
        let bytes = self.plan.bytes;
        for (chunk, result) in result.chunks_mut(BATCH).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let keys = keys.add(chunk * BATCH * bytes);
                let before = self.version.begin();
                self.find_batch::<T, PLAIN>(keys, result);
                if !self.version.is_still(before) {
                    // One by one: a writer that keeps removing prefixes would otherwise make whole batches be looked up
                    // again and again.
                    for (i, result) in result.iter_mut().enumerate() {
                        *result = self.find::<T, PLAIN>(keys.add(i * bytes));
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`LpmShared::find`] for each key; there are at most [`BATCH`].
    #[inline(always)]
    unsafe fn find_batch<T: Word, const PLAIN: bool>(&self, keys: *const u8, result: &mut [*const EntryHeader]) {
        let count = result.len();
        let (mut values, mut contents) = ([T::ZERO; BATCH], [ptr::null_mut(); BATCH]);
        let mut depth = 0;
        // SAFETY: the caller's promise; a directory has a place for each index.
        unsafe {
            for (i, value) in values[..count].iter_mut().enumerate() {
                *value = self.key_value::<T, PLAIN>(keys.add(i * self.plan.bytes));
            }
            if PLAIN || self.plan.exact.is_empty() {
                let best = self.root.default.load(Ordering::Acquire);
                result.fill(best);
                let dir1688 = self.dir1688.load(Ordering::Acquire);
                if T::BITS == 32 && !dir1688.is_null() {
                    values[..count]
                        .iter()
                        .for_each(|value| prefetch(dir1688::place_of(dir1688, dir1688_key(*value)).cast()));
                    for (result, value) in result.iter_mut().zip(&values[..count]) {
                        let found = dir1688::find(dir1688, dir1688_key(*value));
                        *result = if found.is_null() { best } else { found };
                    }
                    return result.iter().for_each(|entry| prefetch(entry.cast()));
                }
                if self.directory.is_null() {
                    contents[..count].fill(self.root.place.load(Ordering::Acquire));
                } else {
                    depth = DIRECTORY_BITS;
                    values[..count].iter().for_each(|v| prefetch(self.directory.add(v.directory_index()).cast()));
                    for (content, value) in contents.iter_mut().zip(&values[..count]) {
                        *content = (*self.directory.add(value.directory_index())).load(Ordering::Acquire);
                    }
                }
            } else {
                let groups = self.groups.load(Ordering::Acquire);
                for i in 0..count {
                    let exact = self.plan.exact(keys.add(i * self.plan.bytes));
                    let group = map::probe(groups, exact).cast::<Group>().as_ref();
                    result[i] = group.map_or(ptr::null(), |g| g.root.default.load(Ordering::Acquire).cast_const());
                    contents[i] = group.map_or(ptr::null_mut(), |g| g.root.place.load(Ordering::Acquire));
                }
            }
            walk_batch(&values[..count], &mut contents[..count], depth, result);
        }
        result.iter().for_each(|entry| prefetch(entry.cast()));
    }
}

/// A 32-bit value as a key of [`dir1688`].
#[inline(always)]
fn dir1688_key<T: Word>(value: T) -> u32 {
    value.number(T::BITS) as u32
}

/// The lookup functions, compiled twice: for any processor, and for those with `popcnt`, `lzcnt` and BMI.
macro_rules! lookups {
    ($module:ident $(, $feature:meta)?) => {
        mod $module {
            use super::*;

            /// Looks a key up; see [`LookupFn`].
            $(#[$feature])?
            pub(super) unsafe extern "C" fn one<T: Word, const PLAIN: bool>(
                handle: *const TableHandle,
                key: *const u8,
            ) -> *const EntryHeader {
                // SAFETY: the caller passes a handle of such a table and a key of its layout, and is online.
                unsafe {
                    let shared = &*(*handle).snapshot.load(Ordering::Acquire).cast::<LpmShared>();
                    shared.find::<T, PLAIN>(key)
                }
            }

            /// Looks keys up; see [`LookupBatchFn`].
            $(#[$feature])?
            pub(super) unsafe extern "C" fn many<T: Word, const PLAIN: bool>(
                handle: *const TableHandle,
                keys: *const u8,
                count: u32,
                out: *mut *const EntryHeader,
            ) {
                // SAFETY: the caller passes a handle of such a table, keys of its layout and room for their entries,
                // and is online. What is in `out` is not read.
                unsafe {
                    let shared = &*(*handle).snapshot.load(Ordering::Acquire).cast::<LpmShared>();
                    for i in 0..count as usize {
                        out.add(i).write(ptr::null());
                    }
                    shared.find_all::<T, PLAIN>(keys, std::slice::from_raw_parts_mut(out, count as usize));
                }
            }
        }
    };
}

lookups!(portable);
#[cfg(target_arch = "x86_64")]
lookups!(counting, target_feature(enable = "popcnt,lzcnt,bmi1,bmi2"));

/// The lookup functions for this processor.
fn lookups<T: Word, const PLAIN: bool>() -> (LookupFn, LookupBatchFn) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
        {
            return (counting::one::<T, PLAIN>, counting::many::<T, PLAIN>);
        }
    }
    (portable::one::<T, PLAIN>, portable::many::<T, PLAIN>)
}

/// A prefix of a 32-bit value as [`dir1688`] takes it.
fn dir1688_prefix<T: Word>(prefix: Prefix<T>) -> Prefix<u32> {
    Prefix { value: dir1688_key(prefix.value), len: prefix.len }
}

impl<T: Word> Lpm<T> {
    fn new(plan: Plan, size: u64) -> Lpm<T> {
        let grouped = !plan.exact.is_empty();
        let large = size >= DIRECTORY_FROM_SIZE && plan.prefix.width > DIRECTORY_BITS;
        let directory = (large && !grouped).then(Directory::new);
        let groups = grouped.then(PointerMap::new);
        let can_use_dir1688 = T::BITS == 32 && size >= DIR1688_FROM_SIZE && !grouped;
        let shared = Box::new(LpmShared {
            dir1688: AtomicPtr::new(ptr::null_mut()),
            root: Root::new(),
            directory: directory.as_ref().map_or(ptr::null(), Directory::places),
            groups: AtomicPtr::new(groups.as_ref().map_or(ptr::null_mut(), |g| g.snapshot().cast_mut())),
            version: Version::new(),
            plan,
        });
        Lpm {
            shared,
            directory,
            dir1688_state: if can_use_dir1688 { Dir1688State::Later } else { Dir1688State::Never },
            groups,
            unlinked: Vec::new(),
            runs: Runs::default(),
            allocator: NodeAllocator::default(),
            limbo: Limbo::default(),
            word: PhantomData,
        }
    }

    fn lookups(&self) -> (LookupFn, LookupBatchFn) {
        if self.shared.plan.plain { lookups::<T, true>() } else { lookups::<T, false>() }
    }

    /// The trie with a root, which is the shared one or that of a live group.
    fn trie(&mut self, root: *const Root) -> Trie<'_, T> {
        // SAFETY: both kinds of roots stay where they are as long as `self` is borrowed.
        let root = unsafe { &*root };
        Trie {
            root,
            directory: self.directory.as_mut(),
            unlinked: &mut self.unlinked,
            runs: &mut self.runs,
            allocator: &mut self.allocator,
            word: PhantomData,
        }
    }

    /// Retires unlinked memory once enough has accumulated: each new epoch is a store to a cache line that all workers
    /// read.
    fn retire(&mut self, domain: &Domain) {
        let resources = match &mut self.dir1688_state {
            Dir1688State::Now(dir1688) => &mut dir1688.unlinked,
            _ => &mut Vec::new(),
        };
        if self.unlinked.len() + resources.len() >= RETIRED_TOGETHER {
            let bytes = |resources: &UnlinkedResource| match resources {
                UnlinkedResource::Memory(unlinked) => unlinked.bytes(),
                UnlinkedResource::Number(_) => 0,
            };
            let bytes = self.unlinked.iter().map(Unlinked::bytes).chain(resources.iter().map(bytes)).sum();
            let epoch = domain.advance_by(bytes);
            self.unlinked.drain(..).for_each(|unlinked| self.limbo.push(epoch, Retired::Memory(unlinked)));
            resources.drain(..).for_each(|resources| self.limbo.push(epoch, Retired::OfDir1688(resources)));
        }
    }

    /// The DIR-16-8-8 structure, made if it is due; `None` if the table does not use it.
    fn dir1688(&mut self) -> Option<&mut Dir1688> {
        if let Dir1688State::Later = self.dir1688_state {
            self.dir1688_state = Dir1688State::Now(Box::default());
        }
        match &mut self.dir1688_state {
            Dir1688State::Now(dir1688) => Some(dir1688),
            _ => None,
        }
    }

    /// Changes a prefix, which is not empty, in the DIR-16-8-8 structure. Returns false if the trie holds the prefixes
    /// instead; if the change needs too many next-hop indices, all prefixes move to the trie first.
    fn change_dir1688(
        &mut self,
        w: &Writing<'_>,
        packed: &[u64],
        change: impl FnOnce(&mut Dir1688) -> Result<(), Full>,
    ) -> bool {
        let Some(dir1688) = self.dir1688() else { return false };
        let (directory, result) = (dir1688.directory(), change(dir1688));
        if result.is_ok() {
            // Stored only once: readers have this cache line, and a store would invalidate it.
            if self.shared.dir1688.load(Ordering::Relaxed).is_null() {
                self.shared.dir1688.store(directory.cast_mut(), Ordering::Release);
            }
            return true;
        }
        let Dir1688State::Now(dir1688) = std::mem::replace(&mut self.dir1688_state, Dir1688State::Never) else {
            unreachable!("it is there")
        };
        let (mut key, field) = (packed.to_vec(), self.shared.plan.prefix.clone());
        for (i, prefix) in dir1688.prefixes().into_iter().enumerate() {
            let prefix = Prefix { value: T::align(prefix.value.into(), u32::BITS), len: prefix.len };
            set_prefix(&field, prefix, &mut key);
            self.trie(&raw const self.shared.root).insert(prefix, (w.stored)(&key));
            // Replaced nodes are reused as soon as no reader has them: together they would take several times the
            // trie's memory.
            self.retire(w.domain);
            if i % COLLECT_INTERVAL == COLLECT_INTERVAL - 1 {
                self.collect(w.domain);
            }
        }
        // Compiled code has the structure's address as a constant. Until it is replaced its results are those of the
        // table as it was; for a result of 0 it calls the engine.
        w.domain.invalidate();
        // Makes readers that still use the structure retry: they must not combine its missing results with a newer
        // default.
        self.shared.version.change();
        self.shared.dir1688.store(ptr::null_mut(), Ordering::Release);
        self.limbo.push(w.domain.advance(), Retired::Dir1688(dir1688));
        false
    }

    /// The group of a packed key's exact fields, or null.
    fn group(&self, packed: &[u64]) -> *mut Group {
        // SAFETY: the first half of a packed key has the key's layout.
        let exact = || unsafe { self.shared.plan.exact(packed.as_ptr().cast()) };
        self.groups.as_ref().map_or(ptr::null_mut(), |groups| groups.get(exact()).cast())
    }

    /// The root of the trie for a packed key; its group, if any, exists.
    fn root(&self, packed: &[u64]) -> *const Root {
        let group = self.group(packed);
        // SAFETY: groups live until they are removed from the map and retired.
        if group.is_null() { &self.shared.root } else { unsafe { &(*group).root } }
    }

    fn group_or_new(&mut self, packed: &[u64], domain: &Domain) -> *mut Group {
        let group = self.group(packed);
        let Some(groups) = self.groups.as_mut().filter(|_| group.is_null()) else { return group };
        // SAFETY: the first half of a packed key has the key's layout.
        let exact = unsafe { self.shared.plan.exact(packed.as_ptr().cast()) };
        if groups.is_crowded() {
            let old = groups.grow(domain);
            self.shared.groups.store(groups.snapshot().cast_mut(), Ordering::Release);
            self.limbo.push(domain.advance(), Retired::Array(old));
        }
        let group = Box::into_raw(Box::new(Group { root: Root::new(), len: CachePadded(0) }));
        groups.insert(exact, group.cast(), domain);
        group
    }
}

impl<T: Word> Engine for Lpm<T> {
    fn kind(&self) -> EngineKind {
        // Compiled code takes the first word of the key for the address, so keys of several fields are opaque to it.
        match self.dir1688_state {
            Dir1688State::Never => EngineKind::Opaque,
            _ => EngineKind::Prefixes,
        }
    }

    fn lookup(&self) -> LookupFn {
        self.lookups().0
    }

    fn lookup_batch(&self) -> LookupBatchFn {
        self.lookups().1
    }

    fn snapshot(&self) -> *const c_void {
        (&raw const *self.shared).cast()
    }

    fn snapshot_words(&self) -> Vec<u64> {
        match &self.dir1688_state {
            Dir1688State::Now(dir1688) => vec![dir1688.directory().expose_provenance() as u64],
            _ => Vec::new(),
        }
    }

    fn prefetch(&self, packed: &[u64]) {
        let prefix = self.shared.plan.prefix::<T>(packed);
        if let Dir1688State::Now(dir1688) = &self.dir1688_state {
            dir1688.prefetch(dir1688_prefix(prefix));
        } else if let Some(directory) = self.directory.as_ref().filter(|_| prefix.len > DIRECTORY_BITS) {
            directory.prefetch(prefix.value);
        }
    }

    fn insert(&mut self, w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        let group = self.group_or_new(packed, w.domain);
        if !group.is_null() {
            // SAFETY: the group is alive; `len` is the writer's.
            unsafe { (*group).len.0 += 1 };
        }
        let prefix = self.shared.plan.prefix(packed);
        let insert = |dir1688: &mut Dir1688| dir1688.insert(dir1688_prefix(prefix), entry);
        if prefix.len == 0 || !self.change_dir1688(w, packed, insert) {
            self.trie(self.root(packed)).insert(prefix, entry);
        }
        self.retire(w.domain);
    }

    fn replace(&mut self, w: &Writing<'_>, packed: &[u64], _rank: Rank, entry: *mut EntryHeader) {
        let prefix = self.shared.plan.prefix(packed);
        let replace = |dir1688: &mut Dir1688| dir1688.replace(dir1688_prefix(prefix), w.old, entry);
        if prefix.len == 0 || !self.change_dir1688(w, packed, replace) {
            self.trie(self.root(packed)).replace(prefix, entry);
        }
        self.retire(w.domain);
    }

    fn remove(&mut self, w: &Writing<'_>, packed: &[u64], _rank: Rank) {
        self.shared.version.change();
        let prefix = self.shared.plan.prefix::<T>(packed);
        let root = self.root(packed);
        let mut key = packed.to_vec();
        let field = self.shared.plan.prefix.clone();
        let mut stored = |shorter: Prefix<T>| {
            set_prefix(&field, shorter, &mut key);
            (w.stored)(&key)
        };
        match &mut self.dir1688_state {
            Dir1688State::Now(dir1688) if prefix.len > 0 => {
                let mut stored = |len| stored(Prefix { value: prefix.value.prefix(len), len });
                dir1688.remove(dir1688_prefix(prefix), w.old, &mut stored);
            }
            _ => self.trie(root).remove(prefix, &mut stored),
        }
        self.retire(w.domain);
        let group = self.group(packed);
        if let Some(groups) = self.groups.as_mut() {
            // SAFETY: the entry was in this group, so it exists; `len` is the writer's.
            let len = unsafe {
                (*group).len.0 -= 1;
                (*group).len.0
            };
            if len == 0 {
                // SAFETY: the first half of a packed key has the key's layout.
                let exact = unsafe { self.shared.plan.exact(packed.as_ptr().cast()) };
                if let Some((_, epoch)) = groups.remove(exact, w.domain) {
                    self.limbo.push(epoch, Retired::Group(group));
                }
            }
        }
    }

    fn collect(&mut self, domain: &Domain) {
        let Lpm { limbo, allocator, dir1688_state, .. } = self;
        // SAFETY: what comes out of limbo was unlinked, and every worker has been quiescent since.
        limbo.collect(domain, |retired| unsafe { retired.free(allocator, dir1688_state) });
    }
}

impl<T: Word> Drop for Lpm<T> {
    /// There are no readers any more.
    fn drop(&mut self) {
        let Lpm { shared, directory, groups, unlinked, limbo, allocator, dir1688_state, .. } = self;
        let mut clear = |root: &Root, directory: Option<&mut Directory>| {
            trie::clear::<T>(root, directory, unlinked);
        };
        clear(&shared.root, directory.as_mut());
        for (_, group) in groups.iter().flat_map(PointerMap::iter) {
            let group = group.cast::<Group>();
            // SAFETY: the map holds live groups that were boxed.
            let group = unsafe { Box::from_raw(group) };
            clear(&group.root, None);
        }
        // SAFETY: nothing is linked any more, and there are no readers.
        unlinked.drain(..).for_each(|unlinked| unsafe { allocator.release(unlinked) });
        // SAFETY: as above.
        limbo.drain().for_each(|retired| unsafe { retired.free(allocator, dir1688_state) });
    }
}

impl Retired {
    /// # Safety
    /// No reader can see it any more.
    unsafe fn free(self, allocator: &mut NodeAllocator, dir1688_state: &mut Dir1688State) {
        match self {
            // SAFETY: the caller's promise.
            Retired::Memory(unlinked) => unsafe { allocator.release(unlinked) },
            // SAFETY: groups are boxed, and retired once, when they are empty.
            Retired::Group(group) => drop(unsafe { Box::from_raw(group) }),
            Retired::Array(old) => drop(old),
            Retired::Dir1688(dir1688) => drop(dir1688),
            Retired::OfDir1688(resources) => {
                if let Dir1688State::Now(dir1688) = dir1688_state {
                    // SAFETY: as above; a table makes this structure only once, so the resource is its own.
                    unsafe { dir1688.free(resources) };
                }
            }
        }
    }
}
