//! Table entries as generators make them: numbers, in one form for P4 and C.
//!
//! An entry's `kind` is an index into its workload's list of `"table.action"` names, the same list that the program's C
//! reference has. [`Kinds`] resolves the list for a P4 program; entries then go directly to its state, without text.
//!
//! Programs without a C reference have entries by field name, of any width ([`add`]).

use abi::state::PipelineState;
use anyhow::{Context, Result, anyhow, bail};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::TableId;
use ir::Program;

/// Most key fields or action parameters of an entry.
pub const FIELDS_MAX: usize = 8;

/// An entry, with the layout of `struct entry` in `bench/reference/reference.h`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Index into the workload's kinds.
    pub kind: u32,
    /// The highest priority wins, in tables with ternary keys.
    pub priority: i32,
    /// Prefix length of the LPM field.
    pub prefix_len: u32,
    /// Reserved; zero.
    pub reserved: u32,
    /// One number per key field, in order.
    pub key: [u64; FIELDS_MAX],
    /// One mask per key field.
    pub mask: [u64; FIELDS_MAX],
    /// One number per parameter.
    pub args: [u64; FIELDS_MAX],
}

fn padded(values: &[u64]) -> [u64; FIELDS_MAX] {
    let mut all = [0; FIELDS_MAX];
    all[..values.len()].copy_from_slice(values);
    all
}

impl Entry {
    /// An entry with exact keys.
    pub fn exact(kind: u32, key: &[u64], args: &[u64]) -> Entry {
        Entry { kind, key: padded(key), mask: [u64::MAX; FIELDS_MAX], args: padded(args), ..Entry::default() }
    }

    /// An entry with one LPM field; the others are exact.
    pub fn lpm(kind: u32, key: &[u64], prefix_len: u32, args: &[u64]) -> Entry {
        Entry { prefix_len, ..Entry::exact(kind, key, args) }
    }

    /// An entry with ternary keys.
    pub fn ternary(kind: u32, priority: i32, key: &[u64], mask: &[u64], args: &[u64]) -> Entry {
        Entry { priority, mask: padded(mask), ..Entry::exact(kind, key, args) }
    }
}

/// The table and action of a kind.
struct Target {
    table: TableId,
    keys: Vec<(MatchKind, u32)>,
    action: u32,
    params: Vec<u32>,
}

/// The kinds of a workload, resolved for a program.
pub struct Kinds(Vec<Target>);

fn is_named(full: &str, name: &str) -> bool {
    full == name || full.strip_suffix(name).is_some_and(|before| before.ends_with('.'))
}

impl Kinds {
    /// Resolves `"table.action"` names.
    ///
    /// # Errors
    /// If a name has another form, or the program has no such table or action.
    pub fn new(program: &Program, names: &[&str]) -> Result<Kinds> {
        let target = |name: &&str| {
            let (table, action) = name.rsplit_once('.').context("a kind is written table.action")?;
            let at = program.tables.iter().position(|t| is_named(&t.name, table));
            let at = at.with_context(|| format!("{} has no table `{table}`", program.name))?;
            let t = &program.tables[at];
            let found = t.actions.iter().position(|a| is_named(&program.actions[a.action.index()].name, action));
            let found = found.with_context(|| format!("table `{table}` has no action `{action}`"))?;
            let params = &program.actions[t.actions[found].action.index()].params;
            if t.keys.len().max(params.len()) > FIELDS_MAX || t.keys.iter().any(|k| k.width > 64) {
                bail!("`{name}` has more or wider fields than entries of the benchmark can have");
            }
            Ok(Target {
                table: TableId::from_index(at),
                keys: t.keys.iter().map(|k| (k.kind, k.width)).collect(),
                action: found as u32,
                params: params.iter().map(|p| p.1).collect(),
            })
        };
        Ok(Kinds(names.iter().map(target).collect::<Result<_>>()?))
    }

    /// The entry's table, and the entry in the control plane's form.
    pub fn table_entry(&self, entry: &Entry) -> (TableId, TableEntry) {
        let target = &self.0[entry.kind as usize];
        let bits = |width: u32, value: u64| Bits::new(width, u128::from(value));
        let mut priority = 0;
        let key = target.keys.iter().zip(entry.key).zip(entry.mask).map(|((&(kind, width), value), mask)| {
            if kind.needs_priority() {
                priority = entry.priority;
            }
            match kind {
                MatchKind::Exact => KeyMatch::Exact(bits(width, value)),
                MatchKind::Lpm => KeyMatch::Lpm { value: bits(width, value), prefix_len: entry.prefix_len },
                MatchKind::Ternary => KeyMatch::Ternary { value: bits(width, value & mask), mask: bits(width, mask) },
                MatchKind::Optional => KeyMatch::Optional((mask != 0).then(|| bits(width, value))),
                MatchKind::Range => KeyMatch::Range { low: bits(width, value), high: bits(width, mask) },
            }
        });
        let key = key.collect();
        let args = target.params.iter().zip(entry.args).map(|(&width, value)| bits(width, value)).collect();
        let action = EntryAction::Call(ActionCall { action: target.action, args });
        (target.table, TableEntry { key, priority, action, idle_timeout_ns: 0 })
    }
}

