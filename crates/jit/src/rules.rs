//! Tables whose entries are part of the code: comparisons without branches.
//!
//! A table of a handful of entries is not looked up: the key is compared with each entry, and of the entries that
//! accept it the first one is selected, by a chain of selects from the last to the first. Addresses of entries, masks
//! and values are constants. Entries with the same mask share the masked words. Nothing is predicted, and no memory is
//! read except for parameters of the selected entry. Where that would be more instructions, bit vectors say which
//! entries accept which bytes of the key ([`crate::bit_vectors`]).
//!
//! The code is correct while the entries are those of the `abi::TableShape`; its user must ensure that. Where only a
//! prefilter of the entries is known ([`crate::prefilter`]), which stays correct while they change, keys that pass it
//! are looked up in the table.
//!
//! Tests: `crates/datapath/tests/recompile.rs`, against the interpreter, with entries that change.

use crate::bit_vectors::KeyParts;
use crate::translate::Translator;
use crate::{Optimisation, bit_vectors};
use abi::{EngineKind, EntryShape, Prefilter, Rule, TableBinding, TableShape};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use ir::{Operand, TableId};

/// The result of a lookup.
pub(crate) struct Selected {
    /// A one-bit word.
    pub hit: Value,
    /// How the table's counters count it.
    pub counted: Counted,
    /// The entry; the default entry on a miss.
    pub entry: Value,
    /// The action that the entry runs, if it is known.
    pub action: Option<Value>,
    /// The result on the other path, where the two paths do not join.
    pub other_path: Option<OtherPath>,
}

/// The result of a lookup on its other path, which has been counted already.
pub(crate) struct OtherPath {
    /// The block where that path continues.
    pub block: Block,
    /// As in [`Selected`].
    pub hit: Value,
    pub entry: Value,
    pub action: Option<Value>,
}

/// How the table's counters count a lookup.
pub(crate) enum Counted {
    /// It has been counted.
    Already,
    /// At this offset from the counter of hits.
    At(Value),
    /// As a hit or a miss.
    ByHit,
}

impl Translator<'_, '_> {
    /// The contents that the code assumes of a table, if it is specialised for any.
    pub fn shape(&self, table: TableId) -> Option<&TableShape> {
        self.shapes.tables.get(table.index()).filter(|_| self.options.has(Optimisation::BakedAddresses))
    }

    /// Compares the key with all entries of a table, or with its prefilter; `None` if nothing is known of its entries.
    /// `may_split`: the two paths need not join.
    pub fn select_entry(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        keys: &[Operand],
        may_split: bool,
    ) -> Option<Selected> {
        let shapes = self.shapes;
        match &shapes.tables.get(table.index())?.prefilter {
            Some(prefilter) if binding.engine == EngineKind::Opaque => {
                Some(self.select_through_prefilter(table, prefilter, binding, keys, may_split))
            }
            _ => self.select_any(table, binding, keys, may_split),
        }
    }

    /// [`Self::select_entry`] for a table with a prefilter.
    fn select_through_prefilter(
        &mut self,
        table: TableId,
        prefilter: &Prefilter,
        binding: &TableBinding,
        keys: &[Operand],
        may_split: bool,
    ) -> Selected {
        let shape = &self.shapes.tables[table.index()];
        // While the entries change, keys that do not pass get the default entry.
        let (last, is_hit) = match shape.possible() {
            Some((rules, None)) => (&rules.last().expect("one accepts everything").entry, true),
            _ => (&shape.default, false),
        };
        let key = self.key_parts(&binding.key, keys);
        let passes = self.passes_prefilter(prefilter, &key);
        let look = |t: &mut Self| match t.select_any(table, binding, keys, false) {
            Some(found) => found,
            None => {
                let entry = t.lookup_by_call(binding, keys);
                let hit = t.icmp_imm(IntCC::NotEqual, entry, 0);
                let last = t.iconst(last.entry as u64);
                let entry = t.b.ins().select(hit, entry, last);
                let hit = t.bool_word(hit);
                Selected { hit, counted: Counted::ByHit, entry, action: None, other_path: None }
            }
        };
        self.select_if(table, passes, (true, may_split), (last, is_hit), look)
    }

