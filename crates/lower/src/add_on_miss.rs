//! Tables that packets modify: PNA's `add_on_miss`, `pna_idle_timeout` and the functions that belong to them, for every
//! architecture whose include file declares them.
//!
//! | P4 | becomes |
//! | --- | --- |
//! | `add_on_miss`, `pna_idle_timeout`, `idle_timeout_with_auto_delete` | [`ir::Dynamic`] |
//! | `add_entry`, `add_entry_if`, `replace_entry` | `AddEntry`, with the keys of the lookup |
//! | `restart_expire_timer`, `set_entry_expire_time`, `update_expire_info` (also `_if`) | `RestartTimer` |
//!
//! **Timers.** If no action of a table calls one of the timer functions, each hit restarts the entry's timer, as in
//! PSA. Otherwise only these functions do (PNA, "restart_expire_timer").
//!
//! **Annotations** of a table: `@expire_time_ms(10000, 30000)` lists the expire times, by profile number; the default
//! is [`EXPIRE_MS`]. With `@notify_expired` the control plane is notified of entries that expire. With `@evict_oldest`
//! a full table evicts an entry to make room for a new one.
//!
//! Specification: PNA, "Tables with add-on-miss capability", "Table entry idle timeout".

use crate::arch::ExternCall;
use crate::codes;
use crate::context::{Lowerer, TableInfo};
use crate::tree::Tree;
use crate::visit::{self, Node};
use base::Span;
use base::diag::Diagnostic;
use base::entry::MatchKind;
use ir::{BinOp, Dynamic, Expiry, Op, Operand, SlotId};
use sema::typed::{self, Callee, InstanceId, find_annotation};
use sema::{Type, Value};
use std::rc::Rc;

/// Default expire times in ms, of tables without `@expire_time_ms`; the same as those of DPDK's learner tables.
pub(crate) const EXPIRE_MS: [u32; 8] = [10_000, 30_000, 60_000, 120_000, 300_000, 43_200_000, 120_000, 120_000];
/// Limit on expire times: their profile numbers have eight bits.
const PROFILES_MAX: usize = 256;
/// Limit on an expire time in ms: 20 days, which a 32-bit clock can measure.
const EXPIRE_MS_MAX: u64 = 20 * 24 * 3600 * 1000;

/// Functions that restart an entry's timer.
const TIMERS: [&str; 4] =
    ["restart_expire_timer", "set_entry_expire_time", "set_entry_expire_time_if", "update_expire_info"];
/// Functions that add or replace entries: the name, and the index of the first argument that describes the entry.
const ADDS: [(&str, usize); 3] = [("add_entry", 0), ("add_entry_if", 1), ("replace_entry", 0)];

/// The table of the action that is being lowered.
#[derive(Clone)]
pub(crate) struct OfTable {
    table: typed::TableId,
    info: TableInfo,
    keys: Rc<[Operand]>,
    hit: SlotId,
    entry: SlotId,
    /// Index of the action in the table's list; `None` outside of its actions, such as in a `switch` on what an action
    /// did.
    listed: Option<usize>,
}

impl OfTable {
    pub fn new(table: typed::TableId, info: &TableInfo, keys: &[Operand], hit: SlotId, entry: SlotId) -> OfTable {
        OfTable { table, info: info.clone(), keys: keys.into(), hit, entry, listed: None }
    }

    /// The same table, while one of its actions is lowered.
    pub fn in_action(&self, listed: usize) -> OfTable {
        OfTable { listed: Some(listed), ..self.clone() }
    }
}

