//! Translates one entry point of a program to one Cranelift function: the packet loop, blocks, terminators and fates.
//!
//! `extern "C" fn(ctx, batch)` iterates over the batch's descriptors. For each packet, all stages of the entry point
//! follow one another in the same function body, so that slots stay in registers from parser to deparser. Blocks are
//! translated in reverse post-order and sealed as soon as all their predecessors are done, which keeps SSA construction
//! linear.
//!
//! **Values of the runtime's intrinsics.** At [`EntryKind::Ingress`] the code itself sets them: `IngressPort`,
//! `PacketLength` and `IngressTimestamp` from the descriptor, `InstanceType` to the program's value for a normal
//! packet, `EgressTimestamp` and `EnqueueTimestamp` to the batch's time, all others (queue depths and time deltas
//! included) to zero. Every other entry point loads each slot that may be read from the packet's record, intrinsics
//! included; the replication engine has stored them there.
//!
//! **Cursor.** The parser's position is zero at the start of every parser stage; after a deparser it is the number of
//! bytes emitted. Where it is a known constant, no code updates it except the (dead) definition of its variable.
//!
//! The other methods of [`Translator`] are in the sibling files, by kind of operation.

use crate::addresses::Addresses;
use crate::apply::MissContinuation;
use crate::bit_vectors::AllBitVectors;
use crate::cold_calls::{ColdCalls, ColdCallsHere};
use crate::counts::{Counts, PacketLoop};
use crate::dead_fields::{self, Dead};
use crate::exact_index::ExactIndexes;
use crate::flow::{self, Facts, Flow, ProgramFacts};
use crate::join::{JoinedValues, Joins};
use crate::locks::Locks;
use crate::paths::Known;
use crate::paths::value_at_ingress;
use crate::placement::{Placement, Where};
use crate::source_map::SourceMap;
use crate::stage::Waiting;
use crate::stage::header_places::HeaderPlaces;
use crate::stage::plan::{Plan, ProgramPoint};
use crate::stage::report::Stages;
use crate::unresolved::Symbols;
use crate::value::{Class, Place, Val};
use crate::{Error, Options, Site};
use abi::{Batch, Bindings, FateCode, PacketDesc, RuntimeCalls, Shapes};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I32, I64};
use cranelift_codegen::ir::{
    self as clif, AbiParam, AliasRegion, AliasRegionData, InstBuilder, MemFlagsData, Signature, StackSlot,
};
use cranelift_codegen::ir::{StackSlotData, StackSlotKind, TrapCode, Type, Value};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Variable};
use ir::layout::RecordLayout;
use ir::{EntryKind, EntryPoint, Intrinsic, Op, Program, SlotId};
use ir::{SlotKind, StageKind, TableId, Terminator};
use std::collections::{BTreeSet, HashMap};
use std::mem::offset_of;

/// Number of tables from which an entry point leaves no register for values that can be reloaded instead, such as the
/// descriptor's address and its fields.
const TABLES_MANY: usize = 5;

/// Flags of memory accesses by region. Accesses to different regions are declared not to alias.
pub(crate) struct Flags {
    /// Frames.
    pub packet: MemFlagsData,
    /// Frames, for loads that must be kept even if their result is unused.
    pub extract: MemFlagsData,
    /// Descriptors, the batch, the worker's context, records.
    pub desc: MemFlagsData,
    /// Fields of a descriptor that do not change while a packet is processed: its origin, its timestamp and its
    /// record's address. Such a load may be moved to its use.
    pub origin: MemFlagsData,
    /// The function's own stack slots.
    pub stack: MemFlagsData,
    /// Tables, counters and registers.
    pub state: MemFlagsData,
    /// Table entries, which do not change while a reader can see them.
    pub entry: MemFlagsData,
    /// The worker's context, which does not change while the code runs.
    pub context: MemFlagsData,
    /// Rows of waiting packets, read after a cut; see [`crate::stage`].
    pub row: MemFlagsData,
    /// Placeholder loads that are patched; see [`crate::wide`].
    pub patched: Option<AliasRegion>,
}

impl Flags {
    fn new(func: &mut clif::Function) -> Flags {
        let mut region = |user_id, description: &'static str| {
            let region = func.dfg.alias_regions.insert(AliasRegionData { user_id, description: description.into() });
            MemFlagsData::new().with_notrap().with_alias_region(Some(region))
        };
        let packet = region(1, "packet");
        Flags {
            packet,
            extract: packet.with_trap_code(Some(TrapCode::HEAP_OUT_OF_BOUNDS)),
            desc: region(2, "descriptor"),
            origin: region(7, "origin").with_readonly().with_can_move(),
            stack: region(3, "stack"),
            state: region(4, "state"),
            entry: region(5, "entry").with_readonly().with_can_move(),
            context: region(6, "context").with_readonly().with_can_move(),
            row: region(8, "row").with_readonly().with_can_move(),
            patched: region(9, "patched").alias_region(),
        }
    }
}