    /// What `look` selects if a condition holds, and otherwise the entry `other`. With `may_split` the paths do not
    /// join, and the constants of the second path stay known there.
    fn select_if(
        &mut self,
        table: TableId,
        condition: Value,
        (is_rare, may_split): (bool, bool),
        (other, is_hit): (&EntryShape, bool),
        look: impl FnOnce(&mut Self) -> Selected,
    ) -> Selected {
        let [then, otherwise, done] = [(); 3].map(|()| self.b.create_block());
        self.b.ins().brif(condition, then, &[], otherwise, &[]);
        self.b.seal_block(then);
        self.b.seal_block(otherwise);
        self.b.switch_to_block(then);
        if is_rare {
            self.b.set_cold_block(then);
        }
        let found = look(self);
        self.count_selected(table, &found);
        if may_split {
            self.b.ins().jump(done, &[]);
            self.b.seal_block(done);
            if is_rare {
                self.b.set_cold_block(done);
            }
            self.b.switch_to_block(otherwise);
            self.count_apply(table, is_hit);
            let Selected { hit, entry, action, .. } = found;
            let other_path = Some(OtherPath { block: done, hit, entry, action });
            let (hit, entry) = (self.iconst(is_hit.into()), self.iconst(other.entry as u64));
            let action = action_of(other).map(|action| self.iconst(action.into()));
            return Selected { hit, counted: Counted::Already, entry, action, other_path };
        }
        let [hit, entry] = [(); 2].map(|()| self.b.append_block_param(done, I64));
        // The action is known if it is known on both paths.
        let action = found.action.zip(action_of(other)).map(|(found, other)| {
            let either = self.b.append_block_param(done, I64);
            (found, other, either)
        });
        let args: Vec<_> = [found.hit, found.entry].into_iter().chain(action.map(|a| a.0)).map(Into::into).collect();
        self.b.ins().jump(done, &args);

        self.b.switch_to_block(otherwise);
        self.count_apply(table, is_hit);
        let words = [u64::from(is_hit), other.entry as u64].into_iter().chain(action.map(|a| a.1.into()));
        let args: Vec<_> = words.map(|word| self.iconst(word).into()).collect();
        self.b.ins().jump(done, &args);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Selected { hit, counted: Counted::Already, entry, action: action.map(|a| a.2), other_path: None }
    }

    /// [`Self::select_entry`] without a prefilter.
    fn select_any(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        keys: &[Operand],
        may_split: bool,
    ) -> Option<Selected> {
        let shapes = self.shapes;
        let (rules, default) = shapes.tables.get(table.index())?.possible()?;
        let mut from_last = rules.iter().rev();
        // Without a default entry, the last rule accepts everything.
        let (last, mut hit) = match default {
            Some(default) => (default, self.iconst(0)),
            None => (&from_last.next().expect("there is a rule or a miss").entry, self.iconst(1)),
        };
        let others = &rules[..rules.len() - usize::from(default.is_none())];
        let actions: Option<Vec<u32>> = rules.iter().map(|r| &r.entry).chain(default).map(action_of).collect();
        let same = actions.as_ref().is_some_and(|all| all.iter().all(|a| a == &all[0]));
        if let Some(cost) = bit_vectors::cost(others) {
            if cost < compare_cost(others) {
                let key = self.key_parts(&binding.key, keys);
                return Some(self.select_by_bit_vectors(
                    table,
                    others,
                    last,
                    default.is_some(),
                    actions.map(|_| same),
                    &key,
                ));
            }
        } else if others.len() > COMPARED_MAX {
            return self.select_if_any(table, binding, others, last, default.is_some(), keys);
        }
        let key = &self.key_words(&binding.key, keys);
        if let ([only], Some(default)) = (others, default) {
            let accepts = self.accepts(&only.mask, &only.value, key);
            let look = |t: &mut Self| Selected {
                hit: t.iconst(1),
                counted: Counted::ByHit,
                entry: t.iconst(only.entry.entry as u64),
                action: action_of(&only.entry).map(|action| t.iconst(action.into())),
                other_path: None,
            };
            return Some(self.select_if(table, accepts, (false, may_split), (default, false), look));
        }
        let mut entry = self.iconst(last.entry as u64);
        let mut action = actions.map(|_| self.iconst(action_of(last).unwrap_or(0).into()));
        for rule in from_last {
            let accepts = self.accepts(&rule.mask, &rule.value, key);
            let this = self.iconst(rule.entry.entry as u64);
            entry = self.b.ins().select(accepts, this, entry);
            if let Some(so_far) = action.filter(|_| !same) {
                let this = self.iconst(action_of(&rule.entry).unwrap_or(0).into());
                action = Some(self.b.ins().select(accepts, this, so_far));
            }
            let accepts = self.bool_word(accepts);
            hit = self.b.ins().bor(hit, accepts);
        }
        Some(Selected { hit, counted: Counted::ByHit, entry, action, other_path: None })
    }

