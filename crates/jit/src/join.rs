//! Materialised joins of dependent tables: lookups whose keys are action parameters of an earlier table, done at
//! compile time.
//!
//! A route names a next hop, and a second table maps the next hop to its port and address: for the same route, packet
//! after packet looks up the same number. Where all entries that lookups in the first table can return are known
//! (`abi::ResultEntries`: many keys share few entries), and all entries of the second, the join of both is stored in
//! memory of the code:
//!
//! ```text
//! %h, %a, %e, %d = apply routes (dst)         row = rows + (entry - first) * scale
//! hop = param routes, 0, 0, %d            =>  %d = row
//! %h, %a, %f, %g = apply hops (hop)           %g = row + 8
//! ```
//!
//! There is one row for each place that an entry of the first table, the driving table, can have. It begins
//! with a copy of the entry. For each joined table it holds a copy of the entry that the table returns, or the entry's
//! address if the entry is more than an action and its parameters. A joined table's parameters may in turn be keys of
//! another. Code tests for a miss only if some row has one, and for the action only if rows differ in it. Hits, misses
//! and times of hits are recorded as without the join. Values that are written to packets and are computed only from a
//! row's parameters are precomputed in the row, in the packet's byte order.
//!
//! **What counts as a parameter** is decided by SSA values, not by slots: the compiler knows which row the result of
//! [`Translator::action_param`] was loaded from, and a key that is this very value reaches the lookup only on paths
//! that ran the action. At a join of paths with different values the key is a block parameter, a new value, and the
//! table is looked up.
//!
//! The rows belong to the code. The code is invalidated before the driving table gets an entry that is not in them, and
//! before an entry of a joined table changes ([`crate::rules`] says when that is right).
//!
//! Tests: `crates/datapath/tests/joined.rs`, against the interpreter; crate `difftest`.

use crate::Optimisation;
use crate::apply::{Found, common_action};
use crate::exact_index::copy_to;
use crate::translate::Translator;
use crate::value::{Val, const_words};
use abi::{EngineKind, EntryLayout, EntryShape, KeyLayout, ResultEntries, Rule, TableBinding};
use base::Bits;
use base::entry::{ActionCall, MatchKind};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Value};
use ir::{Op, Operand, Program, TableId};
use std::cell::RefCell;
use std::collections::HashMap;

/// Most bytes of a row: a cache line.
const ROW_BYTES_MAX: usize = 64;

/// For each table, the tables that may be joined to it: their keys may be parameters of its actions, or of the actions
/// of another joined table.
pub(crate) fn candidates(program: &Program) -> Vec<Vec<TableId>> {
    let insts = || program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts);
    let joined_to = |driver: usize| {
        let driver = TableId::from_index(driver);
        if !program.tables[driver.index()].keys.iter().any(|key| key.kind == MatchKind::Lpm) {
            return Vec::new();
        }
        let (mut joined, mut params) = (Vec::new(), ir::BitSet::new(program.slots.len()));
        loop {
            let before = (joined.len(), params.iter().count());
            for inst in insts() {
                match &inst.op {
                    Op::ActionParam { dst, table, .. } if *table == driver || joined.contains(table) => {
                        params.insert(dst.index());
                    }
                    Op::Mov { dst, src: Operand::Slot(src) } if params.contains(src.index()) => {
                        params.insert(dst.index());
                    }
                    Op::Apply { table, keys, .. } if *table != driver && !joined.contains(table) => {
                        let is_param = |key: &Operand| key.slot().is_some_and(|s| params.contains(s.index()));
                        let is_known = |key: &Operand| key.constant().is_some() || is_param(key);
                        let is_exact = program.tables[table.index()].keys.iter().all(|k| k.kind == MatchKind::Exact);
                        if is_exact && keys.iter().all(is_known) && keys.iter().any(is_param) {
                            joined.push(*table);
                        }
                    }
                    _ => {}
                }
            }
            if before == (joined.len(), params.iter().count()) {
                return joined;
            }
        }
    };
    (0..program.tables.len()).map(joined_to).collect()
}

