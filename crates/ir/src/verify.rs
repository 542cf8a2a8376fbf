//! The verifier: checks the rules that passes and engines rely on.
//!
//! Runs after lowering, around every pass in debug builds and tests, and before a program is compiled or interpreted. A
//! diagnostic is a bug in the code that made the program, never an error of the P4 author. It checks that:
//!
//! - every id is in range; names are unique; constants and slots have exactly the widths that operations require;
//! - headers: each slot has at most one role, which agrees with its kind; fixed fields add up to whole bytes; there is
//!   at most one varbit;
//! - tables, actions, entries and externs are consistent; entry points name stages, and their last stage never ends in
//!   `next`;
//! - match fields of the OpenFlow architecture lie in slots and have at most 128 bits, and their names and numbers are
//!   unique;
//! - operations are in stages of the right kind; branch targets exist; switch cases differ;
//! - temporaries are assigned before they are read on every path of their stage;
//! - parsers extract, advance and look ahead only over bits whose presence a `has_bits` with a constant has established
//!   on every path. Amounts known only at run time, and conditions that reach the branch by more than `mov` and `and`,
//!   are not checked (module `packet_bounds`).
//!
//! Not checked, because it needs more than local reasoning: that the fields of invalid headers are zero; that a handle
//! comes from the table it is used with; that `param` follows a switch on that table's action; that varbit amounts are
//! multiples of 8 and at most the maximum.
//!
//! Codes are `E072x` and `E073x`. The time is linear in the program, except for the two dataflow analyses, which are
//! linear in practice.
//!
//! Tests: `tests/verify.rs`.

mod code;
mod flow;
mod openflow;

use crate::op::HashAlgorithm;
use crate::print::key_match_text;
use crate::program::{EntryKind, Expiry, ExternKind, Program, SlotKind, Table, TableAction};
use base::Span;
use base::bits::MAX_WIDTH;
use base::diag::Diagnostic;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind};
use base::ids::{ExternId, SlotId, TableId};
use std::collections::{HashMap, HashSet};

/// Verifies a program. Returns all violations; none if it is well-formed.
pub fn verify(program: &Program) -> Vec<Diagnostic> {
    let mut v = Verifier { program, diags: Vec::new() };
    v.names();
    v.slots_and_headers();
    v.tables();
    v.externs();
    v.rest();
    for stage in &program.stages {
        code::check(&mut v, stage);
    }
    v.entries();
    if let Some(openflow) = &program.openflow {
        openflow::check(&mut v, openflow);
    }
    v.diags
}

struct Verifier<'a> {
    program: &'a Program,
    diags: Vec<Diagnostic>,
}

