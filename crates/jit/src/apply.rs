//! Tables: keys, lookups, entries, action parameters.
//!
//! A key is built in registers as the words of its `abi::KeyLayout`. Engines that allow it are probed inline
//! ([`crate::probe`]); the others are called with the key on the stack.
//!
//! A group without members counts as a miss: the default action runs. If the default action is a group too, its
//! fallback action runs (`tables::Runs::GroupOr`).

use crate::exact_index::KEY_WORDS_MAX;
use crate::packet::At;
use crate::probe::is_inlined;
use crate::rules::{OtherPath, Selected};
use crate::translate::Translator;
use crate::value::Val;
use crate::{Error, Optimisation};
use abi::{EngineKind, EntryShape, KeyLayout, TableBinding, TableHandle};
use base::entry::MatchKind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use ir::{ExternKind, Operand, SlotId, TableId, Terminator};
use std::mem::offset_of;

/// Most entries that are compared one by one instead of indexing an array.
const DIRECT_RULES_MAX: usize = 1;
/// Most entries that are compared one by one instead of hashing and reading a bucket.
const EXACT_RULES_MAX: usize = 3;

/// The result of a lookup.
pub(crate) enum Found {
    /// The table never hits.
    Never,
    /// The entry, or null.
    Pointer(Value),
    /// The code that follows is for hits, with this entry. Misses go to the block `miss`, whose predecessors are
    /// complete; `None` if there are no misses. `action`: what all hits run, if it is the same.
    Hit { entry: Value, miss: Option<Block>, action: Option<u32> },
}

/// The slots for a lookup's results.
#[derive(Clone, Copy)]
struct ApplySlots {
    hit: SlotId,
    action: SlotId,
    entry: SlotId,
    data: SlotId,
}

/// The miss continuation: the second path out of a lookup at a block's end.
pub(crate) struct MissContinuation {
    table: TableId,
    slots: ApplySlots,
    path: Continuation,
}

/// The code of that path.
enum Continuation {
    /// Misses, not counted yet.
    Miss(Block),
    /// The other result of a selection.
    Selected(OtherPath),
}

/// The action that all entries run, if it is the same.
pub(crate) fn common_action<'a>(entries: impl Iterator<Item = &'a EntryShape>) -> Option<u32> {
    let mut actions = entries.map(|entry| entry.call.as_ref().map(|call| call.action));
    let first = actions.next()??;
    actions.all(|action| action == Some(first)).then_some(first)
}

impl Translator<'_, '_> {
    pub fn binding(&self, table: TableId) -> Result<&TableBinding, Error> {
        self.bindings.tables.get(table.index()).ok_or_else(|| {
            Error::Binding(format!("table `{}` has no binding", self.program.tables[table.index()].name))
        })
    }

    /// Translates `Op::Apply`; `slots` are hit, action, entry, data.
    pub fn apply(
        &mut self,
        table: TableId,
        keys: &[Operand],
        selector: &[Operand],
        slots: [SlotId; 4],
    ) -> Result<(), Error> {
        let binding = self.binding(table)?.clone();
        if binding.key.fields.len() != keys.len() {
            let name = &self.program.tables[table.index()].name;
            let (found, want) = (keys.len(), binding.key.fields.len());
            return Err(Error::Binding(format!(
                "table `{name}` is applied with {found} key fields, its engine has {want}"
            )));
        }
        let slots = ApplySlots { hit: slots[0], action: slots[1], entry: slots[2], data: slots[3] };
        let joined = if self.pending_lookup().is_none() { self.joined(table, &binding, keys) } else { None };
        let found = match joined {
            Some(joined) => joined,
            None => {
                let may_compare = binding.select.is_none() && self.pending_lookup().is_none();
                if may_compare && self.apply_rules(table, &binding, keys, slots) {
                    return Ok(());
                }
                self.lookup(table, &binding, keys)?
            }
        };
        let (hit, entry, data) = match (found, binding.select) {
            (Found::Never, None) => {
                let (miss, default) = (self.iconst(0), self.default_entry(table, &binding));
                self.count_apply(table, false);
                (miss, default, default)
            }
            (found, None) if self.ends_with(slots) => {
                self.apply_in_two(table, &binding, found, slots);
                return Ok(());
            }
            (found, None) => {
                let (hit, entry) = self.hit_or_miss(table, &binding, found, slots, true);
                (hit, entry, entry)
            }
            (found, Some(select)) => {
                let (hit, entry) = self.hit_or_miss(table, &binding, found, slots, false);
                let default = self.default_entry(table, &binding);
                let chosen = self.choose_member(table, select as usize, selector, hit, entry, default)?;
                self.count_apply_if(table, chosen.0);
                chosen
            }
        };
        let action = self.entry_action(&binding.entry, data);
        self.write_slot(slots.hit, &Val::Word(hit));
        self.write_slot(slots.action, &Val::Word(action));
        self.write_slot(slots.entry, &Val::Word(entry));
        self.write_slot(slots.data, &Val::Word(data));
        Ok(())
    }

