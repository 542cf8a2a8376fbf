//! Compiled programs: the owner of their machine code, the state of a run, and the helpers that code calls.
//!
//! [`Compiled`] owns a program's code. A [`Run`] is the state of one run; code reads and writes it at fixed offsets.
//!
//! All unsafe code of the crate is in this file. It relies on what the verifier proves of a program (`verifier.rs`):
//! addresses passed to a helper are in the packet, the stack or a map's value, for as many bytes as the helper's
//! signature requires.
#![allow(unsafe_code)]

use crate::helper::Helper;
use crate::map::{KEY_BYTES_MAX, Map};
use crate::run::{self, Abort, Frame, Verdict, Window, cost, errno};
use crate::verified::Verified;
use codegen::Code;
use mir::FunctionId;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// The number of bytes that a helper copies without allocating.
const COPIED_BYTES: usize = KEY_BYTES_MAX as usize;

/// The value of `Run::aborted` if the budget was exceeded; 0 means that the run continues.
pub(crate) const ABORTED_BUDGET: u32 = 1;
/// The value of `Run::aborted` if an unreachable instruction was reached.
pub(crate) const ABORTED_FAULT: u32 = 2;

/// The reason for a value of `Run::aborted` that is not 0.
fn abort_of(aborted: u32) -> Abort {
    match aborted {
        ABORTED_BUDGET => Abort::Budget,
        _ => Abort::Fault,
    }
}

/// A compiled function: takes the run and `r1` to `r5`, returns `r0`.
type Function = unsafe extern "C" fn(run: *mut Run<'_>, u64, u64, u64, u64, u64) -> u64;

/// The state of a run of compiled code.
#[repr(C)]
pub(crate) struct Run<'p> {
    /// Address of the packet's first byte.
    pub(crate) data: u64,
    /// Address after the packet's last byte.
    pub(crate) data_end: u64,
    pub(crate) argument: u64,
    pub(crate) now_ns: u64,
    /// The instructions left. A helper that costs more has no effect and leaves it negative.
    pub(crate) budget: i64,
    pub(crate) port: u32,
    /// `ABORTED_BUDGET` or `ABORTED_FAULT` if the run must end, otherwise 0.
    pub(crate) aborted: u32,
    /// The number of arguments that the next `trace_printk` prints.
    pub(crate) traced: u32,
    redirect: Option<u32>,
    program: &'p Verified,
    buffer: *mut u8,
    window: Window,
}

impl Run<'_> {
    /// Charges a helper's cost to the budget; false if it is exceeded.
    fn pays(&mut self, cost: i64) -> bool {
        self.budget -= cost;
        self.budget >= 0
    }

    /// Updates `data` and `data_end` from the window.
    fn place(&mut self) {
        let buffer = self.buffer.expose_provenance() as u64;
        self.data = buffer + self.window.offset as u64;
        self.data_end = self.data + self.window.len as u64;
    }

    /// Updates the packet's addresses and zeroes its new bytes. Returns the helper's result: 0, or an error for `None`.
    fn clear(&mut self, new: Option<Range<usize>>) -> u64 {
        let Some(new) = new else { return errno::INVALID as u64 };
        // SAFETY: `Window` gives ranges in the buffer, which belongs to the run alone.
        unsafe { self.buffer.add(new.start).write_bytes(0, new.len()) };
        self.place();
        0
    }
}

/// A program's machine code.
pub(crate) struct Compiled {
    /// Owns the memory that `entry` is in.
    _code: Code,
    entry: Function,
}

impl Compiled {
    /// Takes the code of a module that `lower` made; its first function is the program's entry.
    pub(crate) fn new(code: Code) -> Compiled {
        let entry = code.function(FunctionId(0));
        // SAFETY: `lower` gives all functions this signature, `codegen` compiles them with the machine's C calling
        // convention, and `code` is kept for as long as `entry`.
        let entry = unsafe { std::mem::transmute::<*const u8, Function>(entry) };
        Compiled { _code: code, entry }
    }

