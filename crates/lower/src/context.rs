//! The state of lowering: the program that is read, the program that is built, and the current position.
//!
//! - [`Env`]: the body that is being lowered: its frame, its instance, and the bindings of its parameters.
//! - [`Join`]: a block where several paths meet. It is created when the first path jumps to it, so that code without
//!   `return`, `exit` or `break` stays in one block.
//! - *Facts*: the headers known to be valid on the current path, by validity slot. They make guards unnecessary. A join
//!   keeps the intersection of its paths' facts.

use crate::add_on_miss::OfTable;
use crate::arch::Architecture;
use crate::codes;
use crate::portable::emits::Emits;
use crate::retained::Retained;
use crate::tree::Tree;
use crate::{Lowered, cleanup};
use base::diag::Diagnostic;
use base::{Bits, Span};
use ir::{BlockId, Builder, Mark, Op, Operand, SlotId, StageId, StageKind};
use sema::TypedProgram;
use sema::typed::{ActionId, ExprKind, FrameId, InstanceId, LocalId, TableId, ValueSetId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// Limit on operations, blocks and slots of a lowered program, with everything inlined. The largest program of the
/// reference compiler's corpus, switch.p4, has 10,000 (the limit is fifty times that), DASH 2,500, fabric.p4 1,300. At
/// the limit, lowering and optimising take a few seconds and about 0.5 GB.
pub const SIZE_LIMIT: usize = 1 << 19;

/// Limit on the width of a value, in bits; machine code computes with no wider ones.
pub const WIDTH_LIMIT: u32 = 1 << 16;

/// Limit on inlined calls and applications of a program: nested calls multiply.
const INLINE_LIMIT: usize = 100_000;

/// Limit on lowered statements and expressions, counted each time they are inlined; those that emit no operation take
/// time as well. It allows sixteen for each operation.
const STEPS_LIMIT: usize = 1 << 23;

/// Number of facts kept at a join that cost one unit of the budget.
const FACTS_PER_UNIT: usize = 64;

/// Maximum number of source positions listed when a program is too large.
const CULPRITS_MAX: usize = 3;

/// What a variable or parameter is bound to.
#[derive(Clone, Debug)]
pub(crate) enum Binding {
    /// A value or storage.
    Tree(Tree),
    /// The parser's `packet_in`.
    PacketIn,
    /// The deparser's `packet_out`.
    PacketOut,
    /// An extern object passed as a run-time argument.
    Instance(InstanceId),
    /// The value of a parameter of type `int` or `string`, which is known at each call.
    Known(sema::Value),
    /// An extern object that is not part of the program, by name.
    Outside(Rc<str>),
}

/// The environment of the body that is being lowered.
#[derive(Clone, Debug)]
pub(crate) struct Env {
    /// The frame of its variables.
    pub frame: FrameId,
    /// The instance it belongs to; `None` for functions and top-level actions.
    pub instance: Option<InstanceId>,
    /// Name prefix of its variables' slots.
    pub prefix: Rc<str>,
    /// Bindings of parameters, by local; other locals have storage of their own.
    pub bindings: HashMap<LocalId, Binding>,
}

/// A block where paths meet.
#[derive(Debug)]
struct JoinState {
    label: &'static str,
    block: Option<BlockId>,
    facts: Option<Facts>,
}

/// An index of a [`JoinState`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join(usize);

/// Validity slots that are known to be 1.
pub(crate) type Facts = BTreeSet<SlotId>;

/// The target of `return`.
#[derive(Clone, Debug)]
pub(crate) struct ReturnTarget {
    pub join: Join,
    pub result: Option<Tree>,
}

/// The targets of `break` and `continue`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopTarget {
    pub brk: Join,
    pub cont: Join,
}

/// A table of one instance of its control.
#[derive(Clone, Debug)]
pub(crate) struct TableInfo {
    pub table: ir::TableId,
    /// By key: whether its match kind is `selector`.
    pub selector_keys: Rc<[bool]>,
    /// Direct counters, counted at each hit.
    pub counters: Rc<[ir::ExternId]>,
    /// Direct meters.
    pub meters: Rc<[ir::ExternId]>,
    /// The index in the IR table's action list, for each listed action.
    pub places: Rc<[u32]>,
    /// Pairs of listed actions that run one after the other; each pair is an action of the IR table, after the listed
    /// ones.
    pub combined: Rc<[(usize, usize)]>,
}