/// For each table, whether code may use the set of entries that its lookups can return for unknown keys.
pub fn driving_tables(program: &Program) -> Vec<bool> {
    candidates(program).iter().map(|joined| !joined.is_empty()).collect()
}

/// For each table, whether it may be joined to another table's rows, if all its entries are known.
pub fn joined(program: &Program) -> Vec<bool> {
    let mut joined = vec![false; program.tables.len()];
    candidates(program).into_iter().flatten().for_each(|table| joined[table.index()] = true);
    joined
}

/// The materialised joins of one compilation.
#[derive(Default)]
pub(crate) struct Joins {
    /// [`candidates`].
    candidates: Vec<Vec<TableId>>,
    /// The rows by driving table; `None` if nothing is joined to it.
    rows: RefCell<Vec<(TableId, Option<Rows>)>>,
}

impl Joins {
    pub fn new(program: &Program) -> Joins {
        Joins { candidates: candidates(program), rows: RefCell::default() }
    }

    /// The memory that the code reads, which must live as long as the code.
    pub fn into_memory(self) -> Vec<Box<[Line]>> {
        self.rows.into_inner().into_iter().filter_map(|(_, rows)| Some(rows?.memory)).collect()
    }
}

/// A cache line of rows.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; ROW_BYTES_MAX]);

/// The rows of a driving table.
#[derive(Debug)]
struct Rows {
    memory: Box<[Line]>,
    /// Bytes of a row, and how many of them are used.
    size: usize,
    used: usize,
    /// The address of the driving table's first entry; the logarithm of a row's size over an entry's.
    first: u64,
    up: u32,
    /// The action call of each row's entry; none where there is no entry.
    calls: Calls,
    columns: Vec<Column>,
}

/// The action calls of rows.
#[derive(Debug)]
struct Calls {
    /// By row: the action, and the index of its first argument in `args`.
    rows: Vec<Option<(u32, u32)>>,
    /// The lowest word of each argument.
    args: Vec<u64>,
}

impl Calls {
    fn new(count: usize) -> Calls {
        Calls { rows: vec![None; count], args: Vec::new() }
    }

    fn set(&mut self, row: usize, call: &ActionCall) {
        self.rows[row] = Some((call.action, self.args.len() as u32));
        let low = |arg: &Bits| arg.to_u64().unwrap_or_else(|| const_words(arg)[0]);
        self.args.extend(call.args.iter().map(low));
    }

    /// The argument of a row for a parameter of `action`; `None` if the row runs another action.
    fn arg(&self, row: usize, action: u32, param: u32) -> Option<u64> {
        let (_, first) = self.rows[row].filter(|(runs, _)| *runs == action)?;
        self.args.get((first + param) as usize).copied()
    }
}

/// A joined table's part of the rows.
#[derive(Debug)]
struct Column {
    table: TableId,
    keys: Vec<Key>,
    /// Bytes from the row's start.
    at: usize,
    /// Whether rows hold copies of entries instead of their addresses.
    is_copied: bool,
    /// Whether some row has a miss.
    may_miss: bool,
    /// The action that all hits run, if it is the same.
    action: Option<u32>,
    /// By row; none for misses, and for rows whose packets do not look this table up.
    calls: Calls,
}

/// A field of a joined table's key.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    Constant(u64),
    Param { table: TableId, action: u32, param: u32 },
}

/// Which SSA values of a function come from rows.
#[derive(Default)]
pub(crate) struct JoinedValues {
    /// Pointers to entries.
    data: HashMap<Value, Data>,
    /// Parameters: the row's driving table, the row's address, and the parameter.
    params: HashMap<Value, (TableId, Value, Key)>,
}