/// The match of a key field.
#[derive(Clone, Copy, Debug)]
pub enum Is {
    /// The value.
    Exact(u128),
    /// A prefix and its length.
    Prefix(u128, u32),
    /// A value and its mask.
    Masked(u128, u128),
    /// The lowest and the highest value.
    Range(u128, u128),
}

/// The table with this name, or whose qualified name ends with it.
///
/// # Errors
/// If the program has no such table.
pub fn table(program: &Program, name: &str) -> Result<TableId> {
    let at = program.tables.iter().position(|t| is_named(&t.name, name));
    Ok(TableId::from_index(at.with_context(|| format!("{} has no table `{name}`", program.name))?))
}

/// A call of a table's action with these arguments.
///
/// # Errors
/// If the table has no such action.
pub fn call(program: &Program, table: TableId, name: &str, args: &[u128]) -> Result<ActionCall> {
    let t = &program.tables[table.index()];
    let found = t.actions.iter().position(|a| is_named(&program.actions[a.action.index()].name, name));
    let found = found.with_context(|| format!("table `{}` has no action `{name}`", t.name))?;
    let params = &program.actions[t.actions[found].action.index()].params;
    let args = params.iter().zip(args).map(|((_, width), v)| Bits::new(*width, *v)).collect();
    Ok(ActionCall { action: found as u32, args })
}

/// The key of an entry. Fields that are not named match any value; exact ones match zero.
///
/// # Errors
/// If a named field does not exist.
pub fn key(program: &Program, table: TableId, fields: &[(&str, Is)]) -> Result<Vec<KeyMatch>> {
    let keys = &program.tables[table.index()].keys;
    for (name, _) in fields {
        let known = keys.iter().any(|k| is_named(&k.name, name));
        anyhow::ensure!(known, "table `{}` has no field `{name}`", program.tables[table.index()].name);
    }
    let key = keys.iter().map(|k| {
        let bits = |v: u128| Bits::new(k.width, v);
        match (fields.iter().find(|f| is_named(&k.name, f.0)).map(|f| f.1), k.kind) {
            (Some(Is::Exact(v)), MatchKind::Exact) => KeyMatch::Exact(bits(v)),
            (Some(Is::Exact(v)), MatchKind::Optional) => KeyMatch::Optional(Some(bits(v))),
            (Some(Is::Exact(v)), MatchKind::Ternary) => KeyMatch::Ternary { value: bits(v), mask: Bits::ones(k.width) },
            (Some(Is::Exact(v)), MatchKind::Range) => KeyMatch::Range { low: bits(v), high: bits(v) },
            (Some(Is::Prefix(v, len)), MatchKind::Lpm) => KeyMatch::Lpm { value: bits(v), prefix_len: len },
            (Some(Is::Range(low, high)), _) => KeyMatch::Range { low: bits(low), high: bits(high) },
            (Some(Is::Masked(v, m)), _) => KeyMatch::Ternary { value: bits(v & m), mask: bits(m) },
            (_, MatchKind::Optional) => KeyMatch::Optional(None),
            (_, MatchKind::Lpm) => KeyMatch::Lpm { value: bits(0), prefix_len: 0 },
            (_, MatchKind::Exact) => KeyMatch::Exact(bits(0)),
            (_, MatchKind::Range) => KeyMatch::Range { low: bits(0), high: Bits::ones(k.width) },
            (_, MatchKind::Ternary) => KeyMatch::Ternary { value: bits(0), mask: bits(0) },
        }
    });
    Ok(key.collect())
}

/// Adds an entry by the names of table, action and key fields, or suffixes of their qualified names.
///
/// # Errors
/// As [`table`], [`call`] and [`key`], or if the state refuses the entry.
pub fn add(
    program: &Program,
    state: &dyn PipelineState,
    (name, action): (&str, &str),
    priority: i32,
    fields: &[(&str, Is)],
    args: &[u128],
) -> Result<()> {
    let at = table(program, name)?;
    let entry = TableEntry {
        key: key(program, at, fields)?,
        priority,
        action: EntryAction::Call(call(program, at, action, args)?),
        idle_timeout_ns: 0,
    };
    state.insert(at, &entry).map_err(|e| anyhow!("table `{name}` refuses an entry: {e:?}"))
}
