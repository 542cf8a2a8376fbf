//! The state of lowering: the program being read, the one being built, and where we are.
//!
//! - [`Env`]: whose body is being lowered: its frame, instance, and what its parameters stand for.
//! - [`Join`]: a block that several paths lead to; it is made when the first path jumps to it, so that code without
//!   `return`, `exit` or `break` stays in one block.
//! - *Facts*: headers known to be valid at this point, by validity slot. They spare guards; they are merged at joins.

use crate::add_on_miss::OfTable;
use crate::arch::Architecture;
use crate::codes;
use crate::loose::Loose;
use crate::portable::emits::Emits;
use crate::tree::Tree;
use crate::{Lowered, cleanup};
use base::diag::Diagnostic;
use base::{Bits, Span};
use ir::{BlockId, Builder, Mark, Op, Operand, SlotId, StageId, StageKind};
use sema::TypedProgram;
use sema::typed::{ActionId, ExprKind, FrameId, InstanceId, LocalId, TableId, ValueSetId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// Most operations, blocks and slots of a program as lowered, with everything inlined. The largest program of the reference
/// compiler's corpus, switch.p4, has 10,000, so this is fifty times as much; DASH has 2,500, fabric.p4 1,300. At the limit lowering and
/// optimising take a few seconds and about half a gigabyte.
pub const SIZE_LIMIT: usize = 1 << 19;

/// Bits of the widest value that machine code computes with.
pub const WIDTH_LIMIT: u32 = 1 << 16;

/// Most calls and applications that are inlined in a program: calls of calls multiply.
const INLINE_LIMIT: usize = 100_000;

/// Most statements and expressions that are lowered, each once for each time that it is inlined: those that become no operation
/// take time, too. Sixteen for each operation.
const STEPS_LIMIT: usize = 1 << 23;

/// Facts that count as one unit of the budget when a join keeps them.
const FACTS_PER_UNIT: usize = 64;

/// Most places that are named when a program is too large.
const CULPRITS_MAX: usize = 3;

/// What a variable or parameter stands for.
#[derive(Clone, Debug)]
pub(crate) enum Binding {
    /// A value or storage.
    Tree(Tree),
    /// The parser's packet.
    PacketIn,
    /// The deparser's packet.
    PacketOut,
    /// An extern object given as a run-time argument.
    Instance(InstanceId),
    /// A parameter of type `int` or `string`: known wherever it is called.
    Known(sema::Value),
    /// An extern object that is not part of the program; its name.
    Outside(Rc<str>),
}

/// The body being lowered.
#[derive(Clone, Debug)]
pub(crate) struct Env {
    /// Its variables.
    pub frame: FrameId,
    /// Its instance; `None` for functions and top-level actions.
    pub instance: Option<InstanceId>,
    /// Prefix of its variables' slots.
    pub prefix: Rc<str>,
    /// What parameters stand for, by local; others have storage of their own.
    pub bindings: HashMap<LocalId, Binding>,
}

/// A block that paths lead to.
#[derive(Debug)]
struct JoinState {
    label: &'static str,
    block: Option<BlockId>,
    facts: Option<Facts>,
}

/// Names a [`JoinState`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join(usize);

/// Validity slots known to be 1.
pub(crate) type Facts = BTreeSet<SlotId>;

/// Where `return` goes.
#[derive(Clone, Debug)]
pub(crate) struct ReturnTarget {
    pub join: Join,
    pub result: Option<Tree>,
}

/// What `break` and `continue` lead to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopTarget {
    pub brk: Join,
    pub cont: Join,
}

/// A table as declared for one instance of its control.
#[derive(Clone, Debug)]
pub(crate) struct TableInfo {
    pub table: ir::TableId,
    /// By key: whether it is a `selector`.
    pub selector_keys: Rc<[bool]>,
    /// Direct counters, counted at each hit.
    pub counters: Rc<[ir::ExternId]>,
    /// Direct meters.
    pub meters: Rc<[ir::ExternId]>,
    /// Where the IR table has each listed action.
    pub places: Rc<[u32]>,
    /// Actions of the IR table behind the listed ones: each is two of those, one after the other.
    pub composed: Rc<[(usize, usize)]>,
}

