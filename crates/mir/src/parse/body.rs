//! The parser of instructions and terminators.

use super::{Body, Parser, Result, integer};
use crate::lexer::Token;
use crate::op::{
    Access, Address, Atomic, Binary, Callee, Cast, Condition, Edge, Instruction, Op, Part, Terminator, Unary,
};
use crate::types::{Block, ByteOrder, Slot, Type, Value};

impl Parser<'_> {
    pub(super) fn value(&mut self) -> Result<Value> {
        self.numbered('v', "a value").map(Value)
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        let mut values = vec![self.value()?];
        while self.has(',') {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// Exactly `N` values.
    fn exactly<const N: usize>(&mut self) -> Result<[Value; N]> {
        let values = self.values()?;
        match values.try_into() {
            Ok(values) => Ok(values),
            Err(values) => self.error(format!("expected {N} values, found {}", values.len())),
        }
    }

    fn edge(&mut self) -> Result<Edge> {
        let block = Block(self.numbered('b', "a block")?);
        let args = if self.has('(') { self.list(Self::value)? } else { Vec::new() };
        let weight = if self.has_word("weight") { self.number()? } else { 1 };
        Ok(Edge { block, args, weight })
    }

    /// A terminator, if one follows.
    pub(super) fn terminator(&mut self) -> Result<Option<Terminator>> {
        let Some(Token::Word(word)) = self.peek() else { return self.expected("an instruction") };
        let word = word.clone();
        self.at += 1;
        Ok(Some(match word.as_str() {
            "jump" => Terminator::Jump(self.edge()?),
            "branch" => {
                let value = self.value()?;
                self.mark(',')?;
                let then = self.edge()?;
                self.mark(',')?;
                Terminator::Branch(value, then, self.edge()?)
            }
            "switch" => {
                let value = self.value()?;
                let mut cases = Vec::new();
                loop {
                    self.mark(',')?;
                    if self.has_word("else") {
                        break Terminator::Switch(value, cases, self.edge()?);
                    }
                    let number = self.number()?;
                    self.mark(':')?;
                    cases.push((number, self.edge()?));
                }
            }
            // A word that begins with `v` is the value: no block's name begins so.
            "return" => Terminator::Return(match self.peek() {
                Some(Token::Word(word)) if word.starts_with('v') => Some(self.value()?),
                _ => None,
            }),
            "unreachable" => Terminator::Unreachable,
            _ => {
                self.at -= 1;
                return Ok(None);
            }
        }))
    }

    /// An instruction with its result and place.
    pub(super) fn instruction(&mut self, body: &mut Body) -> Result<Instruction> {
        let result = match self.tokens.get(self.at + 1) {
            Some((_, Token::Mark('='))) => Some(self.value()?),
            _ => None,
        };
        if result.is_some() {
            self.mark('=')?;
        }
        let start = self.at;
        let (op, ty) = self.op()?;
        let location = if self.has('#') { Some(self.number()?) } else { None };
        let result = match (result, ty) {
            (Some(number), Some(ty)) => Some(self.define(body, number.0, ty)?),
            (None, None) => None,
            (Some(_), None) => {
                self.at = start;
                return self.error("this instruction has no result");
            }
            // A call defines a value even if its result has no uses.
            (None, Some(_)) => {
                self.at = start;
                return self.error("this instruction has a result, which needs a name");
            }
        };
        Ok(Instruction { op, result, location })
    }

    fn offset(&mut self) -> Result<i32> {
        let sign = match () {
            () if self.has('+') => 1,
            () if self.has('-') => -1,
            () => return Ok(0),
        };
        let number: u32 = self.number()?;
        match i32::try_from(sign * i64::from(number)) {
            Ok(offset) => Ok(offset),
            Err(_) => self.error("an offset has 32 bits"),
        }
    }

    fn address(&mut self) -> Result<Address> {
        Ok(Address { base: self.value()?, offset: self.offset()? })
    }

    fn access(&mut self) -> Result<Access> {
        let word = self.any_word("`le` or `be` with a number of bytes")?;
        let order = match word.get(..2) {
            Some("le") => ByteOrder::Little,
            Some("be") => ByteOrder::Big,
            _ => return self.error(format!("`{word}` is not a width; expected `le4` or `be2`, for example")),
        };
        let Ok(bytes) = word[2..].parse() else { return self.error(format!("`{word}` has no number of bytes")) };
        Ok(Access { regions: self.regions()?, bytes, order })
    }

    /// An address, followed by values.
    fn addressed<const N: usize>(&mut self) -> Result<(Address, [Value; N])> {
        let address = self.address()?;
        self.mark(',')?;
        Ok((address, self.exactly()?))
    }

    /// An instruction and the type of its result.
    fn op(&mut self) -> Result<(Op, Option<Type>)> {
        let word = self.any_word("an instruction")?;
        let (name, ty) = match word.rsplit_once('.') {
            Some((name, ty)) if integer(ty).is_some() => (name, integer(ty)),
            _ => (word.as_str(), None),
        };
        fn find<T: Copy>(list: &[(T, &'static str)], name: &str) -> Option<T> {
            list.iter().find(|(_, other)| *other == name).map(|(item, _)| *item)
        }
        if let Some(condition) = find(&Condition::ALL, name) {
            let [a, b] = self.exactly()?;
            return Ok((Op::Compare(condition, a, b), Some(Type::I1)));
        }
        let op = match name {
            "hash" => return Ok((Op::Hash(self.exactly()?), Some(Type::I64))),
            "address" => {
                let slot = Slot(self.numbered('s', "a slot")?);
                return Ok((Op::StackAddress(slot, self.offset()?), Some(Type::I64)));
            }
            "store" => {
                let access = self.access()?;
                let (address, [value]) = self.addressed()?;
                return Ok((Op::Store(access, address, value), None));
            }
            "atomic.store" => {
                let regions = self.regions()?;
                let (address, [value]) = self.addressed()?;
                return Ok((Op::Release(regions, address, value), None));
            }
            "count" => {
                let (address, [value]) = self.addressed()?;
                return Ok((Op::Count(address, value), None));
            }
            "prefetch" => return Ok((Op::Prefetch(self.address()?, false), None)),
            "prefetch.write" => return Ok((Op::Prefetch(self.address()?, true), None)),
            "issue" => {
                let table = self.table()?;
                return Ok((Op::ProbeIssue(table, self.values()?), Some(Type::Probe(table))));
            }
            "take" => return Ok((Op::ProbeTake(self.value()?), Some(Type::I64))),
            "call" | "call.runtime" => return self.call(name == "call"),
            "phase" => return Ok((Op::Phase(self.number()?), None)),
            _ => {
                let Some(ty) = ty else {
                    self.at -= 1;
                    return self.error(format!("there is no instruction `{word}`"));
                };
                self.typed(name, ty)?
            }
        };
        Ok((op, ty))
    }

    /// An instruction whose name states its type.
    fn typed(&mut self, name: &str, ty: Type) -> Result<Op> {
        fn find<T: Copy>(list: &[(T, &'static str)], name: &str) -> Option<T> {
            list.iter().find(|(_, other)| *other == name).map(|(item, _)| *item)
        }
        if let Some(op) = find(&Unary::ALL, name) {
            return Ok(Op::Unary(op, self.value()?));
        }
        if let Some(op) = find(&Cast::ALL, name) {
            return Ok(Op::Cast(op, self.value()?));
        }
        if let Some(op) = find(&Binary::ALL, name) {
            let [a, b] = self.exactly()?;
            return Ok(Op::Binary(op, a, b));
        }
        Ok(match name {
            "const" => Op::Const(self.number()?),
            "select" => {
                let [condition, a, b] = self.exactly()?;
                Op::Select(condition, a, b)
            }
            "pack" => {
                let mut parts = Vec::new();
                loop {
                    let value = self.value()?;
                    self.mark(':')?;
                    let width = self.number()?;
                    self.word("at")?;
                    parts.push(Part { value, width, offset: self.number()? });
                    if !self.has(',') {
                        break Op::Pack(parts);
                    }
                }
            }
            "load" => Op::Load(self.access()?, self.address()?),
            "atomic.cas" => {
                let regions = self.regions()?;
                let (address, [expected, new]) = self.addressed()?;
                Op::CompareExchange(regions, address, expected, new)
            }
            _ => {
                let Some(op) = name.strip_prefix("atomic.").and_then(|name| find(&Atomic::ALL, name)) else {
                    self.at -= 1;
                    return self.error(format!("there is no instruction `{name}.{ty}`"));
                };
                let regions = self.regions()?;
                let (address, [value]) = self.addressed()?;
                Op::Atomic(op, regions, address, value)
            }
        })
    }

    fn call(&mut self, is_function: bool) -> Result<(Op, Option<Type>)> {
        let name = self.name()?;
        let (callee, result) = match is_function {
            true => match self.functions.get(&name) {
                Some(id) => (Callee::Function(*id), self.results[id.index()]),
                None => return self.error(format!("there is no function `{name}`")),
            },
            false => match self.runtime.get(&name) {
                Some(id) => (Callee::Runtime(*id), self.module.runtime[id.index()].result),
                None => return self.error(format!("the runtime has no function `{name}`")),
            },
        };
        self.mark('(')?;
        Ok((Op::Call(callee, self.list(Self::value)?), result))
    }
}
