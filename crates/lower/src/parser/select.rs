//! `select`: a `switch` for exact cases, chains of comparisons for others.
//!
//! Cases are tried in order. A run of cases with an exact value for every key becomes one `switch` on the concatenated
//! keys; cases with masks, ranges or value sets are compared one by one.

use super::States;
use crate::context::Lowerer;
use crate::tree::Tree;
use base::Bits;
use ir::{BinOp, BlockId, Operand};
use sema::Type;
use sema::consteval::is_signed;
use sema::typed::{Expr, Keyset, ParserId, SelectCase};
use std::collections::HashSet;

/// Maximum width of a `switch`, in bits.
const SWITCH_WIDTH: u32 = 64;

/// A key and its type.
type KeyValue<'e> = (Operand, &'e Type);

impl Lowerer<'_> {
    pub(super) fn select_transition(&mut self, id: ParserId, states: &mut States, keys: &[Expr], cases: &[SelectCase]) {
        let exprs: Vec<&Expr> = keys.iter().collect();
        let values = self.eval_all(&exprs);
        let keys: Vec<KeyValue<'_>> = values.iter().map(Tree::operand).zip(keys.iter().map(|k| &k.ty)).collect();
        let total: u32 = keys.iter().map(|(k, _)| self.width(k)).sum();
        let mut joined: Option<Operand> = None;
        let mut rest = cases;
        while let Some((first, more)) = rest.split_first() {
            if first.keysets.iter().all(|k| matches!(k, Keyset::DontCare)) {
                let target = self.target(id, states, first.target);
                return self.b.jump(target);
            }
            let mut run = Vec::new();
            if total <= SWITCH_WIDTH && total > 0 {
                run.extend(rest.iter().map_while(|case| Some((self.exact_case(&keys, case)?, case.target))));
            }
            if run.is_empty() {
                let otherwise = self.b.block("");
                let target = self.target(id, states, first.target);
                self.compare_case(&keys, first, target, otherwise);
                self.b.switch_to(otherwise);
                rest = more;
                continue;
            }
            rest = &rest[run.len()..];
            let on = match &joined {
                Some(on) => on.clone(),
                None => self.join_keys(&keys),
            };
            joined = Some(on.clone());
            let mut seen = HashSet::new();
            run.retain(|(value, _)| seen.insert(value.clone()));
            let targets: Vec<(Bits, BlockId)> =
                run.into_iter().map(|(value, target)| (value, self.target(id, states, target))).collect();
            // If the next case matches everything, it is the default; there may also be no further case.
            let otherwise = match rest.first() {
                Some(case) if case.keysets.iter().all(|k| matches!(k, Keyset::DontCare)) => {
                    let target = self.target(id, states, case.target);
                    self.b.switch(on, targets, target);
                    return;
                }
                Some(_) => self.b.block(""),
                None => {
                    let error = self.error_index("NoMatch");
                    self.fail_block(Some(error))
                }
            };
            self.b.switch(on, targets, otherwise);
            if rest.is_empty() {
                return;
            }
            self.b.switch_to(otherwise);
        }
        let error = self.error_index("NoMatch");
        let fail = self.fail_block(Some(error));
        self.b.jump(fail);
    }

    fn join_keys(&mut self, keys: &[KeyValue<'_>]) -> Operand {
        let mut keys =
            keys.iter().map(|(k, _)| k.clone()).filter(|k| !matches!(k, Operand::Const(c) if c.width() == 0));
        let first = keys.next().unwrap_or(Operand::new_const(1, 0));
        let keys: Vec<Operand> = keys.collect();
        keys.into_iter().fold(first, |joined, key| self.b.concat(joined, key).into())
    }

    /// The concatenated key values of a case, if it has exactly one value for each key.
    fn exact_case(&self, keys: &[KeyValue<'_>], case: &SelectCase) -> Option<Bits> {
        if case.keysets.len() != keys.len() {
            return None;
        }
        let mut joined = Bits::zero(0);
        for ((_, ty), keyset) in keys.iter().zip(&case.keysets) {
            let value = match keyset {
                Keyset::Value(e) => self.keyset_constant(e, ty)?,
                Keyset::Mask(e, mask) => {
                    let mask = self.keyset_constant(mask, ty)?;
                    let all = mask == Bits::ones(mask.width());
                    if all { self.keyset_constant(e, ty)? } else { return None }
                }
                Keyset::Range(..) | Keyset::DontCare | Keyset::ValueSet(_) => return None,
            };
            joined = joined.concat(&value);
        }
        Some(joined)
    }

    fn keyset_constant(&self, e: &Expr, ty: &Type) -> Option<Bits> {
        let value = self.constant(e)?;
        match self.value_tree(&value, ty) {
            Tree::Leaf(Operand::Const(c)) => Some(c),
            _ => None,
        }
    }

    fn compare_case(&mut self, keys: &[KeyValue<'_>], case: &SelectCase, target: BlockId, otherwise: BlockId) {
        let mut matches = Self::bit(true);
        if let [Keyset::ValueSet(set)] = case.keysets.as_slice() {
            matches = self.value_set_hit(*set, keys.iter().map(|(k, _)| k.clone()).collect());
        } else {
            for ((key, ty), keyset) in keys.iter().zip(&case.keysets) {
                let one = self.compare_key(key, ty, keyset);
                matches = self.and(matches, one);
            }
        }
        match &matches {
            Operand::Const(c) => self.b.jump(if c.is_true() { target } else { otherwise }),
            Operand::Slot(_) => self.b.branch(matches, target, otherwise),
        }
    }

    fn compare_key(&mut self, key: &Operand, ty: &Type, keyset: &Keyset) -> Operand {
        match keyset {
            Keyset::DontCare => Self::bit(true),
            Keyset::Value(e) => {
                let value = self.keyset_value(e, ty);
                self.b.bin(BinOp::Eq, key.clone(), value).into()
            }
            Keyset::Mask(e, mask) => {
                let (value, mask) = (self.keyset_value(e, ty), self.keyset_value(mask, ty));
                let value = match (&value, &mask) {
                    (Operand::Const(v), Operand::Const(m)) => Operand::Const(v.and(m)),
                    _ => self.b.bin(BinOp::And, value, mask.clone()).into(),
                };
                let masked = self.b.bin(BinOp::And, key.clone(), mask);
                self.b.bin(BinOp::Eq, masked, value).into()
            }
            Keyset::Range(low, high) => {
                let (low, high) = (self.keyset_value(low, ty), self.keyset_value(high, ty));
                let op = if is_signed(&self.p.types, ty) { BinOp::Sle } else { BinOp::Ule };
                let above = self.b.bin(op, low, key.clone());
                let below = self.b.bin(op, key.clone(), high);
                self.b.bin(BinOp::And, above, below).into()
            }
            Keyset::ValueSet(set) => self.value_set_hit(*set, vec![key.clone()]),
        }
    }

    fn keyset_value(&mut self, e: &Expr, ty: &Type) -> Operand {
        match self.keyset_constant(e, ty) {
            Some(value) => value.into(),
            None => self.eval(e).operand(),
        }
    }
}