/// The state.
pub(crate) struct Lowerer<'p> {
    pub p: &'p TypedProgram,
    pub b: Builder,
    diags: Vec<Diagnostic>,
    /// Why the program cannot be loaded, if it cannot.
    pub unloadable: Vec<Diagnostic>,
    /// The package is of no known architecture, so everything it calls is somebody else's.
    pub package_is_foreign: bool,
    /// The include file of the program's architecture, for messages.
    pub architecture_file: &'static str,
    /// Messages given already, by place and code: inlining meets the same code often.
    reported: HashSet<(Span, &'static str)>,
    pub arch: Option<Box<dyn Architecture>>,
    pub env: Env,
    pub facts: Facts,
    joins: Vec<JoinState>,
    /// The IR's number of each `error` of the typed program.
    pub errors: Vec<u32>,
    pub ret: Option<ReturnTarget>,
    pub exit: Option<Join>,
    pub loops: Vec<LoopTarget>,
    /// Of the open parser stage: blocks that set an error and end it, by error (`None`: plain `reject`).
    pub fail_blocks: HashMap<Option<u32>, BlockId>,
    /// Where a sub-parser's or the parser's `accept` leads.
    pub accept: Option<Join>,
    pub parser_error: Option<SlotId>,
    pub stage_kind: StageKind,
    /// Storage of variables.
    pub frames: HashMap<(FrameId, Option<InstanceId>, LocalId), Tree>,
    /// Members of a header union, by each member's validity slot.
    pub union_members: HashMap<SlotId, Rc<[Tree]>>,
    pub header_names: HashSet<String>,
    stage_names: HashSet<String>,
    pub actions: HashMap<(ActionId, Option<InstanceId>), ir::ActionId>,
    /// Their names.
    pub action_names: HashMap<String, ir::ActionId>,
    pub tables: HashMap<(TableId, InstanceId), TableInfo>,
    /// By action profile or selector: the actions of each of its tables.
    pub profile_lists: HashMap<InstanceId, Rc<[Vec<ir::TableAction>]>>,
    pub value_sets: HashMap<(ValueSetId, InstanceId), ir::TableId>,
    pub externs: HashMap<InstanceId, ir::ExternId>,
    /// While a table's action is lowered: what the matched entry's meter said, by direct meter; where actions call direct
    /// counters and meters, the matched entry.
    pub direct: HashMap<ir::ExternId, SlotId>,
    /// Whether a table's action is being lowered.
    pub in_table_action: bool,
    /// The table of the action that is being lowered.
    pub of_table: Option<OfTable>,
    /// Locals that an action's body names, by action; see `call.rs`.
    pub action_locals: HashMap<ActionId, Rc<HashSet<LocalId>>>,
    /// Calls of `emit` in a deparser that is lowered as a control.
    pub emits: Option<Emits>,
    /// Which headers keep their fields while they are invalid; none of them in P4.
    pub loose: Option<Loose>,
    /// v1model's port that means drop, if it is another than 511.
    pub drop_port: Option<u64>,
    inlined: usize,
    steps: usize,
    gave_up: bool,
}

impl<'p> Lowerer<'p> {
    pub fn new(p: &'p TypedProgram, name: &str) -> Lowerer<'p> {
        let mut b = Builder::new(name);
        b.set_budget(SIZE_LIMIT);
        // `NoError` is 0 in the IR, also when the program declares errors before it includes `core.p4`.
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
            loose: None,
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

// Messages.
impl Lowerer<'_> {
    /// Reports an error, once per place and code.
    pub fn refuse(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(code, span, message));
    }

    /// Reports a diagnostic, once per place and code.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if self.reported.insert((diagnostic.span, diagnostic.code)) {
            self.diags.push(diagnostic);
        }
    }

    /// The text of a type.
    pub fn type_text(&self, ty: &sema::Type) -> String {
        self.p.types.display(ty).to_string()
    }

    /// An expression's compile-time value in the current instance.
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

