//! Lines inside stages: blocks, operations, terminators.

use super::lex::{Line, Tok};
use super::{Cursor, Reader, Result, Space};
use crate::op::{Again, Fate, HashAlgorithm, Inst, Mark, Op, Operand, Terminator, Update};
use crate::print::{BIN_OPS, CALCULATION, CASTS, HASHES, POINTS, UN_OPS};
use crate::program::{Block, Stage, StageKind};
use base::Span;
use base::diag::Diagnostic;
use base::ids::BlockId;

/// The content of a line of a block.
enum Code {
    Inst(Inst),
    Term(Terminator, Span),
}

impl<'a> Reader<'a> {
    /// The blocks of a stage up to its closing brace.
    pub(super) fn blocks(&mut self, opening: &'a Line, kind: StageKind, name: String) {
        let mut blocks: Vec<Block> = Vec::new();
        let mut terminated = true;
        // A malformed line may have been the terminator, so a missing one is not reported for its block.
        let mut broken = false;
        self.body(opening, |reader, line| {
            if line.tokens.last().is_some_and(|t| t.tok == Tok::Punct(":")) {
                if !terminated && !broken {
                    reader.unterminated(line, blocks.len() - 1);
                }
                (terminated, broken) = (false, false);
                let number = blocks.len();
                let label = reader.with_line(line, |c| block_head(c, number)).unwrap_or_default();
                blocks.push(Block { label, insts: Vec::new(), term: Terminator::Next, span: Span::NONE });
                return;
            }
            if terminated {
                let message = if blocks.is_empty() { "expected `b0:`" } else { "expected a block after a terminator" };
                reader.diags.push(Diagnostic::error("E0706", line.tokens[0].span, message));
                return;
            }
            let block = blocks.last_mut().expect("a block has begun");
            match reader.with_line(line, code) {
                Some(Code::Inst(inst)) => block.insts.push(inst),
                Some(Code::Term(term, span)) => {
                    block.term = term;
                    block.span = span;
                    terminated = true;
                }
                None => broken = true,
            }
        });
        if !terminated && !broken {
            self.unterminated(opening, blocks.len() - 1);
        }
        self.program.stages.push(Stage { name, kind, blocks });
    }

    fn unterminated(&mut self, line: &Line, block: usize) {
        self.diags.push(Diagnostic::error("E0706", line.tokens[0].span, format!("block b{block} has no terminator")));
    }
}

/// `b3:` or `b3 label:`; returns the label.
fn block_head(c: &mut Cursor<'_>, number: usize) -> Result<String> {
    let span = c.span();
    let id = c.block()?;
    if id.index() != number {
        let message = format!("expected block b{number}: blocks are numbered in order");
        return Err(Box::new(Diagnostic::error("E0706", span, message)));
    }
    let label = if c.is_punct(":") { String::new() } else { c.name("a label")? };
    c.punct(":")?;
    Ok(label)
}

fn code(c: &mut Cursor<'_>) -> Result<Code> {
    // A line with destinations has `=` after the first, or `,` between several.
    let has_dst = matches!(c.tokens.get(1).map(|t| &t.tok), Some(Tok::Punct("=" | ",")));
    if has_dst {
        let op = assignment(c)?;
        return Ok(Code::Inst(Inst { op, span: c.place()? }));
    }
    match terminator(c)? {
        Some(term) => Ok(Code::Term(term, c.place()?)),
        None => {
            let op = effect(c)?;
            Ok(Code::Inst(Inst { op, span: c.place()? }))
        }
    }
}

impl Cursor<'_> {
    fn block(&mut self) -> Result<BlockId> {
        let number = match self.peek() {
            Some(Tok::Word(word)) => word.strip_prefix('b').and_then(|n| n.parse().ok()),
            _ => None,
        };
        match number {
            Some(number) => {
                self.at += 1;
                Ok(BlockId(number))
            }
            None => self.expected("a block, as `b3`"),
        }
    }

    fn operand(&mut self) -> Result<Operand> {
        match self.peek() {
            Some(Tok::Number(_)) => self.bits().map(Operand::Const),
            _ => self.slot().map(Operand::Slot),
        }
    }

    /// Parses a comma and an operand.
    fn next_operand(&mut self) -> Result<Operand> {
        self.comma()?;
        self.operand()
    }

    fn operands(&mut self) -> Result<Vec<Operand>> {
        self.list(Cursor::operand)
    }
}

