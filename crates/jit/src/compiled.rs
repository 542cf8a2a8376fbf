//! Compiled code and its owner.
//!
//! A [`CompiledPipeline`] owns the memory of its machine code. Function pointers taken from it are valid while it lives;
//! dropping it frees the memory at once. Whoever shares it with workers must see to it that all of them have passed a
//! quiescent point before the last owner lets go (`datapath` keeps it in an `Arc` and retires that).
//!
//! Code never changes after it was made, so a pipeline may be shared and sent freely.
#![allow(unsafe_code)]

use crate::addresses::Addresses;
use crate::bit_vectors::BitVectors;
use crate::join::Line;
use crate::keyed::Keyed;
use crate::listing::Listing;
use crate::places::{CodePlace, Place};
use crate::stage::report::Stages;
use abi::{PipelineFn, Prefilter};
use base::Span;
use cranelift_jit::JITModule;
use ir::{EntryKind, SlotId};
use std::sync::Arc;
use std::time::Duration;

/// A pipeline's entries as machine code.
pub struct CompiledPipeline {
    /// `None` only while dropping.
    module: Option<JITModule>,
    entries: Vec<CompiledEntry>,
    sites: Vec<Site>,
    recorded: Vec<SlotId>,
    _data: CodeData,
    timing: Timing,
}

/// What the code has addresses of.
pub(crate) struct CodeData {
    pub _zeros: Box<[u8]>,
    pub _addresses: Addresses,
    pub _bit_vectors: Vec<Arc<BitVectors>>,
    pub _keyed: Vec<Arc<Keyed>>,
    pub _prefilters: Vec<Arc<Prefilter>>,
    pub _rows: Vec<Box<[Line]>>,
}

/// An entry whose function is defined in the module.
pub(crate) struct NewEntry {
    pub kind: EntryKind,
    pub id: cranelift_module::FuncId,
    pub size: usize,
    pub instructions: usize,
    pub stages: Stages,
    pub prefetches_ahead: bool,
    pub clif: Option<String>,
    pub asm: Option<String>,
    pub places: Vec<CodePlace>,
    pub named: Named,
    pub listing: Option<Listing>,
}

/// What the numbers mean that watched code gives before calls; empty of other code.
#[derive(Default)]
pub(crate) struct Named {
    pub serial: u32,
    pub places: Vec<Place>,
}

/// One entry.
struct CompiledEntry {
    kind: EntryKind,
    code: *const u8,
    size: usize,
    instructions: usize,
    stages: Stages,
    prefetches_ahead: bool,
    clif: Option<String>,
    asm: Option<String>,
    places: Vec<CodePlace>,
    named: Named,
}

/// What a log or assertion site is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SiteKind {
    /// `Op::Log`: the arguments' widths; each takes `ceil(width / 64)` words of the call.
    Log {
        /// Bits of each argument.
        arg_widths: Vec<u32>,
    },
    /// `Op::Assert`.
    Assert,
}

/// A log or assertion site; the runtime's calls give its index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// What it is.
    pub kind: SiteKind,
    /// The format string with `{}` per argument, or the assertion's text.
    pub text: String,
    /// Where it stands in the source.
    pub span: Span,
}

/// How long the phases of a compilation took, over all entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// Dataflow over the IR.
    pub analysis: Duration,
    /// IR to Cranelift's form.
    pub translation: Duration,
    /// Cranelift: optimisation, register allocation, encoding.
    pub codegen: Duration,
    /// Placing and protecting the code.
    pub linking: Duration,
}

impl Timing {
    /// All phases together.
    pub fn total(&self) -> Duration {
        self.analysis + self.translation + self.codegen + self.linking
    }
}

// SAFETY: the code and the entries' pointers are immutable once made; the module is only touched by `drop`, which has
// exclusive access. Nothing in it is bound to a thread.
unsafe impl Send for CompiledPipeline {}
// SAFETY: as above; shared access only reads immutable fields.
unsafe impl Sync for CompiledPipeline {}

/// Frees code that was never linked.
pub(crate) fn discard(module: JITModule) {
    // SAFETY: no address in it was ever taken.
    unsafe { module.free_memory() };
}

impl CompiledPipeline {
    /// `functions` are finalised in `module`.
    pub(crate) fn new(
        module: JITModule,
        functions: Vec<NewEntry>,
        sites: Vec<Site>,
        recorded: Vec<SlotId>,
        data: CodeData,
        timing: Timing,
    ) -> CompiledPipeline {
        let entries = functions
            .into_iter()
            .map(
                |NewEntry {
                     kind, id, size, instructions, stages, prefetches_ahead, clif, asm, places, named, ..
                 }| {
                    let code = module.get_finalized_function(id);
                    CompiledEntry { kind, code, size, instructions, stages, prefetches_ahead, clif, asm, places, named }
                },
            )
            .collect();
        CompiledPipeline { module: Some(module), entries, sites, recorded, _data: data, timing }
    }