/// Variables of the current packet besides its slots.
pub(crate) struct Vars {
    /// First byte of the frame.
    pub data: Variable,
    /// Bytes of the frame.
    pub len: Variable,
    /// The parser's offset from `data`, in bytes.
    pub cursor: Variable,
    /// Nonzero when the emitted headers may not be at the offsets where they would be emitted.
    pub layout_changed: Variable,
    /// Most bytes of the outgoing frame; all ones when it is not truncated.
    pub truncate: Variable,
    /// Bytes in the scratch buffer of a deparser.
    pub emitted: Variable,
    /// Steps spent in loops.
    pub spent: Variable,
}

/// Data shared by the entry points of one compilation.
pub(crate) struct Shared<'a> {
    pub program: &'a Program,
    pub facts: &'a ProgramFacts,
    pub bindings: &'a Bindings,
    /// The table shapes that the code is specialised for.
    pub shapes: &'a Shapes,
    pub runtime: &'a RuntimeCalls,
    pub options: &'a Options,
    pub record: &'a RecordLayout,
    pub zeros: &'a [u8],
    pub addresses: &'a Addresses,
    pub bit_vectors: &'a AllBitVectors,
    pub exact_index: &'a ExactIndexes,
    pub joins: &'a Joins,
    pub symbols: &'a Symbols,
    pub cold_calls: &'a ColdCalls,
}

/// Builds one function.
pub(crate) struct Translator<'a, 'f> {
    pub b: FunctionBuilder<'f>,
    pub program: &'a Program,
    pub facts: &'a ProgramFacts,
    pub bindings: &'a Bindings,
    /// The table shapes that the code is specialised for.
    pub shapes: &'a Shapes,
    pub runtime: &'a RuntimeCalls,
    pub options: &'a Options,
    pub record: &'a RecordLayout,
    pub flow: &'a Flow,
    pub entry: &'a EntryPoint,
    /// Log and assertion sites of the pipeline so far.
    pub sites: &'a mut Vec<Site>,
    pub flags: Flags,
    pub vars: Vars,
    /// Locations of slots, created at first use.
    pub places: Vec<Option<Place>>,
    /// Pointers to the headers for which the code carries one; see `Translator::header_pointer`.
    pub header_pointers: Vec<Option<Place>>,
    /// Which slots and pointers live in memory.
    pub placement: Placement,
    /// The stack slot for slots and header pointers that live in memory.
    pub frame: StackSlot,
    /// As many zero bytes as the longest header has; they live as long as the code.
    pub zeros: &'a [u8],
    /// Address constants that are loaded from a list.
    pub addresses: &'a Addresses,
    pub bit_vectors: &'a AllBitVectors,
    pub exact_index: &'a ExactIndexes,
    /// Tables that are looked up through joins, and the values that come from joined entries.
    pub joins: &'a Joins,
    pub joined: JoinedValues,
    /// Symbols of external functions that have no implementation.
    pub symbols: &'a Symbols,
    /// Stubs for calls on cold paths, and those that this function uses.
    pub cold_calls: &'a ColdCalls,
    pub cold_calls_here: ColdCallsHere,
    /// Signatures for calls, by parameter and return types.
    signatures: HashMap<(Vec<Type>, Option<Type>), clif::SigRef>,
    /// Dataflow facts at the operation being translated.
    pub facts_now: Facts,
    /// The terminator of the node's block, if the current operation is its last and the successor is not yet decided.
    pub terminator_next: Option<&'a Terminator>,
    /// The miss continuation of that operation, if translation goes on with hits.
    pub miss_continuation: Option<MissContinuation>,
    /// Known constant values of slots at the operation being translated. A slot in the frame holds its value already,
    /// unless it is a field, whose moves may have been omitted.
    pub known_now: Known,
    /// By node: fields that are not read.
    pub dead: Vec<Dead>,
    /// Stage position of the block being translated.
    pub position: usize,
    /// Bytes of all stack slots.
    pub stack_bytes: u64,
    scratch: Option<[StackSlot; 3]>,
    /// The buffer for keys, hash data and messages.
    pub call_buffer: Option<StackSlot>,
    /// Snapshots of tables that are probed inline, if they are loaded once per batch.
    pub snapshots: HashMap<TableId, Value>,
    /// The buffer that deparsers emit to; created at first use.
    pub emit_buffer: Option<StackSlot>,
    /// Context, batch and descriptor: valid throughout a packet's code.
    ctx: Value,
    pub batch: Value,
    pub packet: Value,
    /// Slots whose value can be read from the descriptor.
    origins: Vec<(SlotId, Intrinsic)>,
    has_many_tables: bool,
    /// Whether a stage of the entry point is charged for loops.
    pub has_charges: bool,
    /// Stack slot of the descriptor's address, if it is spilled.
    packet_at: Option<StackSlot>,
    /// Whether packets run to completion through the current code, without waiting.
    runs_to_completion: bool,
    /// Stack slot of the context's address, if it is spilled.
    ctx_at: Option<StackSlot>,
    /// The batch's time in microseconds.
    pub now_us: Value,
    /// The frame's length in bytes at entry, for counters.
    pub entry_len: Value,
    /// Numbers of the program's parts, if the options ask for source locations.
    pub source_map: Option<SourceMap>,
    /// The source location of the code being generated.
    pub source_loc: clif::SourceLoc,
    /// The node being translated.
    pub node: usize,
    /// Whether the node is on a cold path.
    pub is_cold: bool,
    /// Hits and misses that are added to the shared counters after the batch.
    pub counts: Counts,
    /// Addresses that are kept in registers.
    pub bases: Vec<(u64, Value)>,
    /// The block to jump to when a packet has its fate or begins to wait.
    pub next_packet: clif::Block,
    /// How the entry point is split into phases, and the phase being translated.
    pub plan: &'a Plan,
    pub phase: usize,
    /// Whether the prefetch pass is being translated, the first of two passes over the batch; see `prefetch_pass`.
    pub prefetch_pass: bool,
    /// The operation being translated.
    pub program_point: ProgramPoint,
    /// By lookup: the variable of its result (the entry).
    pub results: Vec<Variable>,
    /// By lookup: variables that it needs to be finished after the packet has resumed; empty for others.
    pub carried: Vec<Vec<Variable>>,
    /// By phase; taken out while it is read.
    pub waiting: Vec<Option<Waiting>>,
    /// By phase: what is known of headers when packets begin to wait.
    pub header_places: Vec<HeaderPlaces>,
    /// Locks of register cells.
    pub locks: Locks,
}