/// An entry that a row holds, or whose address it holds.
#[derive(Clone, Copy, Debug)]
struct Data {
    driver: TableId,
    row: Value,
    /// The entry's table.
    table: TableId,
    /// Bytes from the row's start; `None` if the row holds its address only.
    at: Option<i64>,
}

/// Most instructions of an expression that is precomputed in rows.
const FOLDED_MAX: usize = 32;
/// Bytes of rows kept for precomputed values: two Ethernet addresses.
const FOLDED_BYTES: usize = 12;

impl Rows {
    /// The rows of a driving table with these results; `more` bytes are reserved for joined tables. `None` if a row
    /// would be too long.
    fn new(results: &ResultEntries, layout: &EntryLayout, more: usize) -> Option<Rows> {
        let (stride, used) = (results.stride as usize, layout.sizes.iter().copied().max()? as usize);
        let mut size = stride;
        while size < used + more + FOLDED_BYTES && 2 * size <= ROW_BYTES_MAX {
            size *= 2;
        }
        let count = results.places as usize;
        if size > ROW_BYTES_MAX {
            return None;
        }
        let mut rows = Rows {
            memory: vec![Line([0; ROW_BYTES_MAX]); (count * size).div_ceil(ROW_BYTES_MAX)].into(),
            size,
            used,
            first: results.first.addr() as u64,
            up: (size / stride).ilog2(),
            calls: Calls::new(count),
            columns: Vec::new(),
        };
        let mut bytes = [0; ROW_BYTES_MAX];
        for entry in &results.entries {
            let place = results.place(entry);
            let size = copy_to(entry, layout, &mut bytes)?;
            rows.write(place, 0, &bytes[..size]);
            if let Some(call) = &entry.call {
                rows.calls.set(place, call);
            }
        }
        Some(rows)
    }

    /// Writes bytes of a row. Rows whose size does not divide a cache line may lie across two.
    fn write(&mut self, row: usize, at: usize, bytes: &[u8]) {
        for (i, byte) in (row * self.size + at..).zip(bytes) {
            self.memory[i / ROW_BYTES_MAX].0[i % ROW_BYTES_MAX] = *byte;
        }
    }

    fn read(&self, row: usize, at: usize, bytes: usize) -> u64 {
        let byte = |i: usize| u64::from(self.memory[i / ROW_BYTES_MAX].0[i % ROW_BYTES_MAX]);
        let first = row * self.size + at;
        (first..first + bytes).rev().fold(0, |word, i| word << 8 | byte(i))
    }

    /// The constant to which the entry's address, shifted, is added to get the row's address.
    fn base(&self) -> u64 {
        (self.memory.as_ptr().addr() as u64).wrapping_sub(self.first << self.up)
    }

    /// The value of a key field in a row; `None` if the row's packets do not look the table up.
    fn key(&self, row: usize, key: &Key) -> Option<u64> {
        let (table, action, param) = match key {
            Key::Constant(value) => return Some(*value),
            Key::Param { table, action, param } => (*table, *action, *param),
        };
        let calls = self.columns.iter().find(|c| c.table == table).map_or(&self.calls, |column| &column.calls);
        calls.arg(row, action, param)
    }