// Blocks.
impl Lowerer<'_> {
    /// A join that no path leads to yet.
    pub fn new_join(&mut self, label: &'static str) -> Join {
        self.joins.push(JoinState { label, block: None, facts: None });
        Join(self.joins.len() - 1)
    }

    /// The join's block, for a path that starts with the given facts.
    pub fn join_block(&mut self, join: Join, facts: &Facts) -> BlockId {
        // Each join keeps a copy.
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

    /// Leads the current path to a join, unless it has ended.
    pub fn to(&mut self, join: Join) {
        if !self.b.is_terminated() {
            let facts = std::mem::take(&mut self.facts);
            let block = self.join_block(join, &facts);
            self.b.jump(block);
        }
    }

    /// Goes on at the join; with the current path, if it has not ended. Nothing happens when no other path leads there.
    pub fn land(&mut self, join: Join) {
        if self.is_used(join) {
            self.to(join);
            self.enter(join);
        }
    }

    /// Goes on at the join, which paths lead to.
    pub fn enter(&mut self, join: Join) {
        let state = &mut self.joins[join.0];
        let facts = state.facts.clone().unwrap_or_default();
        if let Some(block) = state.block {
            self.b.switch_to(block);
        }
        self.facts = facts;
    }

    /// Whether a path leads there.
    pub fn is_used(&self, join: Join) -> bool {
        self.joins[join.0].block.is_some()
    }

    /// A new block, entered with the given facts.
    pub fn start_block(&mut self, block: BlockId, facts: Facts) {
        self.b.switch_to(block);
        self.facts = facts;
    }

    /// Branches on a condition; makes the block of `then` the current one and returns that of `other`.
    pub fn split(&mut self, cond: Operand) -> BlockId {
        let then = self.b.block("");
        let other = self.b.block("");
        self.b.branch(cond, then, other);
        self.b.switch_to(then);
        other
    }

    /// Opens a stage; its name is made unique.
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

    /// Closes the stage: the current path, if it has not ended, goes on with the next stage.
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

    /// Counts a body that is to be inlined. Whether the program has grown so large that lowering gives up.
    pub fn too_large(&mut self, span: Span) -> bool {
        self.inlined += 1;
        if self.inlined > INLINE_LIMIT {
            let message = format!("the program has more than {INLINE_LIMIT} calls when everything is inlined");
            self.give_up(span, message, "call it from fewer places, or put the work into a table");
        }
        self.is_too_large()
    }

    /// Counts a statement or expression that is lowered. Whether the program has grown so large that lowering gives up.
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

    /// Whether lowering has given up: what is still asked of it makes nothing.
    pub fn is_too_large(&self) -> bool {
        self.gave_up || self.b.overrun().is_some()
    }

    fn give_up(&mut self, span: Span, message: String, help: &str) {
        if !std::mem::replace(&mut self.gave_up, true) {
            self.report(Diagnostic::error(codes::TOO_LARGE, span, message).help(help));
        }
    }

    /// Says that the budget of operations ended, where, and what most of it went into.
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

    /// Reports an operation whose result is too wide; variables are refused where they are declared.
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

    /// Refuses a value of so many bits.
    pub fn refuse_width(&mut self, span: Span, width: u32) {
        let message = format!("a value of {width} bits; the widest that the switch computes with has {WIDTH_LIMIT}");
        self.refuse(codes::UNSUPPORTED_TYPE, span, message);
    }

    /// Tells the tracer what begins.
    pub fn mark(&mut self, mark: Mark) {
        self.b.emit(Op::Mark(mark));
    }
}

// Small operations on operands.
impl Lowerer<'_> {
    /// The width of an operand.
    pub fn width(&self, o: &Operand) -> u32 {
        o.width(self.b.program())
    }

    /// `a & b` of single bits, constants folded.
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

    /// The index of an error that `core.p4` declares.
    pub fn error_index(&mut self, name: &str) -> u32 {
        self.b.error(name)
    }
}