    /// [`Self::select_entry`] for so many rules that they share bits: the bit vectors only say whether one may accept
    /// the key.
    fn select_if_any(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        rules: &[&Rule],
        last: &EntryShape,
        may_miss: bool,
        keys: &[Operand],
    ) -> Option<Selected> {
        let any = self.may_match(table, rules, last, &binding.key, keys)?;
        let (look, done) = (self.b.create_block(), self.b.create_block());
        let [hit, entry] = [(); 2].map(|()| self.b.append_block_param(done, I64));
        let (others_hit, others) = (self.iconst(u64::from(!may_miss)), self.iconst(last.entry as u64));
        self.b.ins().brif(any, look, &[], done, &[others_hit.into(), others.into()]);
        self.b.seal_block(look);
        self.b.switch_to_block(look);
        self.b.set_cold_block(look);
        let found = self.lookup_by_call(binding, keys);
        let is_hit = self.icmp_imm(IntCC::NotEqual, found, 0);
        let last = self.iconst(last.entry as u64);
        let chosen = self.b.ins().select(is_hit, found, last);
        let is_hit = self.bool_word(is_hit);
        self.b.ins().jump(done, &[is_hit.into(), chosen.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Some(Selected { hit, counted: Counted::ByHit, entry, action: None, other_path: None })
    }

    /// [`Self::select_entry`] by bit vectors. `same`: whether all entries run the same action; `None` if it is unknown.
    fn select_by_bit_vectors(
        &mut self,
        table: TableId,
        rules: &[&Rule],
        last: &EntryShape,
        may_miss: bool,
        same: Option<bool>,
        key: &KeyParts,
    ) -> Selected {
        let row = self.first_accepting_rule(table, rules, last, may_miss, key);
        let hit = if may_miss { row.is_rule } else { self.iconst(1) };
        let action = match same {
            None => None,
            Some(true) => Some(self.iconst(action_of(last).unwrap_or(0).into())),
            Some(false) => Some(row.action),
        };
        let counted = if may_miss { Counted::At(row.counter) } else { Counted::ByHit };
        Selected { hit, counted, entry: row.entry, action, other_path: None }
    }

    /// Whether the key has this value where the mask has ones.
    fn accepts(&mut self, mask: &[u64], value: &[u64], key: &[Value]) -> Value {
        let words: Vec<_> = mask.iter().zip(value).zip(key).filter(|((m, _), _)| **m != 0).collect();
        let masked = |t: &mut Self, mask: u64, word: Value| match mask {
            u64::MAX => word,
            _ => t.b.ins().band_imm_u(word, mask as i64),
        };
        if let [((mask, value), word)] = words[..] {
            let masked = masked(self, *mask, *word);
            return self.icmp_imm(IntCC::Equal, masked, *value);
        }
        let mut different = self.iconst(0);
        for ((mask, value), word) in words {
            let masked = masked(self, *mask, *word);
            let wanted = self.iconst(*value);
            let difference = self.b.ins().bxor(masked, wanted);
            different = self.b.ins().bor(different, difference);
        }
        self.icmp_imm(IntCC::Equal, different, 0)
    }
}

/// Most rules that are compared one by one.
const COMPARED_MAX: usize = 16;

/// The approximate number of instructions for comparing with rules one by one.
fn compare_cost(rules: &[&Rule]) -> usize {
    let words = |rule: &&Rule| rule.mask.iter().filter(|mask| **mask != 0).count();
    // Per word a mask and a difference; then the comparison and the selects.
    rules.iter().map(|rule| 2 * words(rule) + 5).sum()
}

fn action_of(entry: &EntryShape) -> Option<u32> {
    entry.call.as_ref().map(|call| call.action)
}