    /// Joins a table with these rules. `None` if it has masks or does not fit.
    fn join(
        &mut self,
        table: TableId,
        keys: Vec<Key>,
        rules: &[Rule],
        key_layout: &KeyLayout,
        layout: &EntryLayout,
    ) -> Option<()> {
        if rules.iter().any(|rule| rule.mask.iter().any(|word| *word != u64::MAX)) {
            return None;
        }
        let by_key = ByKey::new(rules);
        let mut words = vec![0; key_layout.bytes as usize / 8];
        let mut found = |row: usize| -> Option<Option<&EntryShape>> {
            words.fill(0);
            for (field, key) in key_layout.fields.iter().zip(&keys) {
                words[(field.offset / 8) as usize] |= self.key(row, key)? << (8 * (field.offset % 8));
            }
            Some(by_key.get(&words))
        };
        let found: Vec<Option<Option<&EntryShape>>> = (0..self.calls.rows.len()).map(&mut found).collect();
        let hits = || found.iter().flatten().flatten().copied();
        let mut bytes = [0; ROW_BYTES_MAX];
        // Bytes of the longest copy, if all entries can be copied to rows.
        let longest = hits().try_fold(0, |most: usize, hit| Some(most.max(copy_to(hit, layout, &mut bytes)?)));
        let is_copied = longest.is_some();
        let action_bytes = layout.action_bytes as usize;
        let may_miss = found.iter().any(|found| matches!(found, Some(None)));
        let action = common_action(hits());
        // An action that is the same everywhere is never read: it may overlap what precedes it.
        let left_out = if is_copied && !may_miss && action.is_some() { action_bytes } else { 0 };
        let size = longest.map_or(8, |longest| longest.max(action_bytes));
        let at = if is_copied { self.used - left_out } else { self.used.next_multiple_of(8) };
        if at + size > self.size {
            return None;
        }
        let mut calls = Calls::new(found.len());
        for (row, found) in found.iter().enumerate() {
            let Some(found) = found else { continue };
            if let Some(call) = found.and_then(|entry| entry.call.as_ref()) {
                calls.set(row, call);
            }
            let size = match found {
                Some(entry) if is_copied => copy_to(entry, layout, &mut bytes)?,
                None if is_copied => {
                    bytes[..action_bytes].copy_from_slice(&layout.no_action().to_le_bytes()[..action_bytes]);
                    action_bytes
                }
                found => {
                    bytes[..8].copy_from_slice(&found.map_or(0, |entry| entry.entry as u64).to_le_bytes());
                    8
                }
            };
            self.write(row, at + left_out, &bytes[left_out..size]);
        }
        let column = Column { table, keys, at, is_copied, may_miss, action, calls };
        self.used = at + size;
        self.columns.push(column);
        Some(())
    }
}

/// Entries by their key.
enum ByKey<'a> {
    /// Dense keys of one word: the first key, and entries by distance from it.
    DenseIndex(u64, Vec<Option<&'a EntryShape>>),
    Any(HashMap<&'a [u64], &'a EntryShape>),
}

impl ByKey<'_> {
    fn new(rules: &[Rule]) -> ByKey<'_> {
        let one_word = rules.iter().all(|rule| rule.value.len() == 1);
        let keys = || rules.iter().filter(|_| one_word).map(|rule| rule.value[0]);
        match keys().min().zip(keys().max()) {
            Some((first, last)) if last - first < 4 * rules.len() as u64 => {
                let mut all = vec![None; (last - first) as usize + 1];
                rules.iter().for_each(|rule| all[(rule.value[0] - first) as usize] = Some(&rule.entry));
                ByKey::DenseIndex(first, all)
            }
            _ => ByKey::Any(rules.iter().map(|rule| (&rule.value[..], &rule.entry)).collect()),
        }
    }

    fn get(&self, key: &[u64]) -> Option<&EntryShape> {
        match self {
            ByKey::DenseIndex(first, all) => {
                let at = key[0].checked_sub(*first).and_then(|at| usize::try_from(at).ok())?;
                all.get(at).copied().flatten()
            }
            ByKey::Any(all) => all.get(key).copied(),
        }
    }
}