/// The signature of an entry point's function.
pub(crate) fn entry_signature(call_conv: CallConv) -> Signature {
    let mut signature = Signature::new(call_conv);
    signature.params = vec![AbiParam::new(I64), AbiParam::new(I64)];
    signature
}

/// Translates an entry point into the function that `b` builds. Returns the meaning of its source locations, if the
/// options ask for them, and its phases.
///
/// # Errors
/// [`Error::Limit`] if wide slots need too much stack, [`Error::Codegen`] if locks would be taken out of order, and the
/// errors of single operations.
pub(crate) fn translate(
    shared: &Shared<'_>,
    flow: &Flow,
    plan: &Plan,
    entry: &EntryPoint,
    sites: &mut Vec<Site>,
    mut b: FunctionBuilder<'_>,
    frontend: cranelift_codegen::isa::TargetFrontendConfig,
) -> Result<(Option<SourceMap>, Stages), Error> {
    let start = b.create_block();
    b.append_block_params_for_function_params(start);
    b.switch_to_block(start);
    b.seal_block(start);
    let (ctx, batch) = (b.block_params(start)[0], b.block_params(start)[1]);
    let flags = Flags::new(b.func);
    let mut var = || b.declare_var(I64);
    let vars = Vars {
        data: var(),
        len: var(),
        cursor: var(),
        layout_changed: var(),
        truncate: var(),
        emitted: var(),
        spent: var(),
    };
    let locks = Locks::new(shared.program, entry, shared.bindings, || b.declare_var(I64));
    let locks = locks.map_err(|name| Error::Codegen(format!("register `{name}` would be locked out of order")))?;
    let head = b.create_block();
    let next_packet = b.create_block();
    let frame = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 0, 4));
    let placement = Placement::new(shared.program, shared.facts, flow, plan, shared.options);
    let dead = dead_fields::find(shared.program, flow, &placement, shared.options);
    let mut t = Translator {
        program: shared.program,
        facts: shared.facts,
        bindings: shared.bindings,
        shapes: shared.shapes,
        runtime: shared.runtime,
        options: shared.options,
        record: shared.record,
        places: vec![None; shared.program.slots.len()],
        facts_now: flow.initial(shared.program, shared.facts, entry.kind),
        flow,
        entry,
        sites,
        flags,
        vars,
        header_pointers: vec![None; shared.program.headers.len()],
        placement,
        dead,
        frame,
        zeros: shared.zeros,
        addresses: shared.addresses,
        bases: Vec::new(),
        bit_vectors: shared.bit_vectors,
        exact_index: shared.exact_index,
        joins: shared.joins,
        joined: JoinedValues::default(),
        symbols: shared.symbols,
        cold_calls: shared.cold_calls,
        cold_calls_here: ColdCallsHere::default(),
        signatures: HashMap::new(),
        terminator_next: None,
        miss_continuation: None,
        known_now: Known::new(),
        position: 0,
        stack_bytes: 0,
        scratch: None,
        call_buffer: None,
        snapshots: HashMap::new(),
        emit_buffer: None,
        ctx,
        batch,
        packet: batch,
        origins: Translator::origins(shared.program, entry),
        has_many_tables: Translator::has_many_tables(shared.program, flow),
        has_charges: ir::cost::is_charged(shared.program, entry),
        packet_at: None,
        runs_to_completion: false,
        ctx_at: None,
        now_us: batch,
        entry_len: batch,
        next_packet,
        source_map: (shared.options.keep_text || shared.options.perf_map || shared.options.watched)
            .then(|| SourceMap::new(shared.program, &flow.graph)),
        source_loc: SourceMap::outside(),
        node: 0,
        is_cold: false,
        counts: Counts::default(),
        plan,
        phase: 0,
        prefetch_pass: false,
        program_point: (0, 0),
        results: Vec::new(),
        carried: Vec::new(),
        waiting: Vec::new(),
        header_places: Vec::new(),
        locks,
        b,
    };
    t.packet_loop(head)?;
    if t.stack_bytes > crate::STACK_BYTES_MAX {
        return Err(Error::Limit {
            what: format!("stack bytes of entry `{}` (slots above 128 bits)", entry.kind.name()),
            found: t.stack_bytes,
            max: crate::STACK_BYTES_MAX,
        });
    }
    let source_map = t.source_map.take();
    let listed = source_map.as_ref().filter(|_| shared.options.keep_text);
    let stages = Stages::new(shared.program, flow, plan, &t.row_bytes(), listed);
    if shared.options.has(crate::Optimisation::LazyFields) && !t.are_tables_many() {
        crate::reloads::remove(t.b.func, t.flags.packet.alias_region());
    }
    t.b.finalize(frontend);
    Ok((source_map, stages))
}