    fn find(&self, kind: EntryKind) -> Option<&CompiledEntry> {
        self.entries.iter().find(|e| e.kind == kind)
    }

    /// An entry's function; `None` if the program has no such entry. It may be called while the pipeline lives, with the
    /// context and a batch as `abi::packet` describes them, and with the tables and cells of the bindings alive.
    pub fn entry(&self, kind: EntryKind) -> Option<PipelineFn> {
        // SAFETY: the address is that of a finalised function with exactly this signature
        // (`translate::entry_signature`); it stays mapped while `self` lives.
        self.find(kind).map(|e| unsafe { std::mem::transmute::<*const u8, PipelineFn>(e.code) })
    }

    /// Address and length of an entry's code, for symbol maps.
    pub fn code_range(&self, kind: EntryKind) -> Option<(usize, usize)> {
        self.find(kind).map(|e| (e.code as usize, e.size))
    }

    /// Which part of the program each byte of an entry's code comes from, without gaps; with `Options::keep_text` or
    /// `Options::perf_map` only.
    pub fn places(&self, kind: EntryKind) -> &[CodePlace] {
        self.find(kind).map_or(&[], |e| &e.places)
    }

    /// Which region a worker is in whose next instruction is at `pc`, and that has said `place` before its last call
    /// (`WorkerCtx::place`); `None` if it is not in this code and has not called from there. Of watched code only.
    pub fn region_at(&self, pc: usize, place: u64) -> Option<&str> {
        for entry in &self.entries {
            let offset = pc.wrapping_sub(entry.code as usize);
            if offset < entry.size {
                let at = entry.places.partition_point(|p| p.end as usize <= offset);
                return Some(&entry.places.get(at)?.place.region);
            }
        }
        let (serial, number) = ((place >> 32) as u32, place as u32);
        let caller = self.entries.iter().find(|e| serial != 0 && e.named.serial == serial)?;
        Some(&caller.named.places.get(number as usize)?.region)
    }

    /// As [`Self::places`], by regions: start, end, region. Neighbours differ.
    pub fn regions(&self, kind: EntryKind) -> Vec<(usize, usize, &str)> {
        let mut out: Vec<(usize, usize, &str)> = Vec::new();
        for CodePlace { start, end, place } in self.places(kind) {
            match out.last_mut() {
                Some((_, last, region)) if *region == place.region => *last = *end as usize,
                _ => out.push((*start as usize, *end as usize, &place.region)),
            }
        }
        out
    }

    /// Bytes of machine code.
    pub fn code_size(&self) -> usize {
        self.entries.iter().map(|e| e.size).sum()
    }

    /// Instructions of an entry in Cranelift's form, before its optimisations.
    pub fn instructions(&self, kind: EntryKind) -> Option<usize> {
        self.find(kind).map(|e| e.instructions)
    }

    /// Phases that packets go through an entry in; 1 where it runs to completion.
    pub fn phases(&self, kind: EntryKind) -> Option<usize> {
        self.stages(kind).map(|stages| stages.phases.len())
    }

    /// How packets go through an entry.
    pub fn stages(&self, kind: EntryKind) -> Option<&Stages> {
        self.find(kind).map(|e| &e.stages)
    }

    /// Whether the packets of a batch go through an entry a first time, to prefetch the cells of registers.
    pub fn prefetches_ahead(&self, kind: EntryKind) -> bool {
        self.find(kind).is_some_and(|e| e.prefetches_ahead)
    }

    /// Log and assertion sites, by the ids that the runtime's calls give.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Slots that an entry may read from a packet's record before it assigns them, whoever has written the record.
    pub fn recorded(&self) -> &[SlotId] {
        &self.recorded
    }

    /// How long compiling took.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The entry in Cranelift's text form, before its optimisations; with `Options::keep_text` only.
    pub fn clif(&self, kind: EntryKind) -> Option<&str> {
        self.find(kind)?.clif.as_deref()
    }

    /// The entry as assembly; with `Options::keep_text` only.
    pub fn asm(&self, kind: EntryKind) -> Option<&str> {
        self.find(kind)?.asm.as_deref()
    }
}

impl Drop for CompiledPipeline {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the type's contract: no worker runs this code any more, and the pointers died with `self`.
            unsafe { module.free_memory() };
        }
    }
}
