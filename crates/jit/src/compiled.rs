//! Compiled code and its owner.
//!
//! A [`CompiledPipeline`] owns the memory of its machine code. Function pointers taken from it are valid while it
//! lives; dropping it frees the memory at once. A caller that shares it with workers must make sure that all of them
//! have passed a quiescent point before the last owner drops it (`datapath` keeps it in an `Arc` and retires that).
//!
//! Code is immutable once it is made, so a pipeline is `Send` and `Sync`.
#![allow(unsafe_code)]

use crate::addresses::Addresses;
use crate::bit_vectors::BitVectors;
use crate::exact_index::ExactIndex;
use crate::join::Line;
use crate::listing::Listing;
use crate::source_map::{CodeRange, Location};
use crate::stage::report::Stages;
use abi::{PipelineFn, Prefilter};
use base::Span;
use cranelift_jit::JITModule;
use ir::{EntryKind, SlotId};
use std::sync::Arc;
use std::time::Duration;

/// The entry points of a pipeline as machine code.
pub struct CompiledPipeline {
    /// `None` only while dropping.
    module: Option<JITModule>,
    entries: Vec<CompiledEntry>,
    sites: Vec<Site>,
    recorded: Vec<SlotId>,
    _data: CodeData,
    timing: Timing,
}

/// The memory whose addresses are in the code.
pub(crate) struct CodeData {
    pub _zeros: Box<[u8]>,
    pub _addresses: Addresses,
    pub _bit_vectors: Vec<Arc<BitVectors>>,
    pub _exact_indexes: Vec<Arc<ExactIndex>>,
    pub _prefilters: Vec<Arc<Prefilter>>,
    pub _rows: Vec<Box<[Line]>>,
}

/// An entry point whose function is defined in the module.
pub(crate) struct NewEntry {
    pub kind: EntryKind,
    pub id: cranelift_module::FuncId,
    pub size: usize,
    pub instructions: usize,
    pub stages: Stages,
    pub has_prefetch_pass: bool,
    pub clif: Option<String>,
    pub asm: Option<String>,
    pub locations: Vec<CodeRange>,
    pub named: Named,
    pub listing: Option<Listing>,
}

/// The meaning of the location numbers that watched code stores before calls; empty for other code.
#[derive(Default)]
pub(crate) struct Named {
    pub serial: u32,
    pub locations: Vec<Location>,
}

/// A compiled entry point.
struct CompiledEntry {
    kind: EntryKind,
    code: *const u8,
    size: usize,
    instructions: usize,
    stages: Stages,
    has_prefetch_pass: bool,
    clif: Option<String>,
    asm: Option<String>,
    locations: Vec<CodeRange>,
    named: Named,
}

/// The kind of a log or assertion site.
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

/// A log or assertion site. Calls of the runtime carry its index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its kind.
    pub kind: SiteKind,
    /// The format string with `{}` per argument, or the assertion's text.
    pub text: String,
    /// Its location in the source.
    pub span: Span,
}

/// The time that each phase of a compilation took, over all entry points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// Dataflow analysis of the IR.
    pub analysis: Duration,
    /// IR to Cranelift's IR.
    pub translation: Duration,
    /// Cranelift: optimisation, register allocation, encoding.
    pub codegen: Duration,
    /// Relocating the code and making it executable.
    pub linking: Duration,
}