/// Parses a terminator; `None` if the word does not begin one.
fn terminator(c: &mut Cursor<'_>) -> Result<Option<Terminator>> {
    let word = c.word("an operation")?;
    Ok(Some(match word {
        "jump" => Terminator::Jump(c.block()?),
        "branch" => {
            let cond = c.operand()?;
            c.comma()?;
            let then = c.block()?;
            c.comma()?;
            Terminator::Branch { cond, then, other: c.block()? }
        }
        "switch" => {
            let on = c.operand()?;
            let mut cases = Vec::new();
            loop {
                c.comma()?;
                if c.eat_word("default") {
                    c.punct("->")?;
                    break Terminator::Switch { on, cases, default: c.block()? };
                }
                let value = c.bits()?;
                c.punct("->")?;
                cases.push((value, c.block()?));
            }
        }
        "next" => Terminator::Next,
        "drop" => Terminator::Finish(Fate::Drop(c.known(Space::Drop)?)),
        "send" => Terminator::Finish(Fate::Send(c.operand()?)),
        "multicast" => Terminator::Finish(Fate::Multicast(c.operand()?)),
        "replicate" => Terminator::Finish(Fate::Replicate(c.one_of(POINTS, "a replication point")?)),
        "again" => {
            let why = c.one_of(&Again::ALL.map(|why| (why, why.name())), "why a packet goes back to ingress")?;
            let list = if c.eat_punct(",") { Some(c.number()?) } else { None };
            Terminator::Finish(Fate::Again { why, list })
        }
        _ => {
            c.at -= 1;
            return Ok(None);
        }
    }))
}

/// Operations without a destination.
fn effect(c: &mut Cursor<'_>) -> Result<Op> {
    Ok(match c.word("an operation")? {
        "set_valid" => Op::SetValid { header: c.header_id()? },
        "set_invalid" => Op::SetInvalid { header: c.header_id()? },
        "extract" => {
            let header = c.header_id()?;
            let varbit_bits = if c.is_punct(",") { Some(c.next_operand()?) } else { None };
            Op::Extract { header, varbit_bits }
        }
        "advance" => Op::Advance { bits: c.operand()? },
        "emit" => Op::Emit { header: c.header_id()? },
        "truncate" => Op::Truncate { bytes: c.operand()? },
        "count" => Op::Count { counter: c.extern_id()?, index: c.next_operand()?, bytes: optional(c, "bytes")? },
        "count_direct" => {
            let counter = c.extern_id()?;
            let hit = c.next_operand()?;
            c.comma()?;
            Op::CountDirect { counter, hit, entry: c.slot()?, bytes: optional(c, "bytes")? }
        }
        "restart_timer" => {
            let table = c.table_id()?;
            let hit = c.next_operand()?;
            c.comma()?;
            let entry = c.slot()?;
            let expire = if c.is_punct(",") { Some(c.next_operand()?) } else { None };
            Op::RestartTimer { table, hit, entry, expire }
        }
        "write" => {
            let register = c.extern_id()?;
            Op::RegisterWrite { register, index: c.next_operand()?, src: c.next_operand()? }
        }
        "digest" => Op::Digest { digest: c.extern_id()?, data: c.operands()? },
        "log" => Op::Log { format: c.quoted()?, args: c.operands()? },
        "assert" => {
            let cond = c.operand()?;
            c.comma()?;
            Op::Assert { cond, text: c.quoted()? }
        }
        "unresolved" => {
            let callee = c.quoted()?;
            let args = c.operands()?;
            c.punct("->")?;
            Op::Unresolved { callee, args, results: c.list(Cursor::slot)? }
        }
        "charge" => Op::Charge { steps: c.number()? },
        "mark" => Op::Mark(match c.word("a mark")? {
            "state" => Mark::State(c.quoted()?),
            "block" => Mark::Block(c.quoted()?),
            "action" => Mark::Action(c.quoted()?),
            word @ ("update" | "verify") => Mark::Checksum { update: word == "update", name: c.quoted()? },
            word @ ("true" | "false") => Mark::Decision { holds: word == "true", name: c.quoted()? },
            "statement" => Mark::Statement,
            "direct" => Mark::Direct { table: c.quoted()?, action: c.quoted()? },
            "exit" => Mark::Exit,
            "out_of_range" => Mark::OutOfRange { stack: c.quoted()?, size: c.number()? },
            _ => {
                c.at -= 1;
                return c.expected("a mark");
            }
        }),
        _ => {
            c.at -= 1;
            return c.expected("an operation");
        }
    })
}

/// An optional word and the operand that follows it.
fn optional(c: &mut Cursor<'_>, word: &str) -> Result<Option<Operand>> {
    Ok(if c.eat_word(word) { Some(c.operand()?) } else { None })
}