    /// Runs the code of `program` on a packet. `budget` is the number of instructions allowed, and afterwards the
    /// number left.
    pub(crate) fn run(
        &self,
        program: &Verified,
        frame: &mut Frame<'_>,
        port: u32,
        argument: u64,
        now_ns: u64,
        budget: &mut i64,
    ) -> Verdict {
        let Some(window) = Window::of(frame) else { return Verdict::Aborted(Abort::Frame) };
        let mut run = Run {
            data: 0,
            data_end: 0,
            argument,
            now_ns,
            budget: *budget,
            port,
            aborted: 0,
            traced: 0,
            redirect: None,
            program,
            buffer: frame.buffer.as_mut_ptr(),
            window,
        };
        run.place();
        let context = (&raw mut run).expose_provenance() as u64;
        // SAFETY: the code was compiled from `program`, which was verified and holds the maps that the code refers to;
        // the buffer is exclusively borrowed through `frame`, and `run` outlives the call.
        let result = unsafe { (self.entry)(&raw mut run, context, 0, 0, 0, 0) };
        (frame.offset, frame.len) = (run.window.offset, run.window.len);
        *budget = run.budget;
        match run.aborted {
            0 => Verdict::of(result, run.redirect),
            aborted => Verdict::Aborted(abort_of(aborted)),
        }
    }
}

/// Calls `f` with a copy of the `len` bytes at an address.
///
/// # Safety
///
/// The bytes are readable. Other threads may change them if they are in a map's value.
unsafe fn with_bytes<T>(address: u64, len: usize, f: impl FnOnce(&[u8]) -> T) -> T {
    let memory: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
    let copy = |bytes: &mut [u8]| {
        let before = memory.align_offset(8).min(len);
        let (first, rest) = bytes.split_at_mut(before);
        let (words, last) = rest.as_chunks_mut::<8>();
        let (words_at, last_at) = (before, before + 8 * words.len());
        // SAFETY: the caller guarantees that `len` bytes are readable. They are read atomically because of other
        // threads, and as words where they are aligned: maps store values as words.
        unsafe {
            let byte = |at: usize| AtomicU8::from_ptr(memory.add(at)).load(Relaxed);
            first.iter_mut().enumerate().for_each(|(i, to)| *to = byte(i));
            for (i, to) in words.iter_mut().enumerate() {
                let word = memory.add(words_at + 8 * i).cast::<u64>();
                *to = AtomicU64::from_ptr(word).load(Relaxed).to_ne_bytes();
            }
            last.iter_mut().enumerate().for_each(|(i, to)| *to = byte(last_at + i));
        }
    };
    match len {
        0..=COPIED_BYTES => {
            let mut buffer = [0; COPIED_BYTES];
            copy(&mut buffer[..len]);
            f(&buffer[..len])
        }
        _ => {
            let mut buffer = vec![0; len];
            copy(&mut buffer);
            f(&buffer)
        }
    }
}

/// The address of the function that implements a helper.
pub(crate) fn helper_address(helper: Helper) -> u64 {
    let function: Function = match helper {
        Helper::MapLookup => map_lookup,
        Helper::MapUpdate => map_update,
        Helper::MapDelete => map_delete,
        Helper::Time => time,
        Helper::Trace => trace,
        Helper::Random => random,
        Helper::Redirect => redirect,
        Helper::ChecksumDifference => checksum_difference,
        Helper::AdjustHead => adjust_head,
        Helper::AdjustTail => adjust_tail,
    };
    function as *const () as u64
}

/// The program of a run, and the map with a handle.
///
/// # Safety
///
/// `run` is the run that the calling code was given, and nothing else uses it during the call.
unsafe fn run_and_map<'r>(run: *mut Run<'r>, map: u64) -> (&'r Verified, &'r Map) {
    // SAFETY: guaranteed by the caller.
    let program = unsafe { (*run).program };
    // The verifier has proved that the handle is one of a map of the program.
    (program, &program.maps[map as usize])
}