/// The state of lowering.
pub(crate) struct Lowerer<'p> {
    pub p: &'p TypedProgram,
    pub b: Builder,
    diags: Vec<Diagnostic>,
    /// Reasons why the program cannot be loaded.
    pub unloadable: Vec<Diagnostic>,
    /// Whether the package belongs to no known architecture, so that everything it calls is foreign.
    pub package_is_foreign: bool,
    /// The include file of the program's architecture, for messages.
    pub architecture_file: &'static str,
    /// Diagnostics already reported, by position and code: inlining meets the same code repeatedly.
    reported: HashSet<(Span, &'static str)>,
    pub arch: Option<Box<dyn Architecture>>,
    pub env: Env,
    pub facts: Facts,
    joins: Vec<JoinState>,
    /// The IR's number of each `error` member of the typed program.
    pub errors: Vec<u32>,
    pub ret: Option<ReturnTarget>,
    pub exit: Option<Join>,
    pub loops: Vec<LoopTarget>,
    /// Blocks of the open parser stage that set an error and end the stage, by error (`None`: plain `reject`).
    pub fail_blocks: HashMap<Option<u32>, BlockId>,
    /// The target of `accept`, of the parser or of a sub-parser.
    pub accept: Option<Join>,
    pub parser_error: Option<SlotId>,
    pub stage_kind: StageKind,
    /// Storage of variables.
    pub frames: HashMap<(FrameId, Option<InstanceId>, LocalId), Tree>,
    /// The members of a header union, by the validity slot of each member.
    pub union_members: HashMap<SlotId, Rc<[Tree]>>,
    pub header_names: HashSet<String>,
    stage_names: HashSet<String>,
    pub actions: HashMap<(ActionId, Option<InstanceId>), ir::ActionId>,
    /// IR actions by name.
    pub action_names: HashMap<String, ir::ActionId>,
    pub tables: HashMap<(TableId, InstanceId), TableInfo>,
    /// By action profile or selector: the actions of each of its tables.
    pub profile_lists: HashMap<InstanceId, Rc<[Vec<ir::TableAction>]>>,
    pub value_sets: HashMap<(ValueSetId, InstanceId), ir::TableId>,
    pub externs: HashMap<InstanceId, ir::ExternId>,
    /// While a table's action is lowered, by direct counter or meter: the slot with the colour of the matched entry's
    /// meter. Where actions call direct counters and meters, the slot with the matched entry.
    pub direct: HashMap<ir::ExternId, SlotId>,
    /// Whether a table's action is being lowered.
    pub in_table_action: bool,
    /// The table whose action is being lowered.
    pub of_table: Option<OfTable>,
    /// The locals that an action's body names, by action; see `call.rs`.
    pub action_locals: HashMap<ActionId, Rc<HashSet<LocalId>>>,
    /// Calls of `emit`, in a deparser that is lowered as a control.
    pub emits: Option<Emits>,
    /// Headers that keep their fields while they are invalid; `None` with the semantics of P4_16.
    pub retained: Option<Retained>,
    /// The port of v1model that means drop, if it is not 511.
    pub drop_port: Option<u64>,
    inlined: usize,
    steps: usize,
    gave_up: bool,
}

impl<'p> Lowerer<'p> {
    pub fn new(p: &'p TypedProgram, name: &str) -> Lowerer<'p> {
        let mut b = Builder::new(name);
        b.set_budget(SIZE_LIMIT);
        // `NoError` is 0 in the IR, even if the program declares errors before it includes `core.p4`.
        b.error("NoError");
        let errors = p.errors.iter().map(|e| b.error(e)).collect();
        Lowerer {
            p,
            b,
            diags: Vec::new(),
            unloadable: Vec::new(),
            package_is_foreign: false,
            architecture_file: "its include file",
            reported: HashSet::new(),
            arch: None,
            env: Env { frame: FrameId(u32::MAX), instance: None, prefix: "".into(), bindings: HashMap::new() },
            facts: Facts::new(),
            joins: Vec::new(),
            errors,
            ret: None,
            exit: None,
            loops: Vec::new(),
            fail_blocks: HashMap::new(),
            accept: None,
            parser_error: None,
            stage_kind: StageKind::Control,
            frames: HashMap::new(),
            union_members: HashMap::new(),
            header_names: HashSet::new(),
            stage_names: HashSet::new(),
            actions: HashMap::new(),
            action_names: HashMap::new(),
            tables: HashMap::new(),
            profile_lists: HashMap::new(),
            value_sets: HashMap::new(),
            externs: HashMap::new(),
            direct: HashMap::new(),
            in_table_action: false,
            of_table: None,
            action_locals: HashMap::new(),
            emits: None,
            retained: None,
            drop_port: None,
            inlined: 0,
            steps: 0,
            gave_up: false,
        }
    }

    pub fn finish(mut self) -> Lowered {
        self.report_overrun();
        self.report_wide_result();
        let mut program = self.b.finish();
        program.stages.iter_mut().for_each(cleanup::drop_unreachable);
        Lowered::new(program, self.diags, self.unloadable)
    }
}

// Diagnostics.
impl Lowerer<'_> {
    /// Reports an error, once per position and code.
    pub fn refuse(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(code, span, message));
    }

    /// Reports a diagnostic, once per position and code.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if self.reported.insert((diagnostic.span, diagnostic.code)) {
            self.diags.push(diagnostic);
        }
    }

    /// The name of a type, as in P4.
    pub fn type_text(&self, ty: &sema::Type) -> String {
        self.p.types.display(ty).to_string()
    }

    /// The compile-time value of an expression in the current instance.
    pub fn constant(&self, expr: &sema::typed::Expr) -> Option<sema::Value> {
        match &expr.kind {
            ExprKind::Const(value) => Some(value.clone()),
            _ => {
                let known = |local| match self.env.bindings.get(&local) {
                    Some(Binding::Known(value)) => Some(value.clone()),
                    _ => None,
                };
                sema::consteval::eval_with(self.p, expr, self.env.instance, &known)
            }
        }
    }
}