// Properties and annotations of tables.
impl Lowerer<'_> {
    /// Evaluates the properties and annotations by which packets may modify a table.
    pub fn dynamic_table(&mut self, table: &typed::Table, instance: InstanceId, id: ir::TableId) {
        let flag = |name: &str| {
            let property = table.property(name)?;
            self.p.eval(&property.value, Some(instance))?.as_bool()
        };
        let add_on_miss = flag("add_on_miss") == Some(true);
        let told = table.property("pna_idle_timeout");
        let told = told.and_then(|p| {
            self.member_name(&p.value.ty, self.p.eval(&p.value, Some(instance)).as_ref()).map(str::to_string)
        });
        let is_annotated = |name: &str| find_annotation(&table.annotations, name).is_some();
        let deletes = told.as_deref() == Some("AUTO_DELETE") || flag("idle_timeout_with_auto_delete") == Some(true);
        let notifies = told.as_deref() == Some("NOTIFY_CONTROL") || flag("support_timeout") == Some(true);
        let expiry = match (deletes, notifies) {
            (true, _) if is_annotated("notify_expired") => Expiry::DeleteAndNotify,
            (true, _) => Expiry::Delete,
            (false, true) => Expiry::Notify,
            (false, false) => Expiry::Never,
        };
        let has_timers = self.calls_timers(table);
        // If only the control plane adds entries and every hit restarts the timer, the table is an ordinary one.
        if !(add_on_miss || deletes || notifies && has_timers) {
            return;
        }
        let span = ["add_on_miss", "pna_idle_timeout", "idle_timeout_with_auto_delete"];
        let span = span.iter().find_map(|name| table.property(name)).map_or(table.span, |p| p.span);
        let described = &self.b.program().tables[id.index()];
        let other = table.keys.iter().find(|key| &*key.match_kind_name != "exact");
        let wrong = if let Some(key) = other {
            Some((key.span, format!("it has a key of kind `{}`", key.match_kind_name)))
        } else if described.keys.iter().any(|key| key.kind != MatchKind::Exact) || described.keys.is_empty() {
            Some((span, "it has no key".to_string()))
        } else if described.implementation.is_some() {
            Some((span, "it has an action profile".to_string()))
        } else if described.const_entries {
            Some((span, "its entries are constant".to_string()))
        } else {
            None
        };
        if let Some((at, why)) = wrong {
            let message = format!("packets cannot change entries of table `{}`: {why}", table.name);
            let diagnostic = Diagnostic::error(codes::NOT_DYNAMIC, at, message);
            let help = "a table with `add_on_miss`, or whose entries end by themselves, has `exact` keys and \
                        entries that run its actions";
            return self.report(diagnostic.help(help));
        }
        let expire_ms = self.expire_times(table);
        let dynamic = Dynamic {
            add_on_miss,
            expiry,
            restart_on_hit: expiry != Expiry::Never && !has_timers,
            expire_ms: if expiry == Expiry::Never { Vec::new() } else { expire_ms },
            evicts: is_annotated("evict_oldest"),
        };
        let described = &mut self.b.program_mut().tables[id.index()];
        described.idle_timeout = expiry != Expiry::Never;
        described.dynamic = Some(dynamic);
    }

    /// Whether an action of the table calls one of the timer functions.
    fn calls_timers(&self, table: &typed::Table) -> bool {
        let mut found = false;
        for listed in &table.actions {
            visit::block(&self.p.actions[listed.action.index()].body, &mut |node| {
                if let Node::Call(call) = node
                    && let Callee::ExternFunction(id) = &call.callee
                {
                    found |= TIMERS.contains(&&*self.p.extern_functions[id.index()].name);
                }
            });
        }
        found
    }

    fn expire_times(&mut self, table: &typed::Table) -> Vec<u32> {
        let Some(annotation) = find_annotation(&table.annotations, "expire_time_ms") else { return EXPIRE_MS.to_vec() };
        let times = annotation.values().unwrap_or_default();
        let time = |value: &Value| value.to_u64().filter(|ms| *ms <= EXPIRE_MS_MAX).map(|ms| ms as u32);
        let known: Option<Vec<u32>> = times.iter().map(time).collect();
        match known.filter(|times| (1..=PROFILES_MAX).contains(&times.len())) {
            Some(times) => times,
            None => {
                let message = "`@expire_time_ms` takes 1 to 256 times in milliseconds, each at most 20 days";
                let help = "as in `@expire_time_ms(5000, 300000)`; 0 is for entries that never end";
                self.report(Diagnostic::error(codes::NOT_DYNAMIC, annotation.span, message).help(help));
                EXPIRE_MS.to_vec()
            }
        }
    }
}

