//! Parsers: states, transitions, `packet_in`, `verify`; and `packet_out`.
//!
//! A state is a basic block, with others if its statements need them; loops remain loops. Every extraction is preceded
//! by a check of the remaining bits, so extraction itself cannot fail. A failed check, a failed `verify`, a `select`
//! without a matching case, and `reject` jump to a block (one per error and stage) that sets the architecture's
//! parser-error slot and ends the stage. What happens then is up to the architecture.
//!
//! Specification: P4_16, chapters "Packet parsing" and "Packet construction (deparsing)".

mod select;

use crate::codes;
use crate::context::{Facts, Lowerer};
use crate::path::Place;
use crate::tree::{HeaderTree, Tree};
use base::Span;
use ir::{BinOp, BlockId, Mark, Op, Operand, StageKind};
use sema::Type;
use sema::typed::{ArgValue, Call, Expr, ExprKind, ParserId, Target, Transition};
use std::collections::VecDeque;

/// The blocks of a parser's states, and the states still to be lowered.
struct States {
    blocks: Vec<Option<BlockId>>,
    waiting: VecDeque<u32>,
}

impl Lowerer<'_> {
    /// Lowers the variables and states of a parser; `accept` jumps to `self.accept`.
    pub fn parser_body(&mut self, id: ParserId) {
        let p = self.p;
        let parser = &p.parsers[id.index()];
        self.enter_instance();
        self.stmts(&parser.locals);
        let mut states = States { blocks: vec![None; parser.states.len()], waiting: VecDeque::new() };
        let start = self.state_block(id, &mut states, parser.start);
        self.b.fall_through(start);
        while let Some(index) = states.waiting.pop_front() {
            let state = &parser.states[index as usize];
            let block = self.state_block(id, &mut states, index);
            self.start_block(block, Facts::new());
            self.b.set_span(state.span);
            self.mark(Mark::State(state.name.to_string()));
            self.stmts(&state.body);
            if self.b.is_terminated() {
                continue;
            }
            match &state.transition {
                Transition::Direct(target) => {
                    let target = self.target(id, &mut states, *target);
                    self.b.jump(target);
                }
                Transition::Select { keys, cases, span } => {
                    self.b.set_span(*span);
                    self.select_transition(id, &mut states, keys, cases);
                }
            }
        }
    }

    fn state_block(&mut self, id: ParserId, states: &mut States, index: u32) -> BlockId {
        if let Some(block) = states.blocks[index as usize] {
            return block;
        }
        let name = self.p.parsers[id.index()].states[index as usize].name.to_string();
        let block = self.b.block(name);
        states.blocks[index as usize] = Some(block);
        states.waiting.push_back(index);
        block
    }

    fn target(&mut self, id: ParserId, states: &mut States, target: Target) -> BlockId {
        match target {
            Target::State(index) => self.state_block(id, states, index),
            Target::Reject => self.fail_block(None),
            Target::Accept => match self.accept {
                Some(accept) => {
                    let facts = self.facts.clone();
                    self.join_block(accept, &facts)
                }
                None => self.fail_block(None),
            },
        }
    }

    /// The block that sets an error (`None`: leaves it unchanged) and ends the stage.
    pub fn fail_block(&mut self, error: Option<u32>) -> BlockId {
        if let Some(block) = self.fail_blocks.get(&error) {
            return *block;
        }
        let label = match error {
            Some(error) => self.b.program().errors.get(error as usize).cloned().unwrap_or_default(),
            None => "reject".to_string(),
        };
        let block = self.b.block(label);
        self.fail_blocks.insert(error, block);
        block
    }

    /// Continues if a condition holds; otherwise the parser fails with `error`.
    pub fn fail_unless(&mut self, cond: Operand, error: &str) {
        if Self::is_true(&cond) {
            return;
        }
        let error = self.error_index(error);
        let fail = self.fail_block(Some(error));
        let go_on = self.b.block("");
        self.b.branch(cond, go_on, fail);
        self.b.switch_to(go_on);
    }

    fn require_bits(&mut self, bits: Operand) {
        if matches!(&bits, Operand::Const(c) if c.is_zero()) {
            return;
        }
        let there = self.b.temp(1);
        self.b.emit(Op::HasBits { dst: there, bits });
        self.fail_unless(there.into(), "PacketTooShort");
    }

    /// `verify(condition, error)`
    pub fn verify(&mut self, call: &Call) {
        let [Some(check), Some(error)] = [0, 1].map(|i| call.args.get(i).and_then(|a| a.value.expr())) else {
            return;
        };
        if self.stage_kind != StageKind::Parser {
            return self.refuse(codes::MISPLACED, call.span, "`verify` can be called in parsers only");
        }
        let values = self.eval_all(&[check, error]);
        let (check, error) = (values[0].operand(), values[1].operand());
        if Self::is_true(&check) {
            return;
        }
        let fail = match &error {
            Operand::Const(c) => self.fail_block(c.to_u64().and_then(|e| u32::try_from(e).ok())),
            Operand::Slot(_) => self.b.block(""),
        };
        let go_on = self.b.block("");
        self.b.branch(check, go_on, fail);
        if let Operand::Slot(_) = error {
            let reject = self.fail_block(None);
            self.b.switch_to(fail);
            if let Some(slot) = self.parser_error {
                self.b.mov(slot, error);
            }
            self.b.jump(reject);
        }
        self.b.switch_to(go_on);
    }

    /// A call of a method of `packet_in`.
    pub fn packet_in(&mut self, method: &str, call: &Call) -> Tree {
        if self.stage_kind != StageKind::Parser {
            self.refuse(codes::MISPLACED, call.span, format!("`packet_in.{method}` can be called in parsers only"));
            return self.zero(&call.result);
        }
        match method {
            "extract" => {
                self.extract(call);
                Tree::Nothing
            }
            "lookahead" => {
                let bits = self.p.types.width_bits(&call.result, true).and_then(|w| u32::try_from(w).ok());
                let Some(bits) = bits.filter(|b| *b > 0 || !self.has_varbit(&call.result)) else {
                    let text = self.type_text(&call.result);
                    self.refuse(codes::UNSUPPORTED_TYPE, call.span, format!("`lookahead` of `{text}`"));
                    return self.zero(&call.result);
                };
                self.require_bits(Operand::new_const(32, u128::from(bits)));
                let mut offset = 0;
                self.lookahead(&call.result, &mut offset, call.span)
            }
            "advance" => {
                if let Some(e) = call.args.first().and_then(|a| a.value.expr()) {
                    let bits = self.eval(e).operand();
                    self.check_whole_bytes(&bits);
                    self.require_bits(bits.clone());
                    self.b.emit(Op::Advance { bits });
                }
                Tree::Nothing
            }
            "length" => match self.arch.as_ref().and_then(|a| a.packet_length()) {
                Some(slot) => slot.into(),
                None => {
                    self.refuse(codes::UNSUPPORTED_EXTERN, call.span, "`packet_in.length` is not available here");
                    self.zero(&call.result)
                }
            },
            _ => {
                self.refuse(codes::UNSUPPORTED_EXTERN, call.span, format!("`packet_in.{method}` is not supported"));
                self.zero(&call.result)
            }
        }
    }

    fn has_varbit(&self, ty: &Type) -> bool {
        self.p.types.width_bits(ty, true) != self.p.types.width_bits(ty, false)
    }

    fn check_whole_bytes(&mut self, bits: &Operand) {
        let rest = self.slice(bits.clone(), 2, 0);
        let whole = match &rest {
            Operand::Const(c) => Self::bit(c.is_zero()),
            Operand::Slot(_) => self.b.bin(BinOp::Eq, rest, Operand::new_const(3, 0)).into(),
        };
        self.fail_unless(whole, "ParserInvalidArgument");
    }

    /// The bits from `offset` on as a value of a type; advances the offset.
    fn lookahead(&mut self, ty: &Type, offset: &mut u32, span: Span) -> Tree {
        if let Some(width) = self.scalar_width(ty) {
            if matches!(self.p.types.underlying(ty), Type::Error | Type::Enum(_) | Type::MatchKind) {
                let text = self.type_text(ty);
                self.refuse(codes::UNSUPPORTED_TYPE, span, format!("`lookahead` of `{text}`, which has no bits"));
            }
            if width == 0 {
                return Tree::constant(0, 0);
            }
            let dst = self.b.temp(width);
            self.b.emit(Op::Lookahead { dst, offset: *offset });
            *offset += width;
            return dst.into();
        }
        let p = self.p;
        match p.types.underlying(ty) {
            Type::Header(id) => {
                let fields = &p.types.fields_of(id).fields;
                let fields = fields.iter().map(|f| self.lookahead(&f.ty, offset, span)).collect();
                Tree::Header(HeaderTree::of_values(fields))
            }
            Type::Struct(id) => {
                let fields = &p.types.fields_of(id).fields;
                Tree::Struct(fields.iter().map(|f| self.lookahead(&f.ty, offset, span)).collect())
            }
            Type::Tuple(types) => Tree::Struct(types.iter().map(|t| self.lookahead(t, offset, span)).collect()),
            Type::Stack(element, n) => {
                Tree::Stack { elements: (0..n).map(|_| self.lookahead(&element, offset, span)).collect(), next: None }
            }
            _ => {
                let text = self.type_text(ty);
                self.refuse(codes::UNSUPPORTED_TYPE, span, format!("`lookahead` of `{text}`"));
                self.zero(ty)
            }
        }
    }

    fn extract(&mut self, call: &Call) {
        let Some(target) = call.args.first() else { return };
        let varbit = call.args.get(1).and_then(|a| a.value.expr());
        let ArgValue::Expr(target) = &target.value else {
            // `extract<T>(_)` skips the header.
            let bits = self.p.types.width_bits(&target.ty, true).unwrap_or(0);
            let bits = Operand::new_const(32, u128::from(bits));
            self.require_bits(bits.clone());
            self.b.emit(Op::Advance { bits });
            return;
        };
        if let ExprKind::StackNext(stack) = &target.kind {
            return self.extract_next(stack, varbit, call.span);
        }
        let place = self.place(target);
        let varbit = varbit.map(|e| self.eval(e).operand());
        self.room_for(&target.ty, varbit.as_ref(), call.span);
        self.for_each_alternative(&place, |cx, a| cx.extract_header(&a.tree, &target.ty, varbit.clone(), call.span));
        // The target is a member of the next union of a stack.
        if let ExprKind::Field(base, _) = &target.kind
            && let ExprKind::StackNext(stack) = &base.kind
            && let Some(Tree::Stack { next: Some(next), .. }) = self.place(stack).plain().cloned()
        {
            self.b.emit(Op::Bin { op: BinOp::Add, dst: next, a: next.into(), b: Operand::new_const(32, 1) });
        }
    }

    fn extract_next(&mut self, stack: &Expr, varbit: Option<&Expr>, span: Span) {
        let Some((elements, next)) = self.parser_stack(stack, span) else { return };
        let Type::Stack(element, _) = &stack.ty else { return };
        let there_is = self.b.bin(BinOp::Ult, next, Operand::new_const(32, elements.len() as u128));
        self.fail_unless(there_is.into(), "StackOutOfBounds");
        let varbit = varbit.map(|e| self.eval(e).operand());
        self.room_for(element, varbit.as_ref(), span);
        let facts = self.facts.clone();
        let done = self.new_join("");
        let blocks: Vec<BlockId> = elements.iter().map(|_| self.b.block("")).collect();
        let Some((last, others)) = blocks.split_last() else { return };
        let cases = others.iter().enumerate().map(|(i, b)| (base::Bits::new(32, i as u128), *b)).collect();
        self.b.switch(next, cases, *last);
        for (i, (block, tree)) in blocks.iter().zip(elements.iter()).enumerate() {
            self.start_block(*block, facts.clone());
            self.extract_header(tree, element, varbit.clone(), span);
            self.b.set(next, i as u128 + 1);
            self.to(done);
        }
        self.continue_at(done);
    }

    /// Fails unless enough bits remain to extract a header of a type.
    fn room_for(&mut self, ty: &Type, varbit: Option<&Operand>, span: Span) {
        let max = self.p.types.width_bits(ty, true).unwrap_or(0);
        let fixed = self.p.types.width_bits(ty, false).unwrap_or(0);
        let fixed_bits = Operand::new_const(32, u128::from(fixed));
        match varbit {
            None => {
                if max != fixed {
                    let message = "a header with a varbit field is extracted with the number of its bits";
                    self.refuse(codes::UNSUPPORTED_HEADER, span, message);
                }
                self.require_bits(fixed_bits);
            }
            Some(bits) => {
                let limit = Operand::new_const(32, u128::from(max - fixed));
                let fits = match bits {
                    Operand::Const(c) => Self::bit(c.to_u64().is_some_and(|c| c <= max - fixed)),
                    Operand::Slot(_) => self.b.bin(BinOp::Ule, bits.clone(), limit).into(),
                };
                self.fail_unless(fits, "HeaderTooShort");
                self.check_whole_bytes(bits);
                let all = match bits {
                    Operand::Const(c) => Operand::Const(c.add(&base::Bits::new(32, u128::from(fixed)))),
                    Operand::Slot(_) => self.b.bin(BinOp::Add, bits.clone(), fixed_bits).into(),
                };
                self.require_bits(all);
            }
        }
    }

    fn extract_header(&mut self, tree: &Tree, ty: &Type, varbit: Option<Operand>, span: Span) {
        let Tree::Header(h @ HeaderTree { id: Some(header), .. }) = tree else {
            return self.unfit_for_wire(tree, ty, "extracted", span);
        };
        let has_varbit = self.b.program().headers[header.index()].fields.iter().any(|f| f.varbit_length.is_some());
        if has_varbit != varbit.is_some() {
            let message = "a number of bits goes with a varbit field, and only with one";
            return self.refuse(codes::UNSUPPORTED_HEADER, span, message);
        }
        self.invalidate_siblings(h);
        self.b.emit(Op::Extract { header: *header, varbit_bits: varbit });
        if h.retained {
            self.take_from_wire(h, *header);
        }
        self.facts.extend(h.valid.slot());
    }

    /// Provides storage for an argument of `emit`: a value is copied to a new variable.
    fn emittable(&mut self, place: Place, e: &Expr) -> Place {
        let mut is_value = false;
        for alternative in &place.alternatives {
            alternative.tree.for_each_header(&mut |h| is_value |= h.id.is_none());
        }
        if !is_value || self.has_unfit_header(&e.ty) {
            return place;
        }
        let value = self.read(&place);
        let name = format!("{}.$emitted", self.env.prefix);
        let storage = self.allocate(&name, &e.ty, ir::SlotKind::Local, e.span);
        self.reset(&storage);
        self.store(&storage, &value, None);
        Place::of(storage)
    }

    /// A call of a method of `packet_out`.
    pub fn packet_out(&mut self, method: &str, call: &Call) -> Tree {
        if self.stage_kind != StageKind::Deparser && self.emits.is_none() {
            self.refuse(codes::MISPLACED, call.span, format!("`packet_out.{method}` can be called in deparsers only"));
        } else if method != "emit" {
            self.refuse(codes::UNSUPPORTED_EXTERN, call.span, format!("`packet_out.{method}` is not supported"));
        } else if let Some(e) = call.args.first().and_then(|a| a.value.expr()) {
            let place = self.place(e);
            let place = self.emittable(place, e);
            self.for_each_alternative(&place, |cx, a| {
                let mut headers = Vec::new();
                a.tree.for_each_header(&mut |h| headers.push(h.clone()));
                for header in headers {
                    match header.id {
                        Some(wire) if header.retained => cx.emit_retained(&header, wire),
                        Some(header) => cx.emit_header(header),
                        None => cx.unfit_for_wire(&Tree::Header(header), &e.ty, "emitted", e.span),
                    }
                }
            });
        }
        Tree::Nothing
    }
}