// Blocks and joins.
impl Lowerer<'_> {
    /// A new join that no path has reached yet.
    pub fn new_join(&mut self, label: &'static str) -> Join {
        self.joins.push(JoinState { label, block: None, facts: None });
        Join(self.joins.len() - 1)
    }

    /// The block of a join, for a path that arrives with these facts.
    pub fn join_block(&mut self, join: Join, facts: &Facts) -> BlockId {
        // Each join has a copy of the facts.
        self.b.charge(facts.len() / FACTS_PER_UNIT);
        let state = &mut self.joins[join.0];
        match &mut state.facts {
            Some(known) => known.retain(|f| facts.contains(f)),
            none => *none = Some(facts.clone()),
        }
        match state.block {
            Some(block) => block,
            None => {
                let block = self.b.block(state.label);
                state.block = Some(block);
                block
            }
        }
    }

    /// Jumps to a join, unless the current path has ended.
    pub fn to(&mut self, join: Join) {
        if !self.b.is_terminated() {
            let facts = std::mem::take(&mut self.facts);
            let block = self.join_block(join, &facts);
            self.b.jump(block);
        }
    }

    /// Continues at a join. The current path also jumps there if it has not ended. Does nothing if no other path leads
    /// there.
    pub fn continue_at(&mut self, join: Join) {
        if self.is_used(join) {
            self.to(join);
            self.enter(join);
        }
    }

    /// Continues at a join that some path leads to.
    pub fn enter(&mut self, join: Join) {
        let state = &mut self.joins[join.0];
        let facts = state.facts.clone().unwrap_or_default();
        if let Some(block) = state.block {
            self.b.switch_to(block);
        }
        self.facts = facts;
    }

    /// Whether a path leads to the join.
    pub fn is_used(&self, join: Join) -> bool {
        self.joins[join.0].block.is_some()
    }

    /// Continues in a block, with these facts.
    pub fn start_block(&mut self, block: BlockId, facts: Facts) {
        self.b.switch_to(block);
        self.facts = facts;
    }

    /// Branches on a condition; continues in the block where it holds and returns the other one.
    pub fn split(&mut self, cond: Operand) -> BlockId {
        let then = self.b.block("");
        let other = self.b.block("");
        self.b.branch(cond, then, other);
        self.b.switch_to(then);
        other
    }

    /// Opens a stage under a unique name.
    pub fn open_stage(&mut self, name: &str, kind: StageKind) -> StageId {
        let mut unique = name.to_string();
        let mut number = 1;
        while !self.stage_names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}#{number}");
        }
        self.facts.clear();
        self.stage_kind = kind;
        self.b.set_span(Span::NONE);
        self.b.begin_stage(unique, kind)
    }

    /// Closes the stage; the current path, if it has not ended, continues with the next stage.
    pub fn close_stage(&mut self) {
        if !self.b.is_terminated() {
            self.b.next_stage();
        }
        let fails: Vec<_> = self.fail_blocks.drain().collect();
        let mut fails: Vec<_> = fails.into_iter().map(|(error, block)| (block, error)).collect();
        fails.sort();
        self.b.set_span(Span::NONE);
        for (block, error) in fails {
            self.b.switch_to(block);
            if let (Some(error), Some(slot)) = (error, self.parser_error) {
                self.b.set(slot, u128::from(error));
            }
            self.b.next_stage();
        }
        self.b.end_stage();
    }

    /// Counts an inlined body. Returns whether lowering has given up because the program is too large.
    pub fn too_large(&mut self, span: Span) -> bool {
        self.inlined += 1;
        if self.inlined > INLINE_LIMIT {
            let message = format!("the program has more than {INLINE_LIMIT} calls when everything is inlined");
            self.give_up(span, message, "call it from fewer places, or put the work into a table");
        }
        self.is_too_large()
    }

    /// Counts a lowered statement or expression. Returns whether lowering has given up because the program is too
    /// large.
    pub fn step(&mut self, span: Span) -> bool {
        self.steps += 1;
        if self.steps > STEPS_LIMIT {
            let message = format!(
                "the program has more than {STEPS_LIMIT} statements and expressions when everything is inlined"
            );
            self.give_up(span, message, "call it from fewer places, or put the work into a table");
        }
        self.is_too_large()
    }

    /// Whether lowering has given up; nothing is emitted any more.
    pub fn is_too_large(&self) -> bool {
        self.gave_up || self.b.overrun().is_some()
    }

    fn give_up(&mut self, span: Span, message: String, help: &str) {
        if !std::mem::replace(&mut self.gave_up, true) {
            self.report(Diagnostic::error(codes::TOO_LARGE, span, message).help(help));
        }
    }

    /// Reports that the budget of operations is exhausted, where that happened, and which positions used most of it.
    fn report_overrun(&mut self) {
        let Some(span) = self.b.overrun().filter(|_| !self.gave_up) else { return };
        let mut made: HashMap<Span, usize> = HashMap::new();
        for inst in self.b.program().stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
            *made.entry(inst.span).or_default() += ir::builder::units(self.b.program(), &inst.op);
        }
        let mut most: Vec<(Span, usize)> =
            made.into_iter().filter(|(span, made)| !span.is_none() && *made * 20 > SIZE_LIMIT).collect();
        most.sort_by_key(|(span, made)| (std::cmp::Reverse(*made), *span));
        let message =
            format!("the program has more than {SIZE_LIMIT} operations and variables when everything is inlined");
        let help = "a struct is copied and compared field by field, and each call is a copy of what it calls; operations on wide \
                    values, lookups and messages count more than once: use smaller types, fewer calls, or a table";
        let mut diagnostic =
            Diagnostic::error(codes::TOO_LARGE, span, message).label("here it is too large").help(help);
        for (at, made) in most.into_iter().filter(|(at, _)| *at != span).take(CULPRITS_MAX) {
            diagnostic = diagnostic.note(at, format!("{made} of them are made here"));
        }
        self.report(diagnostic);
    }

    /// Reports an operation whose result is too wide; variables are checked where they are declared.
    fn report_wide_result(&mut self) {
        let program = self.b.program();
        let mut wide = None;
        for inst in program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts) {
            inst.op.for_each_def(program, |slot| {
                let width = program.width(slot);
                if width > WIDTH_LIMIT && wide.is_none() {
                    wide = Some((inst.span, width));
                }
            });
        }
        if let Some((span, width)) = wide {
            self.refuse_width(span, width);
        }
    }

    /// Reports an error: a value of `width` bits is too wide.
    pub fn refuse_width(&mut self, span: Span, width: u32) {
        let message = format!("a value of {width} bits; the widest that the switch computes with has {WIDTH_LIMIT}");
        self.refuse(codes::UNSUPPORTED_TYPE, span, message);
    }

    /// Marks the beginning of a construct, for the tracer.
    pub fn mark(&mut self, mark: Mark) {
        self.b.emit(Op::Mark(mark));
    }
}

// Helpers on operands.
impl Lowerer<'_> {
    /// The width of an operand.
    pub fn width(&self, o: &Operand) -> u32 {
        o.width(self.b.program())
    }

    /// `a & b` of single bits, with constants folded.
    pub fn and(&mut self, a: Operand, b: Operand) -> Operand {
        match (&a, &b) {
            (Operand::Const(c), _) => {
                if c.is_true() {
                    b
                } else {
                    a
                }
            }
            (_, Operand::Const(c)) => {
                if c.is_true() {
                    a
                } else {
                    b
                }
            }
            _ => self.b.bin(ir::BinOp::And, a, b).into(),
        }
    }

    /// The complement of a single bit.
    pub fn not(&mut self, a: Operand) -> Operand {
        match &a {
            Operand::Const(c) => Operand::Const(c.not()),
            _ => self.b.un(ir::UnOp::Not, a).into(),
        }
    }

    /// A one-bit constant.
    pub fn bit(value: bool) -> Operand {
        Operand::Const(Bits::from_bool(value))
    }

    /// The IR's number of an error that `core.p4` declares.
    pub fn error_index(&mut self, name: &str) -> u32 {
        self.b.error(name)
    }
}