// Extern functions.
impl Lowerer<'_> {
    /// Lowers a call of one of the functions; `None` if `name` is not one of them.
    pub fn add_on_miss_function(&mut self, name: &str, call: &ExternCall<'_>) -> Option<Tree> {
        if let Some((_, first)) = ADDS.iter().find(|(add, _)| *add == name) {
            return Some(self.add_entry(name, *first, call));
        }
        if !TIMERS.contains(&name) {
            return None;
        }
        let Some(of) = self.timed_table(name, call.call.span) else { return Some(Tree::Nothing) };
        let number = |cx: &mut Self, i: usize| cx.b.resize_u(32, call.value(i).operand());
        let restart = |cx: &mut Self, expire: Option<Operand>| {
            cx.b.emit(Op::RestartTimer { table: of.info.table, hit: of.hit.into(), entry: of.entry, expire });
        };
        match name {
            "restart_expire_timer" => restart(self, None),
            "set_entry_expire_time" => {
                let expire = number(self, 0);
                restart(self, Some(expire));
            }
            "set_entry_expire_time_if" => {
                let expire = number(self, 1);
                self.only_if(call.value(0).operand(), |cx| restart(cx, Some(expire)));
            }
            _ => {
                let (cond, changes, expire) = (call.value(0).operand(), call.value(1).operand(), number(self, 2));
                self.only_if(cond, |cx| {
                    let not = cx.not(changes.clone());
                    cx.only_if(changes, |cx| restart(cx, Some(expire)));
                    cx.only_if(not, |cx| restart(cx, None));
                });
            }
        }
        Some(Tree::Nothing)
    }

    fn only_if(&mut self, cond: Operand, body: impl FnOnce(&mut Self)) {
        let done = self.split(cond);
        body(self);
        self.b.fall_through(done);
        self.b.switch_to(done);
    }

    /// The table to whose entry a timer function applies; reports an error if there is none.
    fn timed_table(&mut self, name: &str, span: Span) -> Option<OfTable> {
        let of = self.of_table.clone().filter(|of| of.listed.is_some());
        let expires = |of: &OfTable| {
            let dynamic = &self.b.program().tables[of.info.table.index()].dynamic;
            dynamic.as_ref().is_some_and(|d| d.expiry != Expiry::Never)
        };
        let message = match &of {
            Some(of) if expires(of) => return Some(of.clone()),
            Some(of) => {
                format!("`{name}` in an action of table `{}`, whose entries do not expire", self.table_name(of))
            }
            None => format!("`{name}` outside of a table's action"),
        };
        let help = "it is for the entry that was found, in an action of a table with \
                    `pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE` or `NOTIFY_CONTROL`";
        self.report(Diagnostic::error(codes::WRITES_NO_TABLE, span, message).help(help));
        None
    }

    fn table_name(&self, of: &OfTable) -> String {
        self.p.tables[of.table.index()].name.to_string()
    }

    /// Lowers `add_entry`, `add_entry_if` or `replace_entry`. The entry's arguments begin at index `first`; any
    /// argument before that is a condition.
    fn add_entry(&mut self, name: &str, first: usize, call: &ExternCall<'_>) -> Tree {
        let replace = name == "replace_entry";
        // The result: a Boolean says whether the call succeeded; a number is 1 if it failed.
        let is_bool = matches!(self.p.types.underlying(&call.call.result), Type::Bool);
        let width = self.scalar_width(&call.call.result).unwrap_or(0).max(1);
        let failed = self.b.temp(1);
        self.b.mov(failed, Operand::new_const(1, 1));
        if let Some((of, action, args)) = self.entry_to_add(name, replace, first, call) {
            let expire = self.b.resize_u(32, call.value(first + 2).operand());
            let op = Op::AddEntry {
                table: of.info.table,
                keys: of.keys.to_vec(),
                action,
                args,
                expire,
                replace,
                dst: failed,
            };
            match first {
                0 => self.b.emit(op),
                _ => self.only_if(call.value(0).operand(), |cx| cx.b.emit(op)),
            }
        }
        if matches!(call.call.result, Type::Void) {
            return Tree::Nothing;
        }
        if is_bool {
            return self.b.bin(BinOp::Eq, failed, Operand::new_const(1, 0)).into();
        }
        Tree::Leaf(self.b.resize_u(width, failed))
    }

    /// The table, the action's index in its list, and the arguments of the entry that a call adds. Reports an error and
    /// returns `None` if the call is invalid.
    fn entry_to_add(
        &mut self,
        name: &str,
        replace: bool,
        first: usize,
        call: &ExternCall<'_>,
    ) -> Option<(OfTable, u32, Vec<Operand>)> {
        let p = self.p;
        let span = call.call.span;
        let refuse = |cx: &mut Self, at: Span, message: String, help: String| {
            cx.report(Diagnostic::error(codes::WRITES_NO_TABLE, at, message).help(help));
            None::<(OfTable, u32, Vec<Operand>)>
        };
        let of = self.of_table.clone();
        let Some((of, place)) = of.and_then(|of| Some((of.listed?, of))).map(|(place, of)| (of, place)) else {
            let help = match replace {
                true => "it changes the entry that was found, in an action of a table with `add_on_miss = true`",
                false => "it is called in the default action of a table with `add_on_miss = true`",
            };
            return refuse(self, span, format!("`{name}` outside of a table's action"), help.to_string());
        };
        let table = &p.tables[of.table.index()];
        let dynamic = self.b.program().tables[of.info.table.index()].dynamic.clone();
        if !dynamic.is_some_and(|d| d.add_on_miss) {
            // The error in the table itself has been reported already.
            let property = table.property("add_on_miss");
            let asks = property.and_then(|p| self.p.eval(&p.value, self.env.instance)?.as_bool());
            if asks != Some(true) {
                let message =
                    format!("`{name}` in an action of table `{}`, whose entries packets do not modify", table.name);
                return refuse(self, span, message, "give the table `add_on_miss = true;`".to_string());
            }
            return None;
        }
        let listed = &table.actions[place];
        let is_default =
            listed.default_only || table.default_action.as_ref().is_some_and(|d| d.action as usize == place);
        if !replace && !is_default {
            let action = &p.actions[listed.action.index()].name;
            let message =
                format!("`{name}` in action `{action}`, which is not a default action of table `{}`", table.name);
            let help = "the key was found where another action runs, so there is nothing to add; only the default \
                        action, or one that is `@defaultonly`, adds entries";
            return refuse(self, span, message, help.to_string());
        }
        let argument = call.call.args.get(first);
        let at = argument.and_then(|a| a.value.expr()).map_or(span, |e| e.span);
        let wanted = argument.and_then(|a| self.constant(a.value.expr()?));
        let wanted = wanted.as_ref().and_then(Value::as_str).unwrap_or_default().to_string();
        let named = |a: &typed::TableAction| {
            let action = &p.actions[a.action.index()];
            *action.name == *wanted || action.control_name.name == wanted
        };
        let possible = |a: &&typed::TableAction| !a.default_only && !a.implicit;
        let Some(index) = table.actions.iter().position(|a| named(a) && possible(&a)) else {
            let is_listed = table.actions.iter().any(named);
            let message = match is_listed {
                true => format!("action `{wanted}` of table `{}` is for the default only", table.name),
                false => format!("table `{}` has no action `{wanted}`", table.name),
            };
            let names =
                table.actions.iter().filter(possible).map(|a| format!("`{}`", p.actions[a.action.index()].name));
            let names: Vec<String> = names.collect();
            let help = match names.as_slice() {
                [] => "none of its actions can be an entry's".to_string(),
                names => format!("its entries run one of {}", names.join(", ")),
            };
            return refuse(self, at, message, help);
        };
        let args = self.entry_args(table, index, first + 1, call)?;
        Some((of, index as u32, args))
    }

    /// The action data of the entry that a call adds. The argument is a structure with a field for each parameter, a
    /// list of as many values, or the value of the only parameter.
    fn entry_args(
        &mut self,
        table: &typed::Table,
        index: usize,
        given: usize,
        call: &ExternCall<'_>,
    ) -> Option<Vec<Operand>> {
        let p = self.p;
        let action = &p.actions[table.actions[index].action.index()];
        let params: Vec<_> = action.data_params().collect();
        let argument = call.call.args.get(given)?;
        let mut values = Vec::new();
        call.value(given).for_each_reported_leaf(&mut |o| values.push(o.clone()));
        let names: Option<Vec<&str>> = p
            .types
            .struct_info(&argument.ty)
            .filter(|s| !s.name.is_empty())
            .map(|s| s.fields.iter().map(|f| &*f.name).collect());
        let names_fit = names.as_ref().is_none_or(|names| params.iter().map(|q| &*q.name).eq(names.iter().copied()));
        let widths: Vec<u32> = params.iter().map(|q| self.scalar_width(&q.ty).unwrap_or(0)).collect();
        let widths_fit = values.iter().map(|v| self.width(v)).eq(widths);
        if names_fit && widths_fit {
            return Some(values);
        }
        let at = argument.value.expr().map_or(call.call.span, |e| e.span);
        let message = format!("the values do not fit the parameters of action `{}`", action.name);
        let fields: Vec<String> = params.iter().map(|q| format!("{} {};", self.type_text(&q.ty), q.name)).collect();
        let help = match fields.as_slice() {
            [] => "the action has no parameters: give it `{}`".to_string(),
            fields => format!("give a structure with the action's parameters: `{{ {} }}`", fields.join(" ")),
        };
        self.report(Diagnostic::error(codes::WRITES_NO_TABLE, at, message).help(help));
        None
    }
}
