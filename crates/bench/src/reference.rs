//! Safe wrappers of the C references, which `bench/reference/reference.h` declares.
//!
//! A [`Reference`] owns its state and frees it. It runs batches behind the same trait as compiled programs. The layouts
//! are asserted on both sides: here and in `abi::packet`, and in `bench/reference/reference.h`.
#![allow(unsafe_code)]

use crate::entry::Entry;
use abi::packet::Batch;
use anyhow::{Result, ensure};
use datapath::executor::Executor;
use ir::EntryKind;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// `struct reference`.
#[repr(C)]
pub struct Functions {
    name: *const c_char,
    kinds: *const *const c_char,
    create: unsafe extern "C" fn() -> *mut c_void,
    insert: unsafe extern "C" fn(*mut c_void, *const Entry) -> c_int,
    commit: unsafe extern "C" fn(*mut c_void) -> c_int,
    plain: unsafe extern "C" fn(*mut c_void, *mut Batch),
    batched: unsafe extern "C" fn(*mut c_void, *mut Batch),
    destroy: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the pointers are to constants.
unsafe impl Sync for Functions {}

unsafe extern "C" {
    #[link_name = "reference_l2"]
    static L2: Functions;
    #[link_name = "reference_l2l3acl"]
    static L2L3ACL: Functions;
    #[link_name = "reference_l3router"]
    static L3ROUTER: Functions;
    #[link_name = "reference_stateful_firewall"]
    static STATEFUL_FIREWALL: Functions;
    #[link_name = "reference_vxlan"]
    static VXLAN: Functions;
}

/// The C version of a program, if there is one.
pub fn named(program: &str) -> Option<&'static Functions> {
    // SAFETY: constants of the linked objects, of this type.
    let all = unsafe { [&L2, &L2L3ACL, &L3ROUTER, &STATEFUL_FIREWALL, &VXLAN] };
    all.into_iter().find(|f| f.name() == program)
}

impl Functions {
    /// The program's name.
    pub fn name(&self) -> &'static str {
        // SAFETY: a string constant.
        unsafe { CStr::from_ptr(self.name) }.to_str().unwrap_or_default()
    }

    /// The kinds of its entries.
    pub fn kinds(&self) -> Vec<&'static str> {
        // SAFETY: string constants up to a null pointer.
        (0..)
            .map_while(|i| unsafe {
                let text = *self.kinds.add(i);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_str().unwrap_or_default())
            })
            .collect()
    }
}

/// A C reference with its tables.
pub struct Reference {
    functions: &'static Functions,
    state: NonNull<c_void>,
    committed: bool,
    batched: bool,
}

// SAFETY: the state belongs to this value alone and is not bound to a thread.
unsafe impl Send for Reference {}

impl Reference {
    /// A reference with empty tables. `kinds` gives the meaning of the entries' numbers; `batched` selects the variant
    /// that runs packets.
    ///
    /// # Errors
    /// If the C version has other kinds, or memory is exhausted.
    pub fn new(functions: &'static Functions, kinds: &[&str], batched: bool) -> Result<Reference> {
        ensure!(
            functions.kinds() == kinds,
            "{}: the C version has other kinds of entries than the generator",
            functions.name()
        );
        // SAFETY: no precondition.
        let state = NonNull::new(unsafe { (functions.create)() });
        let state = state.ok_or_else(|| anyhow::anyhow!("{}: not enough memory", functions.name()))?;
        Ok(Reference { functions, state, committed: false, batched })
    }

    /// Adds an entry; only before [`Reference::commit`].
    ///
    /// # Errors
    /// If the tables are committed, or the kind is unknown or the C version refuses the entry.
    pub fn insert(&mut self, entry: &Entry) -> Result<()> {
        ensure!(!self.committed && (entry.kind as usize) < self.functions.kinds().len(), "an entry of no known kind");
        // SAFETY: the state is of these functions; the kind is one of theirs.
        let refused = unsafe { (self.functions.insert)(self.state.as_ptr(), entry) };
        ensure!(refused == 0, "{}: the C version cannot hold {entry:?}", self.functions.name());
        Ok(())
    }

    /// Builds the tables.
    ///
    /// # Errors
    /// If they are built already, or the C version cannot hold the entries.
    pub fn commit(&mut self) -> Result<()> {
        ensure!(!self.committed, "the tables are built once");
        self.committed = true;
        // SAFETY: as above, once.
        let failed = unsafe { (self.functions.commit)(self.state.as_ptr()) };
        ensure!(failed == 0, "{}: the C version cannot hold these entries", self.functions.name());
        Ok(())
    }
}

impl Executor for Reference {
    fn run(&mut self, entry: EntryKind, batch: &mut Batch) {
        assert!(self.committed && entry == EntryKind::Ingress, "built, and for packets from ports");
        let run = if self.batched { self.functions.batched } else { self.functions.plain };
        // SAFETY: the state is of these functions and committed; descriptors are as `abi::packet` says for every executor:
        // buffers that are valid for reads and writes, headroom and tailroom included.
        unsafe { run(self.state.as_ptr(), batch) }
    }

    fn quiescent(&mut self) {}

    fn idle(&mut self) {}
}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: made by `create`, not used afterwards.
        unsafe { (self.functions.destroy)(self.state.as_ptr()) }
    }
}

const _: () = assert!(size_of::<Entry>() == 16 + 3 * 64);