    /// Joins hits and misses: whether there is an entry, and the entry, which is the default entry on a miss. Misses
    /// are a branch, not a select: so what is done with the entry does not wait for the hit to be known. `counted`:
    /// counts the hit or miss here.
    fn hit_or_miss(
        &mut self,
        table: TableId,
        binding: &TableBinding,
        found: Found,
        slots: ApplySlots,
        counted: bool,
    ) -> (Value, Value) {
        let miss = match found {
            Found::Never | Found::Pointer(_) => Some(self.b.create_block()),
            Found::Hit { miss, .. } => miss,
        };
        let done = self.b.create_block();
        let entry = self.b.append_block_param(done, I64);
        // An unused value would cost a register at the join.
        let wanted = !counted || self.flow.needed.contains(slots.hit.index());
        let hit = wanted.then(|| self.b.append_block_param(done, I64));
        let join = |t: &mut Self, hit: u64, entry: Value| {
            if counted {
                t.count_apply(table, hit == 1);
            }
            let flag = wanted.then(|| t.iconst(hit).into());
            let args: Vec<_> = [entry.into()].into_iter().chain(flag).collect();
            t.b.ins().jump(done, &args);
        };
        let found = match (found, miss) {
            (Found::Pointer(entry), Some(miss)) => {
                let hit = self.b.create_block();
                self.b.ins().brif(entry, hit, &[], miss, &[]);
                self.b.seal_block(hit);
                self.b.switch_to_block(hit);
                Some(entry)
            }
            (Found::Hit { entry, .. }, _) => Some(entry),
            (_, miss) => {
                self.b.ins().jump(miss.expect("it can miss"), &[]);
                None
            }
        };
        if let Some(entry) = found {
            self.note_hit(binding, entry);
            join(self, 1, entry);
        }
        if let Some(miss) = miss {
            self.b.seal_block(miss);
            self.b.switch_to_block(miss);
            let default = self.default_entry(table, binding);
            join(self, 0, default);
        }
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        (hit.unwrap_or(entry), entry)
    }

    /// Whether the block ends with a branch on the lookup's result, so that hits and misses need not join before it.
    fn ends_with(&self, slots: ApplySlots) -> bool {
        self.options.has(Optimisation::SplitPaths)
            && match self.terminator_next {
                Some(Terminator::Switch { on: Operand::Slot(on), .. }) => *on == slots.action,
                Some(Terminator::Branch { cond: Operand::Slot(cond), .. }) => *cond == slots.hit,
                _ => false,
            }
    }

    /// Continues with hits, and leaves misses to [`Self::miss_continuation`]. Where the action is known, no code tests
    /// it.
    fn apply_in_two(&mut self, table: TableId, binding: &TableBinding, found: Found, slots: ApplySlots) {
        let (entry, miss, action) = match found {
            Found::Never => unreachable!("there is a way to hit"),
            Found::Hit { entry, miss, action } => (entry, miss, action),
            Found::Pointer(entry) => {
                let (hit, miss) = (self.b.create_block(), self.b.create_block());
                self.b.ins().brif(entry, hit, &[], miss, &[]);
                self.b.seal_block(hit);
                self.b.switch_to_block(hit);
                (entry, Some(miss), None)
            }
        };
        if let Some(miss) = miss {
            self.b.seal_block(miss);
            // Most prefix tables have a default route, so misses are cold.
            if binding.engine == EngineKind::Prefixes {
                self.b.set_cold_block(miss);
            }
        }
        self.note_hit(binding, entry);
        self.count_apply(table, true);
        let entry = self.row_of(table, entry);
        let action = action.or_else(|| self.action_of_answers(table));
        self.write_found(binding, slots, true, entry, action);
        self.miss_continuation = miss.map(|miss| MissContinuation { table, slots, path: Continuation::Miss(miss) });
    }

