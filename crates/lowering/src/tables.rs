//! Tables: keys, lookups, entries, action parameters.
//!
//! A lookup is `issue`, with the key's words in the layout of the table, immediately followed by `take`; passes move
//! other work between the two. A miss yields the default entry, which has the same layout. A group without members is a
//! miss.

use crate::build::{At, Lowering, part};
use crate::error::Error;
use crate::value::Val;
use abi::entry::param_bytes;
use abi::{Bindings, EntryLayout, KeyLayout, TableBinding, TableHandle, WorkerCtx};
use ir::{ExternKind, Operand, Program, SlotId, TableId};
use mir::{Address, Condition, Op, Region, Type, Value};
use std::collections::HashSet;
use std::mem::offset_of;

/// Slots for the results of a lookup: hit, action, entry and data.
pub(crate) type Results = [SlotId; 4];

/// Declares a program's tables in the module, by the same ids.
pub(crate) fn declare(program: &Program, bindings: &Bindings) -> Vec<mir::Table> {
    let mut names = HashSet::new();
    let tables = program.tables.iter().enumerate().map(|(i, table)| {
        let binding = bindings.tables.get(i);
        let mut name = table.name.clone();
        if !names.insert(name.clone()) {
            name = format!("{name} {i}");
        }
        mir::Table {
            name,
            // A table without a key is never looked up, but needs at least one word.
            words: binding.map_or(0, |binding| binding.key.bytes / 8).max(1),
            handle: binding.map_or(0, |binding| binding.handle as u64),
            lookup: binding.map_or(0, |binding| binding.lookup as usize as u64),
        }
    });
    tables.collect()
}