unsafe extern "C" fn map_lookup(run: *mut Run<'_>, map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers, and keys have the map's size.
    unsafe {
        let (_, map) = run_and_map(run, map);
        if !(*run).pays(cost::lookup(map)) {
            return 0;
        }
        let slot = with_bytes(key, map.spec().key_size as usize, |key| map.find(key));
        let values = map.value_words().as_ptr().expose_provenance();
        slot.map_or(0, |slot| (values + slot as usize * map.value_stride()) as u64)
    }
}

unsafe extern "C" fn map_update(run: *mut Run<'_>, map: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers, and keys and values have the map's sizes.
    unsafe {
        let (_, map) = run_and_map(run, map);
        if !(*run).pays(cost::update(map)) {
            return 0;
        }
        let (key_size, value_size) = (map.spec().key_size as usize, map.spec().value_size as usize);
        let update = |key: &[u8]| with_bytes(value, value_size, |value| run::map_update(map, key, value, flags));
        with_bytes(key, key_size, update) as u64
    }
}

unsafe extern "C" fn map_delete(run: *mut Run<'_>, map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers, and keys have the map's size.
    unsafe {
        let (_, map) = run_and_map(run, map);
        if !(*run).pays(cost::delete(map)) {
            return 0;
        }
        with_bytes(key, map.spec().key_size as usize, |key| run::map_delete(map, key)) as u64
    }
}

unsafe extern "C" fn time(run: *mut Run<'_>, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers.
    unsafe { (*run).now_ns }
}

unsafe extern "C" fn trace(run: *mut Run<'_>, format: u64, len: u64, a: u64, b: u64, c: u64) -> u64 {
    // SAFETY: code passes its run to helpers, and the format has `len` bytes.
    unsafe {
        if !(*run).pays(cost::trace(len)) {
            return 0;
        }
        let (program, count) = ((*run).program, (*run).traced as usize);
        with_bytes(format, len as usize, |format| program.log.print(format, &[a, b, c][..count.min(3)])) as u64
    }
}

unsafe extern "C" fn random(run: *mut Run<'_>, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers.
    let run = unsafe { &mut *run };
    if run.pays(cost::OTHER) { run.program.random.next() } else { 0 }
}

unsafe extern "C" fn redirect(run: *mut Run<'_>, port: u64, flags: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers.
    let run = unsafe { &mut *run };
    if run.pays(cost::OTHER) { run::redirect(port, flags, &mut run.redirect) } else { 0 }
}

unsafe extern "C" fn checksum_difference(
    run: *mut Run<'_>,
    from: u64,
    from_len: u64,
    to: u64,
    to_len: u64,
    seed: u64,
) -> u64 {
    // SAFETY: code passes its run to helpers, and both buffers have the lengths passed.
    unsafe {
        if !(*run).pays(cost::checksum(from_len, to_len)) {
            return 0;
        }
        let sum = |from: &[u8]| with_bytes(to, to_len as usize, |to| run::checksum_difference(from, to, seed));
        with_bytes(from, from_len as usize, sum) as u64
    }
}

unsafe extern "C" fn adjust_head(run: *mut Run<'_>, _: u64, delta: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers.
    let run = unsafe { &mut *run };
    if !run.pays(cost::adjust(delta)) {
        return 0;
    }
    let new = run.window.adjust_head(delta);
    run.clear(new)
}

unsafe extern "C" fn adjust_tail(run: *mut Run<'_>, _: u64, delta: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: code passes its run to helpers.
    let run = unsafe { &mut *run };
    if !run.pays(cost::adjust(delta)) {
        return 0;
    }
    let new = run.window.adjust_tail(delta);
    run.clear(new)
}