// The packet loop.
impl<'a> Translator<'a, '_> {
    fn packet_loop(&mut self, head: clif::Block) -> Result<(), Error> {
        self.locate_outside();
        let count = self.b.ins().uload32(self.flags.desc, self.batch, offset_of!(Batch, count) as i32);
        self.now_us = self.b.ins().load(I64, self.flags.desc, self.batch, offset_of!(Batch, now_us) as i32);
        self.load_snapshots()?;
        let first = self.add_imm(self.batch, offset_of!(Batch, packets) as u64);
        let bytes = self.b.ins().imul_imm_u(count, size_of::<PacketDesc>() as i64);
        let end = self.b.ins().iadd(first, bytes);
        self.declare_header_pointers();
        if self.plan.is_staged() {
            return self.staged_loop(first, end);
        }
        if let Some(prefetch_pass) = &self.plan.prefetch_pass {
            self.prefetch_loop(prefetch_pass, first, end)?;
        }
        // The end is kept on the stack, since it would occupy a register throughout the code. It is stored in the
        // descriptors' region, where values are not taken to be known, so that the load is not replaced by the value.
        let kept = self.stack_slot(8);
        let kept_at = self.stack_addr(kept);
        self.b.ins().store(self.flags.desc, end, kept_at, 0);
        // With many lookups no register is left for the packet.
        self.packet_at = self.are_tables_many().then(|| self.stack_slot(8));
        self.keep_packet(first);
        let exit = self.b.create_block();
        let none = self.icmp(IntCC::Equal, first, end);
        self.runs_to_completion = true;
        let is_kept = self.packet_at.is_none();
        let passed = |packet: Value| is_kept.then(|| packet.into());
        self.b.ins().brif(none, exit, &[], head, passed(first).as_slice());

        self.b.switch_to_block(head);
        let own = if is_kept { self.b.append_block_param(head, I64) } else { self.reload_packet() };
        self.packet = own;
        self.start_packet();
        self.run_phase(0)?;

        self.b.seal_block(self.next_packet);
        self.b.switch_to_block(self.next_packet);
        self.locate_outside();
        self.packet = own;
        let packet = self.reload_packet();
        let next = self.add_imm(packet, size_of::<PacketDesc>() as u64);
        self.keep_packet(next);
        let kept_at = self.stack_addr(kept);
        let end = self.b.ins().load(I64, self.flags.desc, kept_at, 0);
        let over = self.b.ins().icmp(IntCC::Equal, next, end);
        self.b.ins().brif(over, exit, &[], head, passed(next).as_slice());
        self.b.seal_block(head);
        self.b.seal_block(exit);
        self.b.switch_to_block(exit);
        // From here on, no block gets another predecessor.
        self.b.seal_all_blocks();
        self.end_entry(Some(PacketLoop { first: head, last: self.next_packet }));
        Ok(())
    }

    fn keep_packet(&mut self, packet: Value) {
        if let Some(at) = self.packet_at {
            let at = self.stack_addr(at);
            self.b.ins().store(self.flags.stack, packet, at, 0);
        }
    }

    /// The current packet's descriptor, reloaded if it is spilled: cold code keeps no register for it.
    pub fn reload_packet(&mut self) -> Value {
        match self.packet_at {
            Some(at) => {
                let at = self.stack_addr(at);
                self.b.ins().load(I64, self.flags.stack, at, 0)
            }
            None => self.packet,
        }
    }

    /// The worker's context. Cold code loads it from where the function's start has spilled it; otherwise it would
    /// occupy a register on the hot paths too.
    pub fn context(&mut self) -> Value {
        let block = self.b.current_block().expect("an operation is being translated");
        if !self.is_cold && !self.b.func.layout.is_cold(block) {
            return self.ctx;
        }
        // Stored in the descriptors' region, where values are not taken to be known.
        let (ctx, flags) = (self.ctx, self.flags.desc);
        let slot = match self.ctx_at {
            Some(slot) => slot,
            None => {
                let slot = self.stack_slot(8);
                let start = self.b.func.layout.entry_block().expect("the function has begun");
                let mut first = FuncCursor::new(self.b.func).at_first_insertion_point(start);
                let at = first.ins().stack_addr(I64, slot, 0);
                first.ins().store(flags, ctx, at, 0);
                *self.ctx_at.insert(slot)
            }
        };
        let at = self.stack_addr(slot);
        self.b.ins().load(I64, flags, at, 0)
    }

    /// Code after the last packet of a batch.
    pub fn end_entry(&mut self, packet_loop: Option<PacketLoop>) {
        self.locate_outside();
        self.add_up_counts(packet_loop);
        self.clear_call_site();
        self.b.ins().return_(&[]);
    }

    /// Loads a 32-bit field of the descriptor.
    pub fn load_desc32(&mut self, offset: usize) -> Value {
        self.b.ins().uload32(self.flags.desc, self.packet, offset as i32)
    }

    /// Stores the low 32 bits of a word in a field of the descriptor.
    pub fn store_desc32(&mut self, value: Value, offset: usize) {
        match self.as_constant(value) {
            Some(constant) => {
                let constant = self.i32_const(constant as u32);
                self.b.ins().store(self.flags.desc, constant, self.packet, offset as i32);
            }
            None => {
                let low = self.b.ins().ireduce(I32, value);
                self.b.ins().store(self.flags.desc, low, self.packet, offset as i32);
            }
        }
    }

    /// Allocates the locations of the header pointers that are carried.
    fn declare_header_pointers(&mut self) {
        for header in self.flow.carried_headers(self.options.carried_headers_max) {
            self.header_pointers[header.index()] = Some(match self.placement.pointer(header) {
                true => Place::Memory(self.frame_words(1)),
                false => Place::Var(self.b.declare_var(I64)),
            });
        }
    }

    /// Initialises all variables as they are when a packet enters.
    pub fn start_packet(&mut self) {
        self.facts_now = self.flow.initial(self.program, self.facts, self.entry.kind);
        self.known_now.clear();
        let data = self.b.ins().load(I64, self.flags.desc, self.packet, offset_of!(PacketDesc, data) as i32);
        self.b.def_var(self.vars.data, data);
        self.entry_len = self.load_desc32(offset_of!(PacketDesc, len));
        self.b.def_var(self.vars.len, self.entry_len);
        let zero = self.iconst(0);
        let cursor = match self.facts_now.cursor {
            flow::Place::Const(c) => self.iconst(u64::from(c)),
            flow::Place::Varying => self.load_desc32(offset_of!(PacketDesc, consumed)),
        };
        self.b.def_var(self.vars.cursor, cursor);
        let untruncated = self.iconst(u64::MAX);
        self.b.def_var(self.vars.truncate, untruncated);
        self.b.def_var(self.vars.emitted, zero);
        self.b.def_var(self.vars.spent, zero);
        let zeros = self.zeros();
        for place in self.header_pointers.clone().into_iter().flatten() {
            self.write_pointer(place, zeros);
        }
        self.set_slots(&|_| true);
    }

    /// Sets the needed slots that `which` selects to their values at entry: from the record, zero, or from the
    /// descriptor.
    pub fn set_slots(&mut self, which: &dyn Fn(SlotId) -> bool) {
        self.load_slots(which);
        if self.entry.kind == EntryKind::Ingress {
            self.set_intrinsics(which);
        }
    }

    fn load_slots(&mut self, which: &dyn Fn(SlotId) -> bool) {
        let kind = self.entry.kind;
        let record = self.b.ins().load(I64, self.flags.origin, self.packet, offset_of!(PacketDesc, record) as i32);
        let zero = self.iconst(0);
        let pair_zero = self.pair_const(0);
        self.clear_frame(which);
        for s in self.flow.needed.iter() {
            let slot = SlotId::from_index(s);
            if !which(slot) {
                continue;
            }
            let width = self.program.width(slot);
            let is_live = self.flow.live_at_start.contains(s);
            let val = match Class::of(width) {
                _ if is_live && self.facts.is_kept(kind, slot) => {
                    let offset = 8 * self.record.offset(slot) as u32;
                    self.load_val(self.flags.desc, width, record, offset)
                }
                _ if self.placement.slot(slot) == Where::Memory => continue,
                Class::Word => Val::Word(zero),
                Class::Pair => Val::Pair(pair_zero),
                // A definition costs nothing, but these are stores.
                Class::Words(n) if is_live => Val::Words(vec![zero; n]),
                Class::Words(_) => continue,
            };
            self.write_slot(slot, &val);
        }
    }

    /// Clears the slots in the frame whose initial value is zero, and allocates adjacent places for those that have
    /// none yet.
    fn clear_frame(&mut self, which: &dyn Fn(SlotId) -> bool) {
        let (flow, program) = (self.flow, self.program);
        // Offsets of words in the frame. They are adjacent if this function allocates them.
        let mut words: Vec<u32> = Vec::new();
        for s in flow.needed.iter() {
            let slot = SlotId::from_index(s);
            // Code that changes headers reads their validity and the lengths of varbits even if no operation does.
            let is_tested = matches!(program.slots[s].kind, SlotKind::Valid(_) | SlotKind::VarbitLength(_));
            let is_read = is_tested || flow.live_at_start.contains(s) && self.has_value(slot);
            if self.placement.slot(slot) == Where::Memory
                && which(slot)
                && is_read
                && let Place::Memory(offset) = self.place(slot)
            {
                words.extend((0..program.width(slot).div_ceil(64)).map(|word| offset + 8 * word));
            }
        }
        words.sort_unstable();
        let frame = self.stack_addr(self.frame);
        let is_pair = |at: usize| words.get(at + 1).is_some_and(|next| *next == words[at] + 8);
        let zeros = (0..words.len()).any(is_pair).then(|| {
            let zero = self.b.func.dfg.constants.insert(vec![0; 16].into());
            self.b.ins().vconst(I8X16, zero)
        });
        let mut at = 0;
        while at < words.len() {
            let (value, count) = match zeros {
                Some(zeros) if is_pair(at) => (zeros, 2),
                _ => (self.iconst(0), 1),
            };
            self.b.ins().store(self.flags.stack, value, frame, words[at] as i32);
            at += count;
        }
    }

    /// Whether a slot has a value of its own here: clean fields are read from the packet.
    fn has_value(&self, slot: SlotId) -> bool {
        self.facts.lazy_field(slot).is_none() || self.flow.is_dirty(self.facts, &self.facts_now, slot)
    }

    /// Sets the intrinsics of a packet that was received from a port.
    fn set_intrinsics(&mut self, wanted: &dyn Fn(SlotId) -> bool) {
        for &(which, slot) in self.program.intrinsics.iter().filter(|(_, slot)| wanted(*slot)) {
            let value = match value_at_ingress(which, self.program) {
                Some(value) => self.iconst(value),
                None => self.intrinsic_at_ingress(which),
            };
            self.write_number(slot, value);
        }
    }

    /// The slots that equal a field of the descriptor for a packet from a port, until a deparser runs.
    fn origins(program: &Program, entry: &EntryPoint) -> Vec<(SlotId, Intrinsic)> {
        if entry.kind != EntryKind::Ingress {
            return Vec::new();
        }
        let mut origins: Vec<(SlotId, Intrinsic)> = (program.intrinsics.iter())
            .filter(|(which, slot)| value_at_ingress(*which, program).is_none() && program.width(*slot) <= 64)
            .map(|(which, slot)| (*slot, *which))
            .collect();
        let blocks = entry.stages.iter().flat_map(|stage| &program.stages[stage.index()].blocks);
        for inst in blocks.flat_map(|block| &block.insts) {
            inst.op.for_each_def(program, |assigned| origins.retain(|(slot, _)| *slot != assigned));
        }
        origins
    }

    /// The value of a slot that equals a field of the descriptor, loaded from there. Used on cold paths, so that hot
    /// ones need not keep it. `None` if the slot is no such slot, or the descriptor may have changed.
    pub fn read_origin(&mut self, slot: SlotId) -> Option<Value> {
        let (_, which) = *self.origins.iter().find(|(origin, _)| *origin == slot)?;
        if !self.runs_to_completion || !self.flow.is_before_deparsers(self.position) {
            return None;
        }
        let value = match which {
            Intrinsic::PacketLength => self.load_desc32(offset_of!(PacketDesc, len)),
            _ => self.intrinsic_at_ingress(which),
        };
        Some(self.mask_word(value, self.program.width(slot)))
    }

    /// An intrinsic that differs between packets.
    pub fn intrinsic_at_ingress(&mut self, which: Intrinsic) -> Value {
        match which {
            Intrinsic::IngressPort => {
                let offset = offset_of!(PacketDesc, ingress_port) as i32;
                self.b.ins().uload32(self.flags.origin, self.packet, offset)
            }
            Intrinsic::PacketLength => self.entry_len,
            Intrinsic::IngressTimestamp => {
                let offset = offset_of!(PacketDesc, timestamp_us) as i32;
                self.b.ins().load(I64, self.flags.origin, self.packet, offset)
            }
            other => unreachable!("`{}` is the same for all packets", other.name()),
        }
    }

    /// Translates a phase: from where its packets start to their fates or to where they wait. Without cuts it is all
    /// blocks of all stages.
    pub fn run_phase(&mut self, number: usize) -> Result<(), Error> {
        let phase = &self.plan.phases[number];
        self.phase = number;
        self.run(phase.cut.map(|c| self.plan.lookups[c].program_point), &phase.nodes)
    }

    /// Whether the entry point has so many tables that registers are better left to lookups.
    pub fn are_tables_many(&self) -> bool {
        self.has_many_tables
    }

    fn has_many_tables(program: &Program, flow: &Flow) -> bool {
        let nodes = flow.graph.nodes.iter();
        let code = nodes.flat_map(|n| &program.stages[n.stage.index()].blocks[n.block.index()].insts);
        let tables = code.filter_map(|inst| if let Op::Apply { table, .. } = inst.op { Some(table) } else { None });
        tables.collect::<BTreeSet<TableId>>().len() >= TABLES_MANY
    }

    /// Translates nodes in order, from an operation on or from the start of the entry point; each up to where packets
    /// stop to wait, if they do.
    pub fn run(&mut self, start: Option<ProgramPoint>, run: &[(usize, Option<usize>)]) -> Result<(), Error> {
        let (flow, plan) = (self.flow, self.plan);
        let nodes = &flow.graph.nodes;
        let mut blocks: Vec<Option<clif::Block>> = vec![None; nodes.len()];
        let mut open: Vec<u32> = vec![0; nodes.len()];
        let cold = flow.graph.cold(self.program);
        for &(n, stop) in run {
            let block = self.b.create_block();
            blocks[n] = Some(block);
            let code = &self.program.stages[nodes[n].stage.index()].blocks[nodes[n].block.index()];
            if cold[n] || code.insts.iter().any(|i| matches!(i.op, Op::Digest { .. } | Op::Log { .. })) {
                self.b.set_cold_block(block);
            }
            if stop.is_none() {
                nodes[n].succs.iter().for_each(|&s| open[s] += 1);
            }
        }
        let block = |n: usize| blocks[n].expect("a phase has the successors of its nodes");
        self.reset_held_locks();
        if start.is_none() {
            self.enter_stage(0);
        }
        let first = start.map_or(0, |s| s.0);
        self.b.ins().jump(block(first), &[]);
        if open[first] == 0 {
            self.b.seal_block(block(first));
        }
        let packet = self.packet;
        let are_many = self.are_tables_many();
        // The first Cranelift block created for each node's operations.
        let mut own = Vec::with_capacity(run.len());
        for &(n, stop) in run {
            let node = &nodes[n];
            own.push(self.b.func.dfg.num_blocks());
            self.b.switch_to_block(block(n));
            self.node = n;
            self.is_cold = cold[n];
            self.packet = if cold[n] || are_many { self.reload_packet() } else { packet };
            self.position = node.position;
            self.facts_now = flow.at[n].clone();
            self.known_now.clear();
            // Where a phase resumes inside a node, earlier operations may have changed what was known at its start.
            for (slot, value) in node.known.iter().filter(|_| start.is_none_or(|s| s.0 != n)) {
                // A slot in memory has that value already.
                if self.placement.slot(*slot) != Where::Memory {
                    let value = self.constant(value);
                    self.write_slot(*slot, &value);
                }
            }
            let code = &self.program.stages[node.stage.index()].blocks[node.block.index()];
            let from = start.filter(|s| s.0 == n).map_or(0, |s| s.1);
            for inst in &code.insts[..from] {
                flow.step(self.program, self.facts, node.position, &inst.op, &mut self.facts_now);
            }
            if from == 0 {
                self.release_at_start();
            }
            self.known_now = node.known.clone();
            for inst in &code.insts[..from] {
                self.forget(&inst.op, false);
            }
            for (i, inst) in code.insts.iter().enumerate().take(stop.unwrap_or(usize::MAX)).skip(from) {
                self.program_point = (n, i);
                let is_last = i + 1 == code.insts.len() && stop.is_none() && !node.decided;
                self.terminator_next = is_last.then_some(&code.term);
                let is_done = self.inst(inst)?;
                self.forget(&inst.op, is_done);
            }
            if stop.is_some() && self.prefetch_pass {
                self.b.ins().jump(self.next_packet, &[]);
                continue;
            }
            if let Some(stop) = stop {
                self.locate(Some(&code.insts[stop].op), code.insts[stop].span);
                self.park(plan.lookup_at((n, stop)).expect("phases stop at lookups"))?;
                continue;
            }
            let only = node.targets.keys().next().filter(|_| node.decided);
            let decided = only.map(|to| Terminator::Jump(*to));
            loop {
                self.locate(None, code.span);
                if !matches!(code.term, Terminator::Next) {
                    node.succs.iter().for_each(|&s| self.materialise_for(s));
                }
                self.terminator(
                    decided.as_ref().unwrap_or(&code.term),
                    &|to| block(flow.graph.target(n, to)),
                    node.succs.first().map(|&s| (s, block(s))),
                )?;
                if !self.begin_miss_continuation()? {
                    break;
                }
            }
            for &s in &node.succs {
                open[s] -= 1;
                if open[s] == 0 {
                    self.b.seal_block(block(s));
                }
            }
        }
        self.packet = packet;
        own.push(self.b.func.dfg.num_blocks());
        for (own, _) in own.windows(2).zip(run).filter(|(_, (n, _))| cold[*n]) {
            (own[0]..own[1]).for_each(|b| self.b.set_cold_block(clif::Block::from_u32(b as u32)));
        }
        Ok(())
    }

    /// Forgets the known values of slots that an operation assigns. Moves for which code was made have recorded the new
    /// value.
    fn forget(&mut self, op: &Op, is_done: bool) {
        let is_noted = is_done && matches!(op, Op::Mov { .. });
        if !is_noted && !self.known_now.is_empty() {
            op.for_each_def(self.program, |slot| _ = self.known_now.remove(&slot));
        }
    }

    /// Loads the fields that are clean here but dirty at a successor, where another path joins.
    pub fn materialise_for(&mut self, node: usize) {
        let flow = self.flow;
        let turning = flow.turning_dirty(self.program, self.facts, &self.facts_now, &flow.at[node]);
        self.materialise(&turning);
    }

    /// Adds steps to those that the packet has spent in loops, and ends it with fate `Endless` above [`ir::STEPS_MAX`],
    /// so that no program holds a worker forever.
    pub fn charge(&mut self, steps: u32) {
        let spent = self.b.use_var(self.vars.spent);
        let spent = self.add_imm(spent, steps.into());
        self.b.def_var(self.vars.spent, spent);
        let (go_on, endless) = (self.b.create_block(), self.b.create_block());
        let over = self.icmp_imm(IntCC::UnsignedGreaterThan, spent, ir::STEPS_MAX);
        self.b.ins().brif(over, endless, &[], go_on, &[]);
        self.b.seal_block(endless);
        self.b.seal_block(go_on);
        self.b.set_cold_block(endless);
        self.b.switch_to_block(endless);
        self.finish(FateCode::Endless, 0);
        self.b.switch_to_block(go_on);
    }

    pub fn enter_stage(&mut self, position: usize) {
        let (flow, program, entry) = (self.flow, self.program, self.entry);
        let changed = flow.enter_stage(program, entry, position, &mut self.facts_now);
        if let Some(changed) = changed {
            let flag = self.iconst(u64::from(changed));
            self.b.def_var(self.vars.layout_changed, flag);
        }
        match self.program.stages[self.entry.stages[position].index()].kind {
            StageKind::Parser => {
                let zero = self.iconst(0);
                self.b.def_var(self.vars.cursor, zero);
            }
            StageKind::Deparser => {
                let (zero, untruncated) = (self.iconst(0), self.iconst(u64::MAX));
                self.b.def_var(self.vars.emitted, zero);
                self.b.def_var(self.vars.truncate, untruncated);
            }
            StageKind::Control => {}
        }
    }

    /// Ends a deparser stage: joins emitted headers and payload. Code continues after it.
    pub fn leave_stage(&mut self) {
        if self.program.stages[self.entry.stages[self.position].index()].kind == StageKind::Deparser {
            let (flow, facts, program) = (self.flow, self.facts, self.program);
            let mut after = self.facts_now.clone();
            flow.leave_stage(self.position, &mut after, facts);
            self.materialise(&flow.turning_dirty(program, facts, &self.facts_now, &after));
            self.join_packet();
            self.facts_now = after;
            let changed = self.iconst(1);
            self.b.def_var(self.vars.layout_changed, changed);
        }
    }

    /// Three stack buffers for values of up to `bytes` bytes; their contents do not survive the next call.
    pub fn wide_scratch(&mut self, bytes: u32) -> [StackSlot; 3] {
        let scratch = match self.scratch {
            Some(scratch) => scratch,
            None => {
                let new = [self.stack_slot(16), self.stack_slot(16), self.stack_slot(16)];
                *self.scratch.insert(new)
            }
        };
        scratch.iter().for_each(|&slot| self.grow(slot, bytes));
        scratch
    }

    /// Enlarges a stack slot to at least `bytes` bytes.
    pub fn grow(&mut self, slot: StackSlot, bytes: u32) {
        let bytes = bytes.next_multiple_of(8);
        let size = &mut self.b.func.sized_stack_slots[slot].size;
        if *size < bytes {
            self.stack_bytes += u64::from(bytes - *size);
            *size = bytes;
        }
    }

    /// Calls a C function at `address`; the types of the arguments are its parameters' types.
    pub fn call(&mut self, address: usize, args: &[Value], ret: Option<Type>) -> Option<Value> {
        let params: Vec<Type> = args.iter().map(|&a| self.b.func.dfg.value_type(a)).collect();
        let call_conv = self.b.func.signature.call_conv;
        let b = &mut self.b;
        let signature = *self.signatures.entry((params.clone(), ret)).or_insert_with(|| {
            let mut signature = Signature::new(call_conv);
            signature.params = params.into_iter().map(AbiParam::new).collect();
            signature.returns = ret.into_iter().map(AbiParam::new).collect();
            b.import_signature(signature)
        });
        self.store_call_site();
        let callee = self.address(address as u64);
        let inst = self.b.ins().call_indirect(signature, callee, args);
        self.b.inst_results(inst).first().copied()
    }

    pub fn i32_const(&mut self, value: u32) -> Value {
        self.b.ins().iconst(I32, i64::from(value))
    }
}