// The driving table.
impl Translator<'_, '_> {
    /// The address of the row of a driving table's entry, to be used as the entry; for other tables the entry itself.
    /// For hits only.
    pub fn row_of(&mut self, table: TableId, entry: Value) -> Value {
        let known = self.joins.rows.borrow().iter().any(|(driver, _)| *driver == table);
        if !known {
            let rows = self.new_rows(table);
            self.joins.rows.borrow_mut().push((table, rows));
        }
        let place =
            self.joins.rows.borrow().iter().find_map(|(driver, rows)| {
                rows.as_ref().filter(|_| *driver == table).map(|rows| (rows.base(), rows.up))
            });
        let Some((base, up)) = place else { return entry };
        let far = self.b.ins().ishl_imm_u(entry, i64::from(up));
        let base = self.iconst(base);
        let row = self.b.ins().iadd(base, far);
        self.joined.data.insert(row, Data { driver: table, row, table, at: Some(0) });
        row
    }

    fn new_rows(&self, driver: TableId) -> Option<Rows> {
        let results = self.shape(driver)?.results.as_ref().filter(|_| self.options.has(Optimisation::JoinedTables))?;
        let more = |table: &TableId| {
            let binding = self.bindings.tables.get(table.index())?;
            self.may_join(*table, binding).then(|| (binding.entry.bytes_max() - binding.entry.action_bytes) as usize)
        };
        let more: Vec<usize> = self.joins.candidates[driver.index()].iter().filter_map(more).collect();
        let layout = &self.bindings.tables.get(driver.index())?.entry;
        if more.is_empty() { None } else { Rows::new(results, layout, more.iter().sum()) }
    }

    /// Whether a table's entries can be joined to rows.
    fn may_join(&self, table: TableId, binding: &TableBinding) -> bool {
        binding.select.is_none()
            && matches!(binding.engine, EngineKind::ExactInline | EngineKind::DirectIndex)
            && self.shape(table).is_some_and(|shape| shape.rules.is_some())
    }

    /// Records that a value is an action parameter, if it was loaded from a row.
    pub fn note_param(&mut self, data: Value, table: TableId, action: u32, param: u32, val: &Val) {
        let data = self.b.func.dfg.resolve_aliases(data);
        if let (Val::Word(word), Some(from)) = (val, self.joined.data.get(&data))
            && from.table == table
        {
            self.joined.params.insert(*word, (from.driver, from.row, Key::Param { table, action, param }));
        }
    }
}

// Joined tables.
impl Translator<'_, '_> {
    /// A lookup that rows answer, because its key consists of constants and a row's parameters; `None` for others.
    pub(crate) fn joined(&mut self, table: TableId, binding: &TableBinding, keys: &[Operand]) -> Option<Found> {
        if self.joined.params.is_empty() || !self.may_join(table, binding) {
            return None;
        }
        let mut from: Option<(TableId, Value)> = None;
        let mut parts = Vec::new();
        for key in keys {
            let Val::Word(word) = self.read(key) else { return None };
            let word = self.b.func.dfg.resolve_aliases(word);
            if let Some(value) = self.as_constant(word) {
                parts.push(Key::Constant(value as u64));
                continue;
            }
            let (driver, row, part) = self.joined.params.get(&word).cloned()?;
            if from.is_some_and(|from| from != (driver, row)) {
                return None;
            }
            from = Some((driver, row));
            parts.push(part);
        }
        let (driver, row) = from?;
        let (at, is_copied, may_miss, action) = {
            let mut joins = self.joins.rows.borrow_mut();
            let rows = joins.iter_mut().find(|(table, _)| *table == driver).and_then(|(_, rows)| rows.as_mut())?;
            if !rows.columns.iter().any(|column| column.table == table) {
                let rules = self.shape(table)?.rules.as_ref()?;
                // Entries' numbers are read only by direct counters and the like; without these they need not be kept.
                let index = binding.entry.index.filter(|_| !self.program.tables[table.index()].direct.is_empty());
                let layout = EntryLayout { index, ..binding.entry.clone() };
                rows.join(table, parts.clone(), rules, &binding.key, &layout)?;
            }
            let column = rows.columns.iter().find(|c| c.table == table && c.keys == parts)?;
            (column.at, column.is_copied, column.may_miss, column.action)
        };
        let entry = match is_copied {
            true => self.add_imm(row, at as u64),
            false => self.b.ins().load(I64, self.flags.entry, row, at as i32),
        };
        let miss = may_miss.then(|| {
            let is_hit = match is_copied {
                true => {
                    let action = self.entry_action(&binding.entry, entry);
                    self.icmp_imm(IntCC::NotEqual, action, binding.entry.no_action().into())
                }
                false => entry,
            };
            let (hit, miss) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(is_hit, hit, &[], miss, &[]);
            self.b.seal_block(hit);
            self.b.switch_to_block(hit);
            miss
        });
        self.joined.data.insert(entry, Data { driver, row, table, at: is_copied.then_some(at as i64) });
        Some(Found::Hit { entry, miss, action })
    }
}