impl<'a> Lowering<'a> {
    fn table_name(&self, table: TableId) -> &'a str {
        &self.program.tables[table.index()].name
    }

    pub fn binding(&self, table: TableId) -> Result<&'a TableBinding, Error> {
        let missing = || Error::Binding(format!("table `{}` has no binding", self.table_name(table)));
        self.bindings.tables.get(table.index()).ok_or_else(missing)
    }

    pub fn apply(
        &mut self,
        table: TableId,
        keys: &[Operand],
        selector: &[Operand],
        results: Results,
    ) -> Result<(), Error> {
        let binding = self.binding(table)?;
        if binding.key.fields.len() != keys.len() {
            let (name, found, want) = (self.table_name(table), keys.len(), binding.key.fields.len());
            let what = format!("table `{name}` is applied with {found} key fields, its engine has {want}");
            return Err(Error::Binding(what));
        }
        let handle = self.word(binding.handle as u64);
        let default = self.load_le(Region::Table, 8, handle, offset_of!(TableHandle, default_entry) as u32);
        let (mut hit, mut entry) = (self.word(0), default);
        if binding.key.bytes > 0 {
            let words = self.key_words(&binding.key, keys);
            let id = mir::TableId(table.0);
            let probe = self.value(Type::Probe(id), Op::ProbeIssue(id, words));
            let found = self.value(Type::I64, Op::ProbeTake(probe));
            let is_hit = self.truth(found);
            hit = self.flag(is_hit);
            if binding.entry.last_hit.is_some() || binding.dynamic.as_ref().is_some_and(|d| d.restart_on_hit) {
                self.if_true(is_hit, |l| {
                    l.note_hit(binding, found);
                    Ok(())
                })?;
            }
            entry = self.select(is_hit, found, default);
        }
        let (hit, entry, data) = self.choose_member(table, binding, selector, (hit, entry), default)?;
        self.count_lookup(table, hit);
        let action = self.load_le(Region::Entry, binding.entry.action_bytes as u8, data, 0);
        for (slot, value) in results.into_iter().zip([hit, action, entry, data]) {
            self.write_slot(slot, &Val::Word(value));
        }
        Ok(())
    }

    /// Records the time of a hit in an entry, for tables that need it.
    fn note_hit(&mut self, binding: &TableBinding, entry: Value) {
        if let Some(last_hit) = binding.entry.last_hit {
            self.store_near(8, entry, last_hit, self.now_us);
        }
        if binding.dynamic.as_ref().is_some_and(|dynamic| dynamic.restart_on_hit) {
            self.note_tick(binding, entry);
        }
    }

    /// Stores to a part of an entry that packets modify.
    pub fn store_near(&mut self, bytes: u8, entry: Value, offset: i32, value: Value) {
        self.effect(Op::Store(mir::Access::little(Region::State, bytes), Address { base: entry, offset }, value));
    }

    fn count_lookup(&mut self, table: TableId, hit: Value) {
        let cells = self.load_le(Region::Context, 8, self.ctx, offset_of!(WorkerCtx, table_counters) as u32);
        let one = self.word(1);
        let miss = self.sub(one, hit);
        for (offset, count) in [(0, hit), (8, miss)] {
            self.effect(Op::Count(Address { base: cells, offset: 16 * table.0 as i32 + offset }, count));
        }
    }

    /// The lookup key as words, in the layout of the table.
    pub fn key_words(&mut self, layout: &KeyLayout, keys: &[Operand]) -> Vec<Value> {
        let mut words = vec![Vec::new(); layout.bytes as usize / 8];
        for (field, key) in layout.fields.iter().zip(keys) {
            let (at, up) = ((field.offset / 8) as usize, 8 * (field.offset % 8));
            for (i, word) in self.read_words(key).into_iter().enumerate() {
                let width = (field.width - 64 * i as u32).min(64);
                words[at + i].push(part(word, width, up));
            }
        }
        words.into_iter().map(|parts| self.pack(Type::I64, parts)).collect()
    }

    /// If the entry refers to a group, replaces it by the member that the selector chooses. Returns hit, entry and
    /// data.
    fn choose_member(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        selector: &[Operand],
        (hit, entry): (Value, Value),
        default: Value,
    ) -> Result<(Value, Value, Value), Error> {
        let implementation = self.program.tables[table.index()].implementation;
        let kind = implementation.map(|ext| &self.program.externs[ext.index()].kind);
        let (Some(ExternKind::ActionSelector { algorithm, hash_width, .. }), Some(select), Some(group)) =
            (kind, binding.select, binding.entry.group)
        else {
            return Ok((hit, entry, entry));
        };
        let group = self.load_at(Region::Entry, 8, entry, group);
        let has_group = self.truth(group);
        let chosen = self.values_if(has_group, vec![hit, entry, entry], |l| {
            let hash = l.hash_value(*algorithm, selector, &[], false);
            let hash = l.mask_word(hash, *hash_width);
            let id = l.calls.select(l.table_name(table), select);
            let member = l.call(id, vec![group, hash]).expect("the call has a result");
            let is_member = l.compare_imm(Condition::Ne, member, 0);
            let (data, entry) = (l.select(is_member, member, default), l.select(is_member, entry, default));
            // If the default entry refers to a group, the lookup is still a miss.
            let is_member = l.flag(is_member);
            Ok(vec![l.both(hit, is_member), entry, data])
        })?;
        Ok((chosen[0], chosen[1], chosen[2]))
    }

    pub fn action_param(
        &mut self,
        dst: SlotId,
        table: TableId,
        (action, param): (u32, u32),
        data: SlotId,
    ) -> Result<(), Error> {
        let layout: &EntryLayout = &self.binding(table)?.entry;
        let offset = layout.params.get(action as usize).and_then(|params| params.get(param as usize));
        let Some(&offset) = offset else {
            let name = self.table_name(table);
            return Err(Error::Binding(format!("table `{name}` has no parameter {param} of action {action}")));
        };
        let base = self.read_flag(data);
        let bytes = param_bytes(self.program.width(dst));
        let word = |i: u32| {
            let at = At { base, offset: offset + 8 * i };
            self.load(mir::Access::little(Region::Entry, (bytes - 8 * i).min(8) as u8), at)
        };
        let words = (0..bytes.div_ceil(8)).map(word).collect();
        self.write_words(dst, words);
        Ok(())
    }
}