    /// The action that all hits of a table run, if its entries are known and it can have no others.
    fn action_of_hits(&self, table: TableId) -> Option<u32> {
        let rules = self.shape(table)?.rules.as_ref()?;
        common_action(rules.iter().map(|rule| &rule.entry))
    }

    /// The action that all entries which lookups of a table can return run.
    fn action_of_answers(&self, table: TableId) -> Option<u32> {
        common_action(self.shape(table)?.results.as_ref()?.entries.iter())
    }

    /// Begins the miss continuation of the lookup at the block's end; false if there is none.
    pub fn begin_miss_continuation(&mut self) -> Result<bool, Error> {
        let Some(MissContinuation { table, slots, path }) = self.miss_continuation.take() else { return Ok(false) };
        let binding = self.binding(table)?.clone();
        let miss = match path {
            Continuation::Miss(miss) => miss,
            Continuation::Selected(OtherPath { block, hit, entry, action }) => {
                self.b.switch_to_block(block);
                self.write_selected(&binding, slots, hit, entry, action);
                return Ok(true);
            }
        };
        self.b.switch_to_block(miss);
        self.count_apply(table, false);
        let default = self.default_entry(table, &binding);
        let action = self.shape(table).and_then(|s| s.default.call.as_ref()).map(|call| call.action);
        self.write_found(&binding, slots, false, default, action);
        Ok(true)
    }

    fn write_found(&mut self, binding: &TableBinding, slots: ApplySlots, hit: bool, entry: Value, action: Option<u32>) {
        let hit = self.iconst(u64::from(hit));
        let action = match action {
            Some(action) => self.iconst(u64::from(action)),
            None => self.entry_action(&binding.entry, entry),
        };
        self.write_slot(slots.hit, &Val::Word(hit));
        self.write_slot(slots.action, &Val::Word(action));
        self.write_slot(slots.entry, &Val::Word(entry));
        self.write_slot(slots.data, &Val::Word(entry));
    }

    /// Stores the time of an entry's hit, for tables that record it.
    fn note_hit(&mut self, binding: &TableBinding, entry: Value) {
        if let Some(last_hit) = binding.entry.last_hit
            && !self.is_prefetch_pass()
        {
            self.b.ins().store(self.flags.state, self.now_us, entry, last_hit);
        }
        if binding.dynamic.as_ref().is_some_and(|dynamic| dynamic.restart_on_hit) && !self.is_prefetch_pass() {
            self.note_tick(binding, entry);
        }
    }

    /// Looks up a table whose entries, or a prefilter of them, are part of the code; false if neither is.
    fn apply_rules(&mut self, table: TableId, binding: &TableBinding, keys: &[Operand], slots: ApplySlots) -> bool {
        let Some(shape) = self.shape(table).filter(|_| self.options.has(Optimisation::InlineTables)) else {
            return false;
        };
        let most = match binding.engine {
            EngineKind::DirectIndex => DIRECT_RULES_MAX,
            EngineKind::ExactInline | EngineKind::Prefixes => EXACT_RULES_MAX,
            EngineKind::Opaque if self.may_have_exact_index(table, binding) => EXACT_RULES_MAX,
            EngineKind::Empty | EngineKind::Opaque => usize::MAX,
        };
        if shape.rules.as_ref().map_or(shape.prefilter.is_none(), |rules| rules.len() > most) {
            return false;
        }
        let may_split = self.ends_with(slots);
        let Some(selected) = self.select_entry(table, binding, keys, may_split) else { return false };
        self.count_selected(table, &selected);
        let Selected { hit, entry, action, other_path, .. } = selected;
        self.write_selected(binding, slots, hit, entry, action);
        self.miss_continuation =
            other_path.map(|other| MissContinuation { table, slots, path: Continuation::Selected(other) });
        true
    }