impl Timing {
    /// The time of all phases.
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
    /// A pipeline of `functions`, which are finalised in `module`.
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
                     kind,
                     id,
                     size,
                     instructions,
                     stages,
                     has_prefetch_pass,
                     clif,
                     asm,
                     locations,
                     named,
                     ..
                 }| {
                    let code = module.get_finalized_function(id);
                    CompiledEntry {
                        kind,
                        code,
                        size,
                        instructions,
                        stages,
                        has_prefetch_pass,
                        clif,
                        asm,
                        locations,
                        named,
                    }
                },
            )
            .collect();
        CompiledPipeline { module: Some(module), entries, sites, recorded, _data: data, timing }
    }

    fn find(&self, kind: EntryKind) -> Option<&CompiledEntry> {
        self.entries.iter().find(|e| e.kind == kind)
    }

    /// The function of an entry point; `None` if the program has no such entry point. It may be called while the
    /// pipeline lives, with the context and a batch as `abi::packet` describes them, and while the tables and cells of
    /// the bindings live.
    pub fn entry(&self, kind: EntryKind) -> Option<PipelineFn> {
        // SAFETY: the address is that of a finalised function with exactly this signature
        // (`translate::entry_signature`); it stays mapped while `self` lives.
        self.find(kind).map(|e| unsafe { std::mem::transmute::<*const u8, PipelineFn>(e.code) })
    }

    /// Address and bytes of an entry point's code, for symbol maps.
    pub fn code_range(&self, kind: EntryKind) -> Option<(usize, usize)> {
        self.find(kind).map(|e| (e.code as usize, e.size))
    }

    /// The part of the program that each byte of an entry point's code comes from, without gaps; with
    /// `Options::keep_text` or `Options::perf_map` only.
    pub fn locations(&self, kind: EntryKind) -> &[CodeRange] {
        self.find(kind).map_or(&[], |e| &e.locations)
    }

    /// The region that a worker executes, given its program counter and the `place` that it stored before its last call
    /// (`WorkerCtx::place`). `None` if `pc` is not in this code and `place` is not of this code. For watched code only.
    pub fn region_at(&self, pc: usize, place: u64) -> Option<&str> {
        for entry in &self.entries {
            let offset = pc.wrapping_sub(entry.code as usize);
            if offset < entry.size {
                let at = entry.locations.partition_point(|p| p.end as usize <= offset);
                return Some(&entry.locations.get(at)?.location.region);
            }
        }
        let (serial, number) = ((place >> 32) as u32, place as u32);
        let caller = self.entries.iter().find(|e| serial != 0 && e.named.serial == serial)?;
        Some(&caller.named.locations.get(number as usize)?.region)
    }

    /// As [`Self::locations`], merged by region: start, end, region. Adjacent regions differ.
    pub fn regions(&self, kind: EntryKind) -> Vec<(usize, usize, &str)> {
        let mut out: Vec<(usize, usize, &str)> = Vec::new();
        for CodeRange { start, end, location } in self.locations(kind) {
            match out.last_mut() {
                Some((_, last, region)) if *region == location.region => *last = *end as usize,
                _ => out.push((*start as usize, *end as usize, &location.region)),
            }
        }
        out
    }

    /// Bytes of machine code.
    pub fn code_size(&self) -> usize {
        self.entries.iter().map(|e| e.size).sum()
    }

    /// Number of an entry point's instructions in Cranelift's IR, before its optimisations.
    pub fn instructions(&self, kind: EntryKind) -> Option<usize> {
        self.find(kind).map(|e| e.instructions)
    }

    /// Number of phases of an entry point; 1 if it runs to completion.
    pub fn phases(&self, kind: EntryKind) -> Option<usize> {
        self.stages(kind).map(|stages| stages.phases.len())
    }

    /// How packets go through an entry point.
    pub fn stages(&self, kind: EntryKind) -> Option<&Stages> {
        self.find(kind).map(|e| &e.stages)
    }

    /// Whether an entry point first goes through each batch to prefetch the cells of registers.
    pub fn has_prefetch_pass(&self, kind: EntryKind) -> bool {
        self.find(kind).is_some_and(|e| e.has_prefetch_pass)
    }

    /// Log and assertion sites, by the index that calls of the runtime carry.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Slots that an entry point may read from a packet's record before it assigns them, whoever wrote the record.
    pub fn recorded(&self) -> &[SlotId] {
        &self.recorded
    }

    /// The time that compilation took.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The entry point in Cranelift's text form, before its optimisations; with `Options::keep_text` only.
    pub fn clif(&self, kind: EntryKind) -> Option<&str> {
        self.find(kind)?.clif.as_deref()
    }

    /// The entry point as assembly; with `Options::keep_text` only.
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