// Expressions over a row.
impl Translator<'_, '_> {
    /// Loads from the row a value that several instructions compute from the row's bytes and constants; other values
    /// are returned as they are.
    pub fn folded_into_row(&mut self, value: Value) -> Value {
        if self.joined.params.is_empty() {
            return value;
        }
        let Some((term, (driver, row))) = self.term(value).filter(|(term, _)| term.others >= 2) else { return value };
        let ty = self.b.func.dfg.value_type(value);
        let bytes = ty.bytes() as usize;
        let (at, values) = match self.joins.rows.borrow().iter().find(|(table, _)| *table == driver) {
            Some((_, Some(rows))) if rows.used + bytes <= rows.size => {
                let values: Vec<u64> = (0..rows.calls.rows.len()).map(|i| term.in_row(rows, i)).collect();
                (rows.used, values)
            }
            _ => return value,
        };
        if let Some((_, Some(rows))) = self.joins.rows.borrow_mut().iter_mut().find(|(table, _)| *table == driver) {
            for (i, value) in values.iter().enumerate() {
                rows.write(i, at, &value.to_le_bytes()[..bytes]);
            }
            rows.used += bytes;
        }
        self.b.ins().load(ty, self.flags.entry, row, at as i32)
    }

    /// The constant that an expression over a row has in all rows, if it is the same.
    pub fn same_in_rows(&self, value: Value) -> Option<u64> {
        if self.joined.params.is_empty() {
            return None;
        }
        let (term, (driver, _)) = self.term(value)?;
        let joins = self.joins.rows.borrow();
        let rows = joins.iter().find(|(table, _)| *table == driver).and_then(|(_, rows)| rows.as_ref())?;
        let mut there = (0..rows.calls.rows.len()).filter(|i| rows.calls.rows[*i].is_some());
        let first = term.in_row(rows, there.next()?);
        there.all(|i| term.in_row(rows, i) == first).then_some(first)
    }

    /// The expression by which a value is computed from a row's bytes and constants, with the row; `None` for other
    /// values.
    fn term(&self, value: Value) -> Option<(Term, (TableId, Value))> {
        let mut term = Term::default();
        self.extend_term(&mut term, value)?;
        let row = term.row?;
        Some((term, row))
    }

