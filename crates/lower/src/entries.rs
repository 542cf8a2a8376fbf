//! Entries of tables that the program declares.
//!
//! **Priorities** (P4_16, "Entry priorities"): if a table has ternary, range or optional keys, the entry listed first
//! wins unless priorities are written. In the IR the highest number wins; with `largest_priority_wins = false` the
//! program's numbers are reversed with respect to the largest of them. Tables without such keys have priority 0.

use crate::codes;
use crate::context::Lowerer;
use crate::tree::Tree;
use base::Bits;
use base::diag::Diagnostic;
use base::entry::{EntryAction, KeyMatch, MatchKind, TableEntry};
use ir::Operand;
use sema::Type;
use sema::typed::{Entry, Expr, InstanceId, Keyset, Table, find_annotation};
use std::collections::HashSet;

impl Lowerer<'_> {
    /// The entries of a table in an instance of its control; `places` are its actions' indices in the IR table's list.
    pub(crate) fn entries(
        &mut self,
        table: &Table,
        keys: &[ir::Key],
        places: &[u32],
        instance: InstanceId,
    ) -> Vec<TableEntry> {
        let needs_priority = keys.iter().any(|k| k.kind.needs_priority());
        let priorities = if needs_priority { self.priorities(table, instance) } else { vec![0; table.entries.len()] };
        let mut entries: Vec<TableEntry> = Vec::new();
        let mut keys_so_far: HashSet<Vec<KeyMatch>> = HashSet::new();
        for (entry, priority) in table.entries.iter().zip(priorities) {
            let Some(key) = self.entry_key(table, entry, keys, instance) else { continue };
            if !needs_priority && !keys_so_far.insert(key.clone()) {
                let message = "there is an entry with this key already; the first one stays";
                self.report(Diagnostic::warning(codes::ENTRY_TWICE, entry.span, message));
                continue;
            }
            let mut call = self.action_call(table, entry.action, &entry.args, instance, entry.span);
            call.action = places.get(call.action as usize).copied().unwrap_or_default();
            entries.push(TableEntry { key, priority, action: EntryAction::Call(call), idle_timeout_ns: 0 });
        }
        entries
    }

    fn priorities(&mut self, table: &Table, instance: InstanceId) -> Vec<i32> {
        let property = |name: &str| table.property(name).and_then(|p| self.p.eval(&p.value, Some(instance)));
        let largest_wins = property("largest_priority_wins").and_then(|v| v.as_bool()).unwrap_or(true);
        let delta = property("priority_delta").and_then(|v| v.to_u64()).unwrap_or(1) as i64;
        let count = table.entries.len() as i64;
        let explicit = table.entries.iter().any(|e| e.priority.is_some());
        let annotated = |entry: &Entry| find_annotation(&entry.annotations, "priority").and_then(|a| a.as_u64());
        if !explicit && table.entries.iter().any(|e| annotated(e).is_some()) {
            // p4c's `@priority(n)`: the smallest number wins; the default is the entry's position, counted from 1.
            let number = |(i, e)| annotated(e).and_then(|n| i64::try_from(n).ok()).unwrap_or(i as i64 + 1);
            let numbers: Vec<i64> = table.entries.iter().enumerate().map(number).collect();
            return self.highest_wins(table, numbers, false);
        }
        let mut current = if largest_wins && !explicit { 1 + delta * count } else { 1 - delta };
        let mut numbers = Vec::new();
        for (i, entry) in table.entries.iter().enumerate() {
            current = match &entry.priority {
                Some(value) => match value.to_u64().and_then(|v| i64::try_from(v).ok()) {
                    Some(value) => value,
                    None => {
                        self.refuse(codes::UNSUPPORTED_TABLE, entry.span, "this priority is out of range");
                        0
                    }
                },
                None if explicit && i == 0 => {
                    let message = "the first entry must have a priority when others have one";
                    self.refuse(codes::UNSUPPORTED_TABLE, entry.span, message);
                    0
                }
                None if largest_wins => current - delta,
                None => current + delta,
            };
            numbers.push(current);
        }
        self.highest_wins(table, numbers, largest_wins)
    }

    /// Converts priorities to numbers of which the highest wins.
    fn highest_wins(&mut self, table: &Table, numbers: Vec<i64>, largest_wins: bool) -> Vec<i32> {
        let top = numbers.iter().copied().max().unwrap_or(0);
        let numbers = numbers.into_iter().map(|n| if largest_wins { n } else { top - n + 1 });
        let numbers: Vec<Option<i32>> = numbers.map(|n| i32::try_from(n).ok().filter(|n| *n >= 0)).collect();
        if numbers.contains(&None) {
            self.refuse(codes::UNSUPPORTED_TABLE, table.span, "the priorities of the entries are out of range");
        }
        numbers.into_iter().map(|n| n.unwrap_or(0)).collect()
    }

    fn entry_key(
        &mut self,
        table: &Table,
        entry: &Entry,
        keys: &[ir::Key],
        instance: InstanceId,
    ) -> Option<Vec<KeyMatch>> {
        let mut fields = Vec::new();
        let mut numbers = keys.iter();
        for (i, key) in table.keys.iter().enumerate() {
            if &*key.match_kind_name == "selector" {
                continue;
            }
            // A single `_` stands for all keys.
            let keyset = entry.keysets.get(i).unwrap_or(&Keyset::DontCare);
            let ir_key = numbers.next()?;
            let field = self.key_match(ir_key, keyset, &key.expr.ty, instance);
            if field.is_none() {
                let message = format!("this does not fit key `{}`, which is `{}`", key.name, ir_key.kind.name());
                self.refuse(codes::UNSUPPORTED_TABLE, entry.span, message);
            }
            fields.push(field?);
        }
        Some(fields)
    }

    fn key_match(&self, key: &ir::Key, keyset: &Keyset, ty: &Type, instance: InstanceId) -> Option<KeyMatch> {
        let constant = |e: &Expr| {
            let value = self.p.eval(e, Some(instance))?;
            match self.value_tree(&value, ty) {
                Tree::Leaf(Operand::Const(c)) => Some(c.resize_u(key.width)),
                _ => None,
            }
        };
        let (all, none) = (Bits::ones(key.width), Bits::zero(key.width));
        Some(match (key.kind, keyset) {
            (MatchKind::Exact, Keyset::Value(v)) => KeyMatch::Exact(constant(v)?),
            (MatchKind::Exact, Keyset::Mask(v, mask)) if constant(mask)? == all => KeyMatch::Exact(constant(v)?),
            (MatchKind::Lpm, Keyset::Value(v)) => KeyMatch::Lpm { value: constant(v)?, prefix_len: key.width },
            (MatchKind::Lpm, Keyset::Mask(v, mask)) => {
                let (value, mask) = (constant(v)?, constant(mask)?);
                let prefix_len = (0..key.width).rev().take_while(|i| mask.bit(*i)).count() as u32;
                if mask != all.shl(u64::from(key.width - prefix_len)) {
                    return None;
                }
                KeyMatch::Lpm { value: value.and(&mask), prefix_len }
            }
            (MatchKind::Lpm, Keyset::DontCare) => KeyMatch::Lpm { value: none, prefix_len: 0 },
            (MatchKind::Ternary, Keyset::Value(v)) => KeyMatch::Ternary { value: constant(v)?, mask: all },
            (MatchKind::Ternary, Keyset::Mask(v, mask)) => {
                let mask = constant(mask)?;
                KeyMatch::Ternary { value: constant(v)?.and(&mask), mask }
            }
            (MatchKind::Ternary, Keyset::DontCare) => KeyMatch::Ternary { value: none.clone(), mask: none },
            (MatchKind::Range, Keyset::Value(v)) => KeyMatch::Range { low: constant(v)?, high: constant(v)? },
            (MatchKind::Range, Keyset::Range(low, high)) => {
                let (low, high) = (constant(low)?, constant(high)?);
                if high.ult(&low) {
                    return None;
                }
                KeyMatch::Range { low, high }
            }
            (MatchKind::Range, Keyset::DontCare) => KeyMatch::Range { low: none, high: all },
            (MatchKind::Optional, Keyset::Value(v)) => KeyMatch::Optional(Some(constant(v)?)),
            (MatchKind::Optional, Keyset::DontCare) => KeyMatch::Optional(None),
            _ => return None,
        })
    }
}