impl Verifier<'_> {
    fn error(&mut self, code: &'static str, message: impl Into<String>) {
        self.diags.push(Diagnostic::error(code, Span::NONE, message));
    }

    fn unique<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n str>) {
        let mut seen = HashSet::new();
        for name in names {
            if !seen.insert(name) {
                self.error("E0721", format!("two {what} are named `{name}`"));
            }
        }
    }

    fn names(&mut self) {
        let p = self.program;
        self.unique("slots", p.slots.iter().map(|s| s.name.as_str()));
        self.unique("headers", p.headers.iter().map(|h| h.name.as_str()));
        self.unique("actions", p.actions.iter().map(|a| a.name.as_str()));
        self.unique("tables", p.tables.iter().map(|t| t.name.as_str()));
        self.unique("externs", p.externs.iter().map(|e| e.name.as_str()));
        self.unique("stages", p.stages.iter().map(|s| s.name.as_str()));
        self.unique("drop reasons", p.drops.iter().map(String::as_str));
        self.unique("calculations", p.calculations.iter().map(|c| c.name.as_str()));
        self.unique("errors", p.errors.iter().map(String::as_str));
        self.unique("controller headers", p.controller_headers.iter().map(|h| h.name.as_str()));
    }

    fn width(&mut self, what: &str, width: u32) {
        if width == 0 || width > MAX_WIDTH {
            self.error("E0722", format!("{what} has {width} bits; 1 to {MAX_WIDTH} are possible"));
        }
    }

    fn slots_and_headers(&mut self) {
        let p = self.program;
        let mut roles: HashMap<SlotId, SlotKind> = HashMap::new();
        for (id, header) in p.headers.iter().enumerate() {
            let id = crate::HeaderId::from_index(id);
            let mut fixed = 0u64;
            let mut varbits = 0;
            let mut role = |v: &mut Self, slot: SlotId, kind: SlotKind, width: Option<u32>| -> u32 {
                let Some(s) = p.slots.get(slot.index()) else {
                    v.error("E0720", format!("header `{}` has slot ?{}, which does not exist", header.name, slot.0));
                    return 0;
                };
                if let Some(other) = roles.insert(slot, kind) {
                    v.error("E0723", format!("slot `{}` is both {other:?} and {kind:?}", s.name));
                }
                if width.is_some_and(|w| w != s.width) {
                    v.error("E0722", format!("slot `{}` is {kind:?} and has {} bits", s.name, s.width));
                }
                s.width
            };
            for field in &header.fields {
                let width = role(self, field.slot, SlotKind::Field(id), None);
                match field.varbit_length {
                    None => fixed += u64::from(width),
                    Some(length) => {
                        varbits += 1;
                        role(self, length, SlotKind::VarbitLength(id), Some(32));
                    }
                }
            }
            role(self, header.valid, SlotKind::Valid(id), Some(1));
            if !fixed.is_multiple_of(8) {
                self.error("E0723", format!("header `{}` has {fixed} fixed bits, not a multiple of 8", header.name));
            }
            if varbits > 1 {
                self.error("E0723", format!("header `{}` has {varbits} varbit fields", header.name));
            }
        }
        for (id, slot) in p.slots.iter().enumerate() {
            self.width(&format!("slot `{}`", slot.name), slot.width);
            let role = roles.get(&SlotId::from_index(id)).copied();
            let free =
                matches!(slot.kind, SlotKind::HeaderPart | SlotKind::Metadata | SlotKind::Local | SlotKind::Temp);
            if role.map_or(!free, |role| role != slot.kind) {
                let role = role.map_or("no part of a header".to_string(), |r| format!("{r:?}"));
                self.error("E0723", format!("slot `{}` says it is {:?} but is {role}", slot.name, slot.kind));
            }
        }
    }

    fn tables(&mut self) {
        for action in &self.program.actions {
            for (name, width) in &action.params {
                self.width(&format!("parameter `{name}` of action `{}`", action.name), *width);
            }
        }
        for (id, table) in self.program.tables.iter().enumerate() {
            self.table(TableId::from_index(id), table);
        }
    }

    fn table(&mut self, id: TableId, table: &Table) {
        let p = self.program;
        let name = &table.name;
        for key in &table.keys {
            self.width(&format!("key `{}` of table `{name}`", key.name), key.width);
        }
        let lpm = table.keys.iter().filter(|k| k.kind == MatchKind::Lpm).count();
        if lpm > 1 && !table.keys.iter().any(|k| k.kind.needs_priority()) {
            self.error("E0724", format!("table `{name}` has {lpm} lpm keys: which prefix is the longest?"));
        }
        self.actions(&format!("table `{name}`"), &table.actions);
        if let Some(dynamic) = &table.dynamic {
            let all_exact = !table.keys.is_empty() && table.keys.iter().all(|k| k.kind == MatchKind::Exact);
            if !all_exact || table.implementation.is_some() || table.value_set || table.const_entries {
                self.error("E0724", format!("packets cannot change entries of table `{name}`"));
            }
            if table.idle_timeout != (dynamic.expiry != Expiry::Never) {
                self.error(
                    "E0724",
                    format!("table `{name}` must have idle timeouts if and only if its entries expire"),
                );
            }
        }
        if table.value_set && table.actions.len() != 1 {
            self.error("E0724", format!("value set `{name}` has {} actions, not one", table.actions.len()));
        }
        self.call(&format!("the default action of table `{name}`"), table, &table.default_action, |a| !a.table_only);
        for entry in &table.entries {
            let what = format!("an entry of table `{name}`");
            if entry.key.len() != table.keys.len() {
                self.error("E0724", format!("{what} has {} key fields of {}", entry.key.len(), table.keys.len()));
            }
            for (key, field) in table.keys.iter().zip(&entry.key) {
                if !key_matches(key.width, key.kind, field) {
                    let message =
                        format!("{what} has `{}` for {} key `{}`", key_match_text(field), key.kind.name(), key.name);
                    self.error("E0724", message);
                }
            }
            match &entry.action {
                EntryAction::Call(call) => self.call(&what, table, call, |a| !a.default_only),
                EntryAction::Member(_) | EntryAction::Group(_) if table.implementation.is_some() => {}
                EntryAction::Member(_) | EntryAction::Group(_) => {
                    self.error("E0724", format!("{what} names a member or group, but the table has no action profile"));
                }
            }
        }
        if let Some(ext) = table.implementation {
            match p.externs.get(ext.index()).map(|e| &e.kind) {
                Some(ExternKind::ActionProfile { actions, .. } | ExternKind::ActionSelector { actions, .. }) => {
                    if !actions.iter().map(|a| a.action).eq(table.actions.iter().map(|a| a.action)) {
                        self.error("E0724", format!("table `{name}` and its action profile have different actions"));
                    }
                }
                Some(_) => {
                    self.error("E0724", format!("the implementation of table `{name}` is not an action profile"))
                }
                None => self.extern_range(&format!("table `{name}`"), ext),
            }
        }
        for &ext in &table.direct {
            match p.externs.get(ext.index()).map(|e| &e.kind) {
                Some(ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. }) if *direct == Some(id) => {}
                Some(_) => self.error(
                    "E0724",
                    format!("`{}` is not a direct counter or meter of table `{name}`", p.externs[ext.index()].name),
                ),
                None => self.extern_range(&format!("table `{name}`"), ext),
            }
        }
    }

    fn extern_range(&mut self, what: &str, ext: ExternId) {
        self.error("E0720", format!("{what} names extern ?{}, which does not exist", ext.0));
    }

    fn actions(&mut self, what: &str, actions: &[TableAction]) {
        for action in actions {
            if action.action.index() >= self.program.actions.len() {
                self.error("E0720", format!("{what} has action ?{}, which does not exist", action.action.0));
            }
        }
    }

    /// Checks the action of groups without members.
    fn empty_call(&mut self, what: &str, actions: &[TableAction], call: &ActionCall) {
        let Some(listed) = actions.get(call.action as usize) else {
            return self
                .error("E0720", format!("{what} has action {} of {} for empty groups", call.action, actions.len()));
        };
        let Some(action) = self.program.actions.get(listed.action.index()) else { return };
        let fits = action.params.iter().map(|(_, width)| *width).eq(call.args.iter().map(base::Bits::width));
        if !fits {
            let message = format!("{what} gives `{}` other parameters than it has, for empty groups", action.name);
            self.error("E0724", message);
        }
    }

    fn call(&mut self, what: &str, table: &Table, call: &ActionCall, allowed: impl Fn(&TableAction) -> bool) {
        let Some(entry) = table.actions.get(call.action as usize) else {
            return self.error("E0720", format!("{what} is action {} of {}", call.action, table.actions.len()));
        };
        let Some(action) = self.program.actions.get(entry.action.index()) else { return };
        if !allowed(entry) {
            self.error("E0724", format!("{what} may not be `{}`", action.name));
        }
        let widths = action.params.iter().map(|(_, w)| *w);
        if !call.args.iter().map(base::Bits::width).eq(widths) {
            self.error("E0724", format!("{what} has arguments that do not fit the parameters of `{}`", action.name));
        }
    }

    fn externs(&mut self) {
        for (id, ext) in self.program.externs.iter().enumerate() {
            let id = ExternId::from_index(id);
            let what = format!("extern `{}`", ext.name);
            match &ext.kind {
                ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. } => {
                    let Some(table) = direct else { continue };
                    match self.program.tables.get(table.index()) {
                        Some(table) if table.direct.contains(&id) => {}
                        Some(table) => {
                            self.error("E0725", format!("{what} is not in the list of its table `{}`", table.name));
                        }
                        None => self.error("E0720", format!("{what} names table ?{}, which does not exist", table.0)),
                    }
                }
                ExternKind::Register { width, initial, .. } => {
                    self.width(&what, *width);
                    if initial.width() != *width {
                        self.error("E0725", format!("{what} has {width} bits and starts at {initial}"));
                    }
                }
                ExternKind::ActionProfile { actions, .. } => self.actions(&what, actions),
                ExternKind::ActionSelector { actions, algorithm, hash_width, empty, .. } => {
                    self.actions(&what, actions);
                    if let Some(call) = empty {
                        self.empty_call(&what, actions, call);
                    }
                    if !(1..=64).contains(hash_width) {
                        self.error("E0725", format!("{what} uses {hash_width} bits of the hash; 1 to 64 are possible"));
                    }
                    if matches!(algorithm, HashAlgorithm::Random | HashAlgorithm::Calculation(_)) {
                        self.error(
                            "E0725",
                            format!("{what} cannot choose by `{}`: a flow would not stay together", algorithm.name()),
                        );
                    }
                }
                ExternKind::Digest { fields } => {
                    for (name, width) in fields {
                        self.width(&format!("field `{name}` of {what}"), *width);
                    }
                }
            }
        }
    }

    fn rest(&mut self) {
        let p = self.program;
        let mut seen = HashSet::new();
        for &(which, slot) in &p.intrinsics {
            if !seen.insert(which) {
                self.error("E0726", format!("intrinsic `{}` has two slots", which.name()));
            }
            match p.slots.get(slot.index()) {
                None => self.error("E0720", format!("intrinsic `{}` is slot ?{}", which.name(), slot.0)),
                Some(s) if s.width > 64 => {
                    self.error("E0726", format!("intrinsic `{}` has {} bits; 64 are possible", which.name(), s.width));
                }
                Some(s) if s.kind == SlotKind::Temp => {
                    self.error("E0726", format!("intrinsic `{}` is the temporary `{}`", which.name(), s.name));
                }
                Some(_) => {}
            }
        }
        let mut seen = HashSet::new();
        for (index, slots) in &p.field_lists {
            if !seen.insert(index) {
                self.error("E0726", format!("there are two field lists {index}"));
            }
            for slot in slots {
                match p.slots.get(slot.index()) {
                    None => self.error("E0720", format!("field list {index} has slot ?{}", slot.0)),
                    Some(s) if s.kind == SlotKind::Temp => {
                        self.error("E0726", format!("field list {index} has the temporary `{}`", s.name));
                    }
                    Some(_) => {}
                }
            }
        }
        if p.errors.first().is_some_and(|e| e != "NoError") {
            self.error("E0726", "error 0 is not `NoError`");
        }
    }

    /// Checks entry points. Runs after the stages have been checked, whose structure it needs.
    fn entries(&mut self) {
        let p = self.program;
        let mut seen = HashSet::new();
        for entry in &p.entries {
            let what = format!("entry `{}`", entry.kind.name());
            if !seen.insert(entry.kind) {
                self.error("E0726", format!("{what} is there twice"));
            }
            for stage in &entry.stages {
                if stage.index() >= p.stages.len() {
                    self.error("E0720", format!("{what} has stage ?{}, which does not exist", stage.0));
                }
            }
            match entry.stages.last().map(|s| p.stages.get(s.index())) {
                None => self.error("E0726", format!("{what} has no stages")),
                Some(Some(last)) if code::ends_in_next(last) => {
                    let message =
                        format!("{what} ends with stage `{}`, which does not always end in a fate", last.name);
                    self.error("E0726", message);
                }
                Some(_) => {}
            }
        }
        if !seen.contains(&EntryKind::Ingress) {
            self.error("E0726", "there is no entry `ingress`");
        }
    }
}

fn key_matches(width: u32, kind: MatchKind, field: &KeyMatch) -> bool {
    let fits = |v: &base::Bits| v.width() == width;
    match (kind, field) {
        (MatchKind::Exact, KeyMatch::Exact(v)) => fits(v),
        (MatchKind::Lpm, KeyMatch::Lpm { value, prefix_len }) => {
            let rest = width.checked_sub(*prefix_len);
            fits(value) && rest.is_some_and(|rest| value.lshr(rest.into()).shl(rest.into()) == *value)
        }
        (MatchKind::Ternary, KeyMatch::Ternary { value, mask }) => {
            fits(value) && fits(mask) && value.and(mask) == *value
        }
        (MatchKind::Range, KeyMatch::Range { low, high }) => fits(low) && fits(high) && low.ule(high),
        (MatchKind::Optional, KeyMatch::Optional(value)) => value.as_ref().is_none_or(fits),
        _ => false,
    }
}