    fn write_selected(
        &mut self,
        binding: &TableBinding,
        slots: ApplySlots,
        hit: Value,
        entry: Value,
        action: Option<Value>,
    ) {
        self.note_hit(binding, entry);
        let action = match action {
            Some(action) => action,
            None => self.entry_action(&binding.entry, entry),
        };
        self.write_slot(slots.hit, &Val::Word(hit));
        self.write_slot(slots.action, &Val::Word(action));
        self.write_slot(slots.entry, &Val::Word(entry));
        self.write_slot(slots.data, &Val::Word(entry));
    }

    fn default_entry(&mut self, table: TableId, binding: &TableBinding) -> Value {
        if let Some(shape) = self.shape(table) {
            let entry = shape.default.entry as u64;
            return self.iconst(entry);
        }
        let handle = self.address(binding.handle as u64);
        self.b.ins().load(I64, self.flags.state, handle, offset_of!(TableHandle, default_entry) as i32)
    }

    /// The entry that matches.
    fn lookup(&mut self, table: TableId, binding: &TableBinding, keys: &[Operand]) -> Result<Found, Error> {
        if let Some(lookup) = self.pending_lookup() {
            if !self.carried[lookup].is_empty() {
                let carried: Vec<Value> = self.carried[lookup].clone().into_iter().map(|v| self.b.use_var(v)).collect();
                let miss = self.b.create_block();
                let entry = self.probe_finish(table, binding, &carried, miss);
                return Ok(Found::Hit { entry, miss: Some(miss), action: None });
            }
            return Ok(Found::Pointer(self.finish_pending(lookup, keys)?));
        }
        Ok(match binding.engine {
            EngineKind::Empty => Found::Never,
            EngineKind::ExactInline | EngineKind::DirectIndex | EngineKind::Opaque
                if self.may_have_exact_index(table, binding)
                    && let Some(exact_index) = self.exact_index(table, binding) =>
            {
                let words = self.key_words(&binding.key, keys);
                let miss = self.b.create_block();
                let entry = self.find_in_exact_index(&exact_index, &words, miss);
                Found::Hit { entry, miss: Some(miss), action: self.action_of_hits(table) }
            }
            engine if is_inlined(engine, self.options) => {
                let mut begun = self.probe_begin(table, binding, keys);
                self.probe_advance(binding, &mut begun.carried);
                let miss = self.b.create_block();
                let entry = self.probe_finish(table, binding, &begun.carried, miss);
                Found::Hit { entry, miss: Some(miss), action: None }
            }
            _ => Found::Pointer(self.lookup_by_call(binding, keys)),
        })
    }

    /// Whether a table has exact keys that are short enough for a perfect hash.
    fn may_have_exact_index(&self, table: TableId, binding: &TableBinding) -> bool {
        let keys = &self.program.tables[table.index()].keys;
        keys.iter().all(|key| key.kind == MatchKind::Exact) && binding.key.bytes as usize <= 8 * KEY_WORDS_MAX
    }

    /// Looks the key up by a call of `TableBinding::lookup`.
    pub fn lookup_by_call(&mut self, binding: &TableBinding, keys: &[Operand]) -> Value {
        let words = self.key_words(&binding.key, keys);
        let buffer = self.buffer_of(binding.key.bytes);
        self.store_words(self.flags.stack, &words, buffer, 0);
        let handle = self.address(binding.handle as u64);
        self.call(binding.lookup as usize, &[handle, buffer], Some(I64)).expect("the call has a result")
    }