    /// Appends the steps that compute a value; returns the index of the last.
    fn extend_term(&self, term: &mut Term, value: Value) -> Option<usize> {
        let dfg = &self.b.func.dfg;
        let value = dfg.resolve_aliases(value);
        let bits = dfg.value_type(value).bits();
        // Counted before descending, since the expression may be deep.
        term.instructions += 1;
        if term.instructions > FOLDED_MAX || bits > 64 {
            return None;
        }
        let step = match dfg.insts[dfg.value_def(value).inst()?] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Step::Constant(imm.bits() as u64),
            InstructionData::Unary { opcode: Opcode::Uextend | Opcode::Ireduce, arg } => {
                Step::Same(self.extend_term(term, arg)?)
            }
            InstructionData::Unary { opcode: Opcode::Bswap, arg } => {
                term.others += 1;
                Step::Swapped(self.extend_term(term, arg)?)
            }
            InstructionData::Binary { opcode, args: [a, b] } => {
                let (a, b) = (self.extend_term(term, a)?, self.extend_term(term, b)?);
                term.others += 1;
                use Opcode::{Band, Bor, Bxor, Iadd, Ishl, Ushr};
                matches!(opcode, Band | Bor | Bxor | Iadd | Ishl | Ushr).then_some(Step::Binary(opcode, a, b))?
            }
            InstructionData::IntCompare { cond, args: [a, b], .. } => {
                let (a, b) = (self.extend_term(term, a)?, self.extend_term(term, b)?);
                let signed = cond != cond.unsigned();
                (!signed).then_some(Step::Compare(cond, a, b))?
            }
            InstructionData::Load { opcode, arg, offset, .. } => {
                let from = self.joined.data.get(&dfg.resolve_aliases(arg))?;
                if term.row.is_some_and(|row| row != (from.driver, from.row)) {
                    return None;
                }
                term.row = Some((from.driver, from.row));
                let bytes = match opcode {
                    Opcode::Load => (bits / 8) as usize,
                    Opcode::Uload8 => 1,
                    Opcode::Uload16 => 2,
                    Opcode::Uload32 => 4,
                    _ => return None,
                };
                let at = usize::try_from(from.at? + i64::from(i32::from(offset))).ok()?;
                let joins = self.joins.rows.borrow();
                let rows = joins.iter().find(|(table, _)| *table == from.driver).and_then(|(_, rows)| rows.as_ref())?;
                (at + bytes <= rows.size).then_some(Step::Load(at, bytes))?
            }
            _ => return None,
        };
        term.steps.push((step, bits));
        Some(term.steps.len() - 1)
    }
}

/// An expression over a row: steps over the results of earlier steps, each with the width of its result in bits.
#[derive(Default)]
struct Term {
    steps: Vec<(Step, u32)>,
    /// Steps so far, including those being visited.
    instructions: usize,
    /// Instructions that cannot be part of a load.
    others: usize,
    row: Option<(TableId, Value)>,
}

#[derive(Clone, Copy)]
enum Step {
    Constant(u64),
    Same(usize),
    Swapped(usize),
    Binary(Opcode, usize, usize),
    Compare(IntCC, usize, usize),
    /// So many bytes, from this offset in the row: offset, bytes.
    Load(usize, usize),
}

impl Term {
    /// The expression's value in a row.
    fn in_row(&self, rows: &Rows, row: usize) -> u64 {
        let mut values = [0u64; FOLDED_MAX];
        for (i, (step, bits)) in self.steps.iter().enumerate() {
            let word = match *step {
                Step::Constant(value) => value,
                Step::Same(a) => values[a],
                Step::Swapped(a) => values[a].swap_bytes() >> (64 - bits),
                Step::Binary(opcode, a, b) => {
                    let (a, b) = (values[a], values[b]);
                    match opcode {
                        Opcode::Band => a & b,
                        Opcode::Bor => a | b,
                        Opcode::Bxor => a ^ b,
                        Opcode::Iadd => a.wrapping_add(b),
                        Opcode::Ishl => a << (b % u64::from(*bits)),
                        _ => a >> (b % u64::from(*bits)),
                    }
                }
                Step::Compare(cond, a, b) => {
                    let (a, b) = (values[a], values[b]);
                    u64::from(match cond {
                        IntCC::Equal => a == b,
                        IntCC::NotEqual => a != b,
                        IntCC::UnsignedLessThan => a < b,
                        IntCC::UnsignedLessThanOrEqual => a <= b,
                        IntCC::UnsignedGreaterThan => a > b,
                        _ => a >= b,
                    })
                }
                Step::Load(at, bytes) => rows.read(row, at, bytes),
            };
            values[i] = if *bits < 64 { word & ((1 << bits) - 1) } else { word };
        }
        values[self.steps.len() - 1]
    }
}