/// Parses an operation with one destination, or `apply`, which has four.
fn assignment(c: &mut Cursor<'_>) -> Result<Op> {
    let dst = c.slot()?;
    if c.eat_punct(",") {
        let action = c.slot()?;
        c.comma()?;
        let entry = c.slot()?;
        c.comma()?;
        let data = c.slot()?;
        c.punct("=")?;
        c.keyword("apply")?;
        let table = c.table_id()?;
        let keys = c.operands()?;
        let selector = if c.eat_word("select") { c.operands()? } else { Vec::new() };
        return Ok(Op::Apply { table, keys, selector, hit: dst, action, entry, data });
    }
    c.punct("=")?;
    if let Ok(op) = c.one_of(BIN_OPS, "") {
        return Ok(Op::Bin { op, dst, a: c.operand()?, b: c.next_operand()? });
    }
    if let Ok(op) = c.one_of(UN_OPS, "") {
        return Ok(Op::Un { op, dst, a: c.operand()? });
    }
    if let Ok(kind) = c.one_of(CASTS, "") {
        return Ok(Op::Cast { kind, dst, a: c.operand()? });
    }
    Ok(match c.word("an operation")? {
        "mov" => Op::Mov { dst, src: c.operand()? },
        "concat" => Op::Concat { dst, hi: c.operand()?, lo: c.next_operand()? },
        "slice" => {
            let a = c.operand()?;
            c.comma()?;
            let hi = c.number()?;
            c.comma()?;
            Op::Slice { dst, a, hi, lo: c.number()? }
        }
        "set_slice" => {
            let hi = c.number()?;
            c.comma()?;
            Op::SetSlice { dst, hi, lo: c.number()?, a: c.next_operand()? }
        }
        "select" => Op::Select { dst, cond: c.operand()?, then: c.next_operand()?, other: c.next_operand()? },
        word @ ("add_entry" | "replace_entry") => {
            let replace = word == "replace_entry";
            let table = c.table_id()?;
            let keys = c.operands()?;
            c.comma()?;
            let action = c.number()?;
            let args = c.operands()?;
            Op::AddEntry { table, keys, action, args, expire: c.next_operand()?, replace, dst }
        }
        "has_bits" => Op::HasBits { dst, bits: c.operand()? },
        "lookahead" => Op::Lookahead { dst, offset: c.number()? },
        "consumed" => Op::Consumed { dst },
        "param" => {
            let table = c.table_id()?;
            c.comma()?;
            let action = c.number()?;
            c.comma()?;
            let param = c.number()?;
            c.comma()?;
            Op::ActionParam { dst, table, action, param, data: c.slot()? }
        }
        "meter" => {
            let (meter, index) = (c.extern_id()?, c.next_operand()?);
            Op::Meter { dst, meter, index, before: optional(c, "before")?, bytes: optional(c, "bytes")? }
        }
        "meter_direct" => {
            let meter = c.extern_id()?;
            let hit = c.next_operand()?;
            c.comma()?;
            let entry = c.slot()?;
            Op::MeterDirect { meter, dst, hit, entry, before: optional(c, "before")?, bytes: optional(c, "bytes")? }
        }
        "read" => Op::RegisterRead { dst, register: c.extern_id()?, index: c.next_operand()?, peek: false },
        "update" => {
            let (register, index) = (c.extern_id()?, c.next_operand()?);
            c.comma()?;
            let at = c.span();
            let name = c.word("`add`, `and`, `or`, `xor` or `exchange`")?;
            let update = Update::ALL.into_iter().find(|update| update.name() == name);
            let Some(update) = update else {
                return Err(Box::new(Diagnostic::error("E0702", at, format!("`{name}` is no update"))));
            };
            Op::RegisterUpdate { dst, register, index, update, src: c.next_operand()? }
        }
        "peek" => Op::RegisterRead { dst, register: c.extern_id()?, index: c.next_operand()?, peek: true },
        "hash" => {
            let algorithm = match c.eat_word(CALCULATION) {
                true => HashAlgorithm::Calculation(c.calculation_id()?),
                false => c.one_of(HASHES, "a hash algorithm")?,
            };
            c.keyword("base")?;
            let base = c.operand()?;
            let max = if c.eat_word("max") { Some(c.operand()?) } else { None };
            c.keyword("data")?;
            let data = c.operands()?;
            let varbit = |c: &mut Cursor<'_>| {
                let operand = c.number()?;
                c.punct(":")?;
                Ok((operand, c.slot()?))
            };
            let varbits = if c.eat_word("varbits") { c.list(varbit)? } else { Vec::new() };
            Op::Hash { algorithm, dst, base, max, data, varbits, payload: c.eat_word("payload") }
        }
        "random" => Op::Random { dst, low: c.operand()?, high: c.next_operand()? },
        _ => {
            c.at -= 1;
            return c.expected("an operation");
        }
    })
}