    /// The key as the words of its layout: fields of up to 64 bits at their byte offset in one word, wider ones in
    /// words of their own.
    pub fn key_words(&mut self, layout: &KeyLayout, keys: &[Operand]) -> Vec<Value> {
        let mut words: Vec<Option<Value>> = vec![None; layout.bytes as usize / 8];
        for (field, key) in layout.fields.iter().zip(keys) {
            let (at, shift) = ((field.offset / 8) as usize, 8 * (field.offset % 8));
            for (i, word) in self.read_words(key).into_iter().enumerate() {
                let word = if shift > 0 { self.b.ins().ishl_imm_u(word, i64::from(shift)) } else { word };
                words[at + i] = Some(match words[at + i] {
                    Some(other) => self.b.ins().bor(other, word),
                    None => word,
                });
            }
        }
        words.into_iter().map(|w| w.unwrap_or_else(|| self.iconst(0))).collect()
    }

    /// The member that the action selector chooses, if the entry has a group: hit, entry, data.
    fn choose_member(
        &mut self,
        table: TableId,
        select: usize,
        selector: &[Operand],
        hit: Value,
        entry: Value,
        default: Value,
    ) -> Result<(Value, Value, Value), Error> {
        let t = &self.program.tables[table.index()];
        let kind = t.implementation.map(|e| &self.program.externs[e.index()].kind);
        let Some(ExternKind::ActionSelector { algorithm, hash_width, .. }) = kind else {
            return Ok((hit, entry, entry));
        };
        let Some(group) = self.binding(table)?.entry.group else { return Ok((hit, entry, entry)) };
        let group = self.b.ins().load(I64, self.flags.entry, entry, group);
        let (choose, done) = (self.b.create_block(), self.b.create_block());
        let params = [(); 3].map(|()| self.b.append_block_param(done, I64));
        self.b.ins().brif(group, choose, &[], done, &[hit.into(), entry.into(), entry.into()]);
        self.b.seal_block(choose);
        self.b.switch_to_block(choose);
        let hash = self.hash_value(*algorithm, selector, &[], false);
        let hash = self.mask_word(hash, *hash_width);
        let member = self.call(select, &[group, hash], Some(I64)).expect("the call has a result");
        let is_member = self.icmp_imm(IntCC::NotEqual, member, 0);
        let (data, entry) =
            (self.b.ins().select(is_member, member, default), self.b.ins().select(is_member, entry, default));
        // A default entry with a group remains a miss.
        let is_member = self.bool_word(is_member);
        let hit = self.b.ins().band(hit, is_member);
        self.b.ins().jump(done, &[hit.into(), entry.into(), data.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok((params[0], params[1], params[2]))
    }

    /// Adds `amount`, or 1 if there is none, to the 64-bit cell at `base + offset`.
    pub fn add_to_cell(&mut self, base: Value, offset: u32, amount: Option<Value>) {
        if self.is_prefetch_pass() {
            return;
        }
        let old = self.b.ins().load(I64, self.flags.state, base, offset as i32);
        let new = match amount {
            Some(amount) => self.b.ins().iadd(old, amount),
            None => self.add_imm(old, 1),
        };
        self.b.ins().store(self.flags.state, new, base, offset as i32);
    }

    pub fn action_param(
        &mut self,
        dst: SlotId,
        table: TableId,
        action: u32,
        param: u32,
        data: SlotId,
    ) -> Result<(), Error> {
        let offset =
            self.binding(table)?.entry.params.get(action as usize).and_then(|p| p.get(param as usize)).copied();
        let Some(offset) = offset else {
            let name = &self.program.tables[table.index()].name;
            return Err(Error::Binding(format!("table `{name}` has no parameter {param} of action {action}")));
        };
        let base = self.read_word(&Operand::Slot(data));
        let val = self.entry_param(self.program.width(dst), base, offset);
        self.note_param(base, table, action, param, &val);
        self.write_slot(dst, &val);
        Ok(())
    }

    /// The address of the shared buffer for keys, hash data and messages, at least `bytes` long. Its contents are valid
    /// until the next use.
    pub fn buffer_of(&mut self, bytes: u32) -> Value {
        let slot = match self.call_buffer {
            Some(slot) => slot,
            None => {
                let slot = self.stack_slot(8);
                *self.call_buffer.insert(slot)
            }
        };
        self.grow(slot, bytes);
        self.stack_addr(slot)
    }

    /// The first byte of [`Self::buffer_of`].
    pub fn buffer_at(&mut self, bytes: u32) -> At {
        At { base: self.buffer_of(bytes), offset: 0 }
    }
}
